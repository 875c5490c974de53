"""Word senses by the nearest neighbour among the senses of SemCor, layer by layer (paper, section 5.3).

    python experiments/word_senses.py MODEL SEMCOR RAGANATO WORDNET

SEMCOR and RAGANATO are folders of the unified evaluation framework (NAME/NAME.data.xml, NAME.gold.key.txt), WORDNET one
with `index.sense`. The vector of a sense is the mean vector of its occurrences in SemCor. A test occurrence gets the
sense of its lemma and part of speech whose vector has the largest cosine with its own; a lemma that is not in SemCor
gets WordNet's first sense. A phrase has the vector of its last word. Every occurrence gets an answer, so F1 is the
share of correct answers.
"""

import argparse
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import numpy.typing as npt

import elmo
from elmo.embed.embedder import Embedder

Vectors = npt.NDArray[np.float32]  # (layers, 2D)
TYPES = {"1": "NOUN", "2": "VERB", "3": "ADJ", "4": "ADV", "5": "ADJ"}  # of WordNet's sense keys


@dataclass(frozen=True)
class Occurrence:
    """One annotated word of a sentence."""

    id: str
    lemma: tuple[str, str]  # and its part of speech
    place: int
    senses: frozenset[str]


@dataclass(frozen=True)
class Sentence:
    """The words of a sentence, and the annotated ones among them."""

    words: list[str]
    occurrences: list[Occurrence]


def sentences(folder: Path) -> Iterator[Sentence]:
    """Read the sentences of a data set that have an annotated word."""
    keys = {}
    for line in (folder / f"{folder.name}.gold.key.txt").read_text(encoding="utf-8").splitlines():
        name, *senses = line.split()
        keys[name] = frozenset(senses)
    for _, element in ElementTree.iterparse(folder / f"{folder.name}.data.xml"):
        if element.tag != "sentence":
            continue
        words: list[str] = []
        occurrences = []
        for word in element:
            words.extend((word.text or "").split())
            if word.tag == "instance":
                name, lemma = word.attrib["id"], (word.attrib["lemma"], word.attrib["pos"])
                occurrences.append(Occurrence(name, lemma, len(words) - 1, keys[name]))
        element.clear()
        if occurrences:
            yield Sentence(words, occurrences)


def first_senses(index: Path) -> dict[tuple[str, str], str]:
    """Return WordNet's first sense of every lemma and part of speech."""
    found = {}
    for line in index.read_text(encoding="utf-8").splitlines():
        key, _, number, _ = line.split()
        if number == "1":
            lemma, lexical = key.split("%")
            found[lemma, TYPES[lexical[0]]] = key
    return found


def vectors(model: Embedder, found: list[Sentence]) -> Iterator[tuple[Occurrence, Vectors]]:
    """Yield every annotated occurrence with its vector in each layer, and their mean, each of length 1."""
    arrays = model.embed([sentence.words for sentence in found])
    for sentence, layers in zip(found, arrays, strict=True):
        for occurrence in sentence.occurrences:
            each = layers[:, occurrence.place]
            yield occurrence, unit(np.concatenate([each, each.mean(axis=0, keepdims=True)]))


def unit(rows: Vectors) -> Vectors:
    """Scale rows to length 1."""
    return rows / np.maximum(np.linalg.norm(rows, axis=-1, keepdims=True), 1e-12)


def senses_of(model: Embedder, semcor: list[Sentence]) -> dict[tuple[str, str], dict[str, Vectors]]:
    """Return the senses of every lemma in SemCor, each with its mean vectors."""
    sums: dict[tuple[str, str], dict[str, Vectors]] = defaultdict(dict)
    for occurrence, vector in vectors(model, semcor):
        for sense in occurrence.senses:
            known = sums[occurrence.lemma]
            known[sense] = known[sense] + vector if sense in known else vector
    return {lemma: {sense: unit(total) for sense, total in known.items()} for lemma, known in sums.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("semcor", type=Path)
    parser.add_argument("raganato", type=Path)
    parser.add_argument("wordnet", type=Path)
    arguments = parser.parse_args()
    model = elmo.load(arguments.model)
    first = first_senses(arguments.wordnet / "index.sense")
    known = senses_of(model, list(sentences(arguments.semcor)))
    print(f"{arguments.model}: {sum(map(len, known.values())):,} senses of {len(known):,} lemmas")
    names = [*(f"layer {layer}" for layer in range(model.n_layers)), "their mean"]
    print(f"| | occurrences | lemma unseen | first sense | {' | '.join(names)} |\n{'|---' * (4 + len(names))}|")
    total: dict[str, npt.NDArray[np.int64]] = {}
    for folder in sorted(path for path in arguments.raganato.iterdir() if path.is_dir() and path.name != "ALL"):
        right = np.zeros(3 + len(names), dtype=np.int64)
        for occurrence, vector in vectors(model, list(sentences(folder))):
            fallback = first.get(occurrence.lemma)
            candidates = known.get(occurrence.lemma)
            answers = [fallback] * len(names)
            if candidates:
                keys = list(candidates)
                scores = np.einsum("kld,ld->lk", np.stack(list(candidates.values())), vector)
                answers = [keys[best] for best in scores.argmax(axis=1)]
            right += [1, not candidates, *(answer in occurrence.senses for answer in (fallback, *answers))]
        total[folder.name] = right
    total["all"] = sum(total.values(), np.zeros(3 + len(names), dtype=np.int64))
    for name, (count, unseen, *right) in total.items():
        shares = " | ".join(f"{100 * one / count:.1f}" for one in right)
        print(f"| {name} | {count:,} | {100 * unseen / count:.1f} % | {shares} |")


if __name__ == "__main__":
    main()
