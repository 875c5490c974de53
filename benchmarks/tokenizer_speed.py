"""Speed of the tokenizer and of sacremoses alone, on the same lines: python benchmarks/tokenizer_speed.py TEXT."""

import sys
from pathlib import Path

from embed_speed import timed
from sacremoses import MosesTokenizer

from elmo.text.tokens import words


def main() -> None:
    lines = Path(sys.argv[1]).read_text(encoding="utf-8").splitlines()[:12000]
    moses = MosesTokenizer("en")
    theirs = [moses.tokenize(line, escape=False) for line in lines]
    total = sum(map(len, theirs))
    different = sum(words(line) != tokens for line, tokens in zip(lines, theirs, strict=True))
    ours = min(timed(lambda: [words(line) for line in lines]) for _ in range(3))
    alone = min(timed(lambda: [moses.tokenize(line, escape=False) for line in lines]) for _ in range(3))
    print(f"{len(lines):,} lines, {total:,} tokens, {different} lines differ")
    print(f"ours {total / ours:,.0f} tokens/s, sacremoses alone {total / alone:,.0f}: {alone / ours:.1f} ×")


if __name__ == "__main__":
    main()
