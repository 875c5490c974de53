"""The figures of a model card: perplexity, compared with n-gram models of the same text, and the effect of float16.

    python experiments/model_card.py FOLDER FULL CORPUS TEST WIKITEXT

FOLDER is the model of the package, FULL the same model in float32, as it was trained. CORPUS is its prepared training
text, TEST raw text of the same kind, one sentence per line. WIKITEXT is a file of WikiText-2, in which a
line is a paragraph or a heading, tokenized by Moses: `@-@` inside a word is replaced by a hyphen, and paragraphs are
split into sentences. All models score the same tokens; unknown words count as `<UNK>`.
"""

import argparse
import re
import tempfile
from pathlib import Path

import numpy as np

import elmo
from elmo.analysis import trigram
from elmo.analysis.kneser_ney import perplexities
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


def differences(folder: Path, full: Path, test: Path) -> list[str]:
    """Return for each layer the relative distance of a token's vectors, mean and largest, and the lowest cosine."""
    lines = test.read_text(encoding="utf-8").splitlines()[:SENTENCES]
    ours, exact = (np.concatenate(list(elmo.load(path, device="cpu").embed(lines)), axis=1) for path in (folder, full))
    rows = []
    for layer, (a, b) in enumerate(zip(ours, exact, strict=True)):
        distance = np.linalg.norm(a - b, axis=1) / np.linalg.norm(b, axis=1)
        cosine = (a * b).sum(axis=1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
        rows.append(f"| layer {layer} | {distance.mean():.1e} | {distance.max():.1e} | {cosine.min():.6f} |")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("folder", "full", "corpus", "test", "wikitext"):
        parser.add_argument(name, type=Path)
    arguments = parser.parse_args()
    corpus = Corpus.open(arguments.corpus)
    with tempfile.TemporaryDirectory() as folder:
        restored = Path(folder) / "wikitext.txt"
        restored.write_text(wikitext(arguments.wikitext), encoding="utf-8")
        texts = {
            f"{arguments.test.name}, raw": open_or_prepare(arguments.test, Path(folder)),
            "WikiText-2": open_or_prepare(restored, Path(folder), TextOptions("whitespace")),
        }
        size, train, _ = trigram.read(arguments.corpus)
        counts, _ = perplexities(size, train, [rows_of(text, corpus) for text in texts.values()])
        models = {
            "float16": source.read(arguments.folder, softmax=True),
            "float32": source.read(arguments.full, softmax=True),
        }
        for (name, text), counted in zip(texts.items(), counts, strict=True):
            found = {precision: score(model, text) for precision, model in models.items()}
            facts = found["float16"]
            print(f"\n{name}: {facts.tokens:,} predictions in each direction, {facts.unknown:.2%} unknown")
            print("| | forward | backward | mean |\n|---|---|---|---|")
            for model, row in counted.items():
                forward, backward = row["forward"], row["backward"]
                print(f"| {model} | {forward:.2f} | {backward:.2f} | {(forward + backward) / 2:.2f} |")
            for precision, value in found.items():
                print(f"| biLM, {precision} | {value.forward:.2f} | {value.backward:.2f} | {value.mean:.2f} |")
    print(f"\nfloat16 compared with float32, {SENTENCES:,} sentences of {arguments.test.name}:")
    print("| | relative distance, mean | largest | lowest cosine |\n|---|---|---|---|")
    print("\n".join(differences(arguments.folder, arguments.full, arguments.test)))


if __name__ == "__main__":
    main()
