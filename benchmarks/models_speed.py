"""Speed and memory of models on a CPU, side by side, in one table: a stream, and one sentence per call.

    python benchmarks/models_speed.py TEXT MODEL... [--sentences 1000] [--rounds 3]

TEXT has one raw sentence per line; some are drawn so that their mean is about 20 tokens. MODEL is anything that
`elmo.load` takes. Every speed is the median of the rounds, in each of which all models run one after the other. "Empty"
is with an empty word cache, "full" with all words in it. The time of loading is the best of three processes, without
the import of PyTorch; memory is the peak of such a process, PyTorch included.
"""

import argparse
import json
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from embed_speed import exhaust, in_calls, n_tokens, sentences_of, timed

from elmo.embed.embedder import load

CALLS = 40  # sentences given one by one: enough for a median, and the large models take seconds
COLUMNS = {
    "stream, empty": "{:,.0f}",
    "stream, full": "{:,.0f}",
    "one per call, empty": "{:,.0f}",
    "one per call, full": "{:,.0f}",
    "load, s": "{:.2f}",
    "loaded, MiB": "{:,.0f}",
    "after the stream, MiB": "{:,.0f}",
}


def speeds(models: list[str], sentences: list[list[str]], rounds: int) -> dict[str, dict[str, float]]:
    """Tokens/s of every model, the median of all rounds."""
    embedders = {name: load(name, device="cpu") for name in models}
    found: dict[str, dict[str, list[float]]] = {name: {} for name in models}
    few = sentences[:CALLS]
    for _ in range(rounds):
        for name, embedder in embedders.items():
            runs: dict[str, tuple[list[list[str]], Callable[[], object]]] = {
                "stream": (sentences, lambda embedder=embedder: exhaust(embedder.embed(sentences))),
                "one per call": (few, lambda embedder=embedder: in_calls(embedder, few, 1)),
            }
            for kind, (some, run) in runs.items():
                embedder.cache.clear()
                for cache in ("empty", "full"):
                    found[name].setdefault(f"{kind}, {cache}", []).append(n_tokens(some) / timed(run))
    return {name: {kind: statistics.median(values) for kind, values in of.items()} for name, of in found.items()}


def loading(model: str, sentences: list[list[str]]) -> dict[str, float]:
    """Seconds to load and MiB at the peak, as `embed_speed.py` measures them in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder) / "text.json"
        text.write_text(json.dumps(sentences))
        script = str(Path(__file__).with_name("embed_speed.py"))
        command = [sys.executable, script, "--child", model, "--child-text", str(text)]
        runs = [json.loads(subprocess.run(command, capture_output=True, check=True).stdout) for _ in range(3)]
    best = min(runs, key=lambda run: run["load"])
    return {"load, s": best["load"], "loaded, MiB": best["after_load"], "after the stream, MiB": best["peak"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--sentences", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    sentences = sentences_of(arguments.text, arguments.sentences)
    print(f"{len(sentences)} sentences, {n_tokens(sentences)} tokens; one by one: the first {CALLS}")
    print(f"{platform.machine()}, {torch.get_num_threads()} threads, torch {torch.__version__}\n")
    found = speeds(arguments.models, sentences, arguments.rounds)
    print(f"| tokens/s | {' | '.join(COLUMNS)} |\n|{'---|' * (len(COLUMNS) + 1)}")
    for model in arguments.models:
        facts = found[model] | loading(model, sentences)
        print(f"| {model} | {' | '.join(form.format(facts[column]) for column, form in COLUMNS.items())} |")


if __name__ == "__main__":
    main()
