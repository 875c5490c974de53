"""Word vectors on disk: what a new process saves with `elmo.load(word_cache=FOLDER)`.

    python benchmarks/word_store.py TEXT [--sizes english original] [--rounds 5]

TEXT has one raw sentence per line. Every figure is from a new process with one thread, in CPU seconds, the median of
the rounds: without a word cache, with an empty one, and with one that has seen the text. Prints a Markdown table.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path

HERE = Path(__file__).resolve()
N_SENTENCES = {"english": 1000, "original": 100}
ALONE = 20  # sentences that are embedded one a call
WITHOUT, EMPTY, FILLED = "without", "empty", "filled"


def child(model: str, text: str, words: str | None, sentences: int) -> None:
    """Print CPU seconds: to load; of the first call; of sentences, one a call; of the stream of the others."""
    import torch

    import elmo

    torch.set_num_threads(1)
    read = json.loads(Path(text).read_text())
    clock = time.process_time
    times = [clock()]
    embedder = elmo.load(model, device="cpu", word_cache=words)
    times.append(clock())
    list(embedder.embed([["The"]]))  # packs the weights
    times.append(clock())
    for sentence in read[:ALONE]:
        list(embedder.embed([sentence]))
    times.append(clock())
    for _ in embedder.embed(read[ALONE:sentences]):
        pass
    times.append(clock())
    print(json.dumps([after - before for before, after in pairwise(times)]))


def measure(size: str, text: Path, rounds: int, folder: Path) -> None:
    from elmo.model.bilm import BiLM, BiLMConfig
    from elmo.text.tokens import words
    from elmo.weights import bilm_tf

    lines = text.read_text(encoding="utf-8").splitlines()
    every = [words(line) for line in lines if line.strip()][: 4 * N_SENTENCES[size]]
    alone = [sentence for sentence in every if 15 <= len(sentence) <= 25][:ALONE]
    sentences = [*alone, *(sentence for sentence in every if sentence not in alone)][: N_SENTENCES[size]]
    file = folder / f"{size}.json"
    file.write_text(json.dumps(sentences))
    model = size
    if size != "english":
        model = str(folder / "weights.hdf5")
        bilm_tf.write(BiLM(BiLMConfig.preset(size)), folder / "options.json", Path(model))
    found: dict[str, list[list[float]]] = {WITHOUT: [], EMPTY: [], FILLED: []}
    for _ in range(rounds):
        shutil.rmtree(folder / "words", ignore_errors=True)
        for kind, runs in found.items():
            kept = None if kind == WITHOUT else str(folder / "words")
            given = json.dumps({"model": model, "text": str(file), "words": kept, "sentences": len(sentences)})
            command = [sys.executable, str(HERE), "--child", given]
            runs.append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
    (stored,) = (folder / "words").iterdir()
    tokens = [sum(map(len, some)) for some in (sentences[:ALONE], sentences[ALONE:])]
    print(f"\n{size}: {ALONE} sentences one a call, {tokens[0]} tokens; stream of {tokens[1]} tokens; ", end="")
    print(f"{len({word for one in sentences for word in one})} words, {stored.stat().st_size / 2**20:.1f} MiB\n")
    print("| word cache | load, s | first call, s | one sentence a call, ms | stream, s |\n|---|---|---|---|---|")
    for kind, runs in found.items():
        load, first, one, stream = (statistics.median(values) for values in zip(*runs, strict=True))
        print(f"| {kind} | {load:.2f} | {first:.2f} | {1000 * one / ALONE:.1f} | {stream:.2f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path, nargs="?")
    parser.add_argument("--sizes", nargs="+", default=list(N_SENTENCES), choices=N_SENTENCES)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child(**json.loads(arguments.child))
    elif arguments.text is None:
        parser.error("TEXT is needed")
    else:
        os.environ["OMP_NUM_THREADS"] = "1"
        with tempfile.TemporaryDirectory() as folder:
            for size in arguments.sizes:
                measure(size, arguments.text, arguments.rounds, Path(folder))


if __name__ == "__main__":
    main()
