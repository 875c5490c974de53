"""`elmo serve` under load, beside the library itself: throughput, latency, errors, memory.

    python benchmarks/serve_load.py [TEXT] [--requests 2000] [--memory-requests 10000] [--seconds 60]

The server is a process of its own on 127.0.0.1. Each client sends one sentence at a time (mean over tokens, average of
the layers, base64) and waits for the answer. TEXT has one raw sentence per line; by default the sentences of the page.
The library answers the same sentences in this process, before the server is started: one per call, and all in one call.
A setting ends after `--seconds` at the latest. Prints Markdown tables.
"""

import argparse
import asyncio
import base64
import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import numpy as np

import elmo

CLIENTS = (1, 8, 64)


@dataclass
class Load:
    """What the clients of one setting saw."""

    latencies: list[float] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)
    tokens: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0  # of the server
    error: float = 0.0  # the largest difference from the library's numbers


class Server:
    """`elmo serve` as a process."""

    def __init__(self, process: subprocess.Popen[str], address: str) -> None:
        self.process = process
        self.host, port = address.removeprefix("http://").split(":")
        self.port = int(port)

    def cpu_seconds(self) -> float:
        """CPU time of the process so far."""
        after_name = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(after_name[11]) + int(after_name[12])) / os.sysconf("SC_CLK_TCK")

    def memory(self) -> float:
        """Resident memory in MiB."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.findall(r"VmRSS:\s+(\d+)", status)[0]) / 1024


@contextmanager
def server(model: str) -> Iterator[Server]:
    command = [sys.executable, "-m", "elmo", "serve", "--model", model, "--port", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        line = process.stderr.readline()
        address = re.search(r"http://[\d.]+:\d+", line)
        if address is None:
            raise SystemExit(line + process.stderr.read())
        yield Server(process, address[0])
    finally:
        process.terminate()
        process.wait(60)


class Client:
    """A connection that is kept open: as little work as possible, because it shares the machine with the server."""

    def __init__(self, server: Server) -> None:
        self.server = server

    async def open(self) -> None:
        self.reader, self.writer = await asyncio.open_connection(self.server.host, self.server.port)

    async def post(self, path: str, body: bytes) -> tuple[int, bytes]:
        lines = [f"POST {path} HTTP/1.1", "Host: x", "Content-Type: application/json", f"Content-Length: {len(body)}"]
        self.writer.write("\r\n".join([*lines, "", ""]).encode() + body)
        answer = (await self.reader.readuntil(b"\r\n\r\n")).decode()
        length = int(re.findall(r"(?i)\r\ncontent-length: (\d+)", answer)[0])
        return int(answer.split()[1]), await self.reader.readexactly(length)


async def load(
    server: Server, texts: list[str], vectors: np.ndarray, clients: int, requests: int, limit: float
) -> Load:
    """Send requests from several clients at once, and compare every answer with the library's."""
    found, numbers, begin = Load(), count(), time.perf_counter()
    cpu_before = server.cpu_seconds()
    bodies = [
        json.dumps({"sentences": [text], "layers": "average", "pooling": "mean", "encoding": "base64"}).encode()
        for text in texts
    ]

    async def client() -> None:
        connection = Client(server)
        await connection.open()
        while (number := next(numbers)) < requests and time.perf_counter() - begin < limit:
            row = number % len(texts)
            sent = time.perf_counter()
            status, body = await connection.post("/embed", bodies[row])
            found.latencies.append(time.perf_counter() - sent)
            found.statuses[status] += 1
            if status == 200:
                (answer,) = json.loads(body)["sentences"]
                vector = np.frombuffer(base64.b64decode(answer["vectors"]), dtype="<f4")
                found.error = max(found.error, float(np.abs(vector - vectors[row]).max()))
                found.tokens += len(answer["tokens"])
        connection.writer.close()

    await asyncio.gather(*(client() for _ in range(clients)))
    found.seconds = time.perf_counter() - begin
    found.cpu_seconds = server.cpu_seconds() - cpu_before
    return found


def library(model: elmo.Embedder, calls: list[list[str]], limit: float) -> tuple[float, float]:
    """Return sentences/s and the CPU time per sentence of the library; all words are known."""
    begin, cpu_before, done = time.perf_counter(), time.process_time(), 0
    for texts in calls:
        model.encode(texts)
        done += len(texts)
        if time.perf_counter() - begin > limit:
            break
    return done / (time.perf_counter() - begin), (time.process_time() - cpu_before) / done


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", nargs="?", type=Path, default=Path(elmo.__file__).parent / "serve" / "uses.txt")
    parser.add_argument("--model", default="english")
    parser.add_argument("--requests", type=int, default=2000, help="of each setting")
    parser.add_argument("--memory-requests", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=60, help="longest time of a setting (memory: twice)")
    asked = parser.parse_args()
    texts = [line for line in asked.text.read_text(encoding="utf-8").splitlines() if line.strip()][: asked.requests]
    model = elmo.load(asked.model)
    vectors = model.encode(texts)
    tokens = sum(len(model.tokens(text)) for text in texts)
    print(f"{len(texts)} sentences, {tokens / len(texts):.1f} tokens each; load average {os.getloadavg()[0]:.1f}\n")
    print("| | requests/s | tokens/s | CPU ms each | p50, ms | p99, ms | requests | not 200 | largest difference |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name, calls in (("one sentence a call", [[text] for text in texts]), ("all in one call", [texts] * 5)):
        speed, cpu = library(model, calls, asked.seconds)
        print(f"| library, {name} | {speed:,.0f} | {speed * tokens / len(texts):,.0f} | {1000 * cpu:.2f} | | | | | |")
    with server(asked.model) as running:
        asyncio.run(load(running, texts, vectors, 8, 2 * len(texts), asked.seconds))  # every word is known now
        for clients in CLIENTS:
            found = asyncio.run(load(running, texts, vectors, clients, asked.requests, asked.seconds))
            p50, p99 = np.percentile(np.array(found.latencies) * 1000, [50, 99])
            sent = len(found.latencies)
            cells = [
                f"server, {clients} client{'s' if clients > 1 else ''}", f"{sent / found.seconds:,.0f}",
                f"{found.tokens / found.seconds:,.0f}", f"{1000 * found.cpu_seconds / sent:.2f}", f"{p50:.1f}",
                f"{p99:.1f}", f"{sent:,}", f"{sent - found.statuses[200]}", f"{found.error:.1e}",
            ]  # fmt: skip
            print(f"| {' | '.join(cells)} |", flush=True)
        memory(running, texts, vectors, asked.memory_requests, 2 * asked.seconds)


def memory(running: Server, texts: list[str], vectors: np.ndarray, requests: int, limit: float) -> None:
    """Print the server's memory after each tenth of the requests."""
    begin, sizes, sent, wrong = time.perf_counter(), [running.memory()], 0, 0
    for _ in range(10):
        left = limit - (time.perf_counter() - begin)
        if left > 0:
            found = asyncio.run(load(running, texts, vectors, 8, requests // 10, left))
            sent, wrong = sent + len(found.latencies), wrong + len(found.latencies) - found.statuses[200]
            sizes.append(running.memory())
    print(f"\nMemory of the server over {sent:,} more requests of 8 clients ({wrong} not 200), in MiB:")
    print(" ".join(f"{size:.1f}" for size in sizes))


if __name__ == "__main__":
    main()
