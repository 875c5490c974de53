"""The figures of a model card: perplexity, compared with n-gram models of the same text, and the effect of rounding.

    python experiments/model_card.py FOLDER FULL CORPUS TEST WIKITEXT [--beside english] [--card README.md]

FOLDER is the model that is shipped, FULL the same model as it was trained. CORPUS is its prepared training text, TEST
raw text of the same kind, one sentence per line. WIKITEXT is a file of WikiText-2, in which a line is a paragraph or a
heading, tokenized by Moses: `@-@` inside a word is replaced by a hyphen, and paragraphs are split into sentences. All
models score the same tokens; unknown words count as `<UNK>`. `--beside` names other models with the same vocabulary.

With `--card`, the tables are also written into a card: between `<!-- perplexity -->` and the next `<!-- end -->`, and
between `<!-- rounding -->` and the next `<!-- end -->`.
"""

import argparse
import re
import tempfile
from pathlib import Path

import numpy as np
import rounding  # beside this file

from elmo.analysis import kneser_ney, trigram
from elmo.pretrain.corpus import Corpus
from elmo.pretrain.corpus_source import TextOptions, open_or_prepare
from elmo.pretrain.evaluate import Perplexity, perplexity
from elmo.text import sentences
from elmo.weights import source
from elmo.weights.folder import Pretrained

SENTENCES = 1000  # whose vectors are compared


def wikitext(path: Path) -> str:
    """Return the paragraphs of WikiText as sentences, one per line, with the original words."""
    lines = (re.sub(r" @([-,.])@ ", r"\1", line) for line in path.read_text(encoding="utf-8").splitlines())
    return "".join(f"{sentence}\n" for line in lines for sentence in sentences.split(line))


def rows_of(text: Corpus, like: Corpus) -> np.ndarray:
    """Return the words of a text as rows in the vocabulary of another corpus."""
    targets = text.targets(like.vocabulary).astype(np.uint32)
    return np.concatenate([targets[text.rows(shard)] for shard in text.train])


def score(model: Pretrained, text: Corpus) -> Perplexity:
    assert model.vocabulary is not None
    return perplexity(model.bilm, model.vocabulary, text, text.train)


def perplexities(models: dict[str, Pretrained], corpus: Path, test: Path, wikitext_file: Path) -> list[str]:
    """For each text a table of the counted models and the biLMs."""
    prepared = Corpus.open(corpus)
    rows: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        restored = Path(folder) / "wikitext.txt"
        restored.write_text(wikitext(wikitext_file), encoding="utf-8")
        texts = {
            f"{test.name}, raw": open_or_prepare(test, Path(folder)),
            "WikiText-2": open_or_prepare(restored, Path(folder), TextOptions("whitespace")),
        }
        size, train, _ = trigram.read(corpus)
        counts, _ = kneser_ney.perplexities(size, train, [rows_of(text, prepared) for text in texts.values()])
        for (name, text), counted in zip(texts.items(), counts, strict=True):
            found = {label: score(model, text) for label, model in models.items()}
            facts = next(iter(found.values()))
            rows.append(f"{name}: {facts.tokens:,} predictions in each direction, {facts.unknown:.2%} unknown\n")
            rows.append("| | forward | backward | mean |\n|---|---|---|---|")
            for model, row in counted.items():
                forward, backward = row["forward"], row["backward"]
                rows.append(f"| {model} | {forward:.2f} | {backward:.2f} | {(forward + backward) / 2:.2f} |")
            for label, value in found.items():
                rows.append(f"| {label} | {value.forward:.2f} | {value.backward:.2f} | {value.mean:.2f} |")
            rows.append("")
    return rows[:-1]


def fill(card: Path, section: str, rows: list[str]) -> None:
    """Put a section's text into a card."""
    text = card.read_text(encoding="utf-8")
    before, mark, rest = text.partition(f"<!-- {section} -->\n")
    _, end, after = rest.partition("<!-- end -->")
    assert mark and end, f"{card}: has no section between <!-- {section} --> and <!-- end -->"
    card.write_text("\n".join([before + mark, *rows, "", end]) + after, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("folder", "full", "corpus", "test", "wikitext"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--beside", nargs="+", default=[])
    parser.add_argument("--card", type=Path)
    arguments = parser.parse_args()
    shipped, trained = map(rounding.dtype_of, (arguments.folder, arguments.full))
    lines = arguments.test.read_text(encoding="utf-8").splitlines()[:SENTENCES]
    models = {
        **{name: source.read(name, softmax=True) for name in arguments.beside},
        f"this model, as trained ({trained})": source.read(arguments.full, softmax=True),
        f"this model ({shipped})": source.read(arguments.folder, softmax=True),
    }
    sections = {
        "perplexity": perplexities(models, arguments.corpus, arguments.test, arguments.wikitext),
        "rounding": [
            f"{shipped} against {trained}, {len(lines):,} sentences of {arguments.test.name}:\n",
            *rounding.differences(arguments.folder, arguments.full, lines),
        ],
    }
    for section, rows in sections.items():
        print("\n".join(rows), end="\n\n")
        if arguments.card is not None:
            fill(arguments.card, section, rows)


if __name__ == "__main__":
    main()
