"""Perplexity of a language model before and after one epoch on the text of a task (paper, appendix A.1).

    python experiments/domains.py MODEL DATA OUT [--only snli sst …] [--set batch.size=64 …]

DATA has a folder for each task: `snli`, `conll2003`, `squad`, `sst`. The text of the training part becomes a corpus,
with 5 % of its sentences held out, and `elmo finetune` tunes the model to it, with the model's own vocabulary. The
files stay in OUT; run the same command again to continue there. Text that is not tokenized yet is tokenized.
"""

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

PAPER = {
    "snli": "72.1 → 16.8",
    "conll2003": "103.2 → 46.3",
    "squad contexts": "99.1 → 43.5",
    "squad questions": "158.2 → 52.0",
    "sst": "131.5 → 78.6",
}
BRACKETS = {"-LRB-": "(", "-RRB-": ")"}


def snli(data: Path) -> Iterator[str]:
    for line in (data / "snli" / "snli_train_subset.jsonl").read_text(encoding="utf-8").splitlines():
        pair = json.loads(line)
        yield from (pair["sentence1"], pair["sentence2"])


def conll2003(data: Path) -> Iterator[str]:
    for block in (data / "conll2003" / "eng.train").read_text(encoding="utf-8").split("\n\n"):
        words = [line.split()[0] for line in block.splitlines() if line.strip()]
        if words and words != ["-DOCSTART-"]:
            yield " ".join(words)


def paragraphs(data: Path) -> Iterator[dict[str, Any]]:
    (path,) = (data / "squad").glob("train*.json")
    for article in json.loads(path.read_text(encoding="utf-8"))["data"]:
        yield from article["paragraphs"]


def squad_contexts(data: Path) -> Iterator[str]:
    return (" ".join(paragraph["context"].split()) for paragraph in paragraphs(data))


def squad_questions(data: Path) -> Iterator[str]:
    return (" ".join(question["question"].split()) for part in paragraphs(data) for question in part["qas"])


def sst(data: Path) -> Iterator[str]:
    for tree in (data / "sst" / "train.txt").read_text(encoding="utf-8").splitlines():
        yield " ".join(BRACKETS.get(leaf, leaf) for leaf in re.findall(r"\(\d ([^()]+)\)", tree))


# The function that makes the text, and the options of `elmo prepare`
DOMAINS: dict[str, tuple[Callable[[Path], Iterator[str]], list[str]]] = {
    "snli": (snli, ["--lines"]),
    "conll2003": (conll2003, ["--lines", "--tokenizer", "whitespace"]),
    "squad contexts": (squad_contexts, ["--split"]),
    "squad questions": (squad_questions, ["--lines"]),
    "sst": (sst, ["--lines", "--tokenizer", "whitespace"]),
}


def elmo(*arguments: str | Path) -> str:
    """Run a command of `elmo`; return its output."""
    command = [sys.executable, "-m", "elmo", *map(str, arguments)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", nargs="+", choices=DOMAINS, default=list(DOMAINS))
    parser.add_argument("--set", nargs="*", default=[], help="changes to the recipe of the fine-tuning")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    changes = [part for change in arguments.set for part in ("--set", change)]
    rows = []
    for name in arguments.only:
        make, how = DOMAINS[name]
        base = arguments.out / name.replace(" ", "-")
        text, corpus, tuned = (base.with_suffix(suffix) for suffix in (".txt", ".corpus", ".tuned"))
        if not corpus.exists():
            text.write_text("\n".join(make(arguments.data)) + "\n", encoding="utf-8")
            vocabulary = arguments.model / "vocabulary.txt"
            elmo("prepare", text, corpus, *how, "--heldout", "5%", "--vocabulary", vocabulary)
        if not (tuned / "model").exists():
            begun = ["--resume"] if (tuned / "run.json").exists() else []
            elmo("finetune", arguments.model, corpus, tuned, *changes, *begun)
        before, after = (
            json.loads(elmo("perplexity", model, corpus, "--json")) for model in (arguments.model, tuned / "model")
        )
        counts = json.loads((corpus / "corpus.json").read_text(encoding="utf-8"))["counts"]
        rows.append(
            f"| {name} | {counts['sentences']:,} | {counts['tokens']:,} | {100 * before['unknown']:.1f} % | "
            f"{before['mean']:.1f} | {after['mean']:.1f} | {PAPER[name]} |"
        )
    print("| | sentences | tokens | unknown | before | after one epoch | paper, before → after |\n" + "|---" * 7 + "|")
    print("\n".join(rows))


if __name__ == "__main__":
    main()
