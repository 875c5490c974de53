"""WORD SENSES (paper, section 5.3, Table 5): the sense of a word by its nearest neighbour among SemCor's senses.

Every sense that occurs in SemCor gets the mean vector of its occurrences. A word to be disambiguated takes the sense of
its lemma and part of speech whose vector has the largest cosine with its own. A lemma that SemCor does not have takes
WordNet's first sense. A phrase has the vector of its last word. Everything is answered, so F1 is the share of right
answers, in percent; an answer is right if it is one of the gold senses (the rule of the framework's scorer).

Controls without context: layer 0, and word vectors of a file; a word without a vector takes the first sense.

The first-sense baseline is the framework's: 65.2 on all five datasets. The paper's 65.9 is that of the four datasets
without SemEval-2007, which serves as the development set in the systems it compares with; so both rows are here.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from elmo.analysis.analysis import Analysis, Results, Workspace
from elmo.analysis.claims import FAILS, HOLDS, UNTESTED, Claim
from elmo.analysis.figures import new_figure, points
from elmo.analysis.sense_data import Lemma, Occurrence, SenseSentence, first_senses, read_senses
from elmo.analysis.tables import markdown
from elmo.analysis.vectors import Array, StaticVectors, unit
from elmo.config import CheckedConfig
from elmo.embed.embedder import Embedder, load
from elmo.packaged import DEFAULT

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FIRST, STATIC, ALL, WITHOUT_DEV = "first sense", "word vectors", "all", "all without semeval2007"
TIE = 1e-5  # cosines that differ less are equal
PAPER = {FIRST: 65.9, "layer 1": 67.4, "layer 2": 69.0}


@dataclass(frozen=True)
class SensesConfig(CheckedConfig):
    """SemCor, the five test sets and WordNet, as folders inside the data folder."""

    model: str = DEFAULT
    train: str = "semcor"
    test: str = "raganato"
    sets: tuple[str, ...] = ("semeval2007", "semeval2013", "semeval2015", "senseval2", "senseval3")
    wordnet: str = "wordnet-3.0/dict"
    vectors: str | None = "vectors/glove.6B.100d.tasks.txt"
    precision: str = "float32"  # of the vectors


class SenseVectors:
    """The vectors of tokens by every method: each layer, the mean of all layers, and word vectors."""

    def __init__(self, model: Embedder, static: StaticVectors | None, workspace: Workspace) -> None:
        self.model, self.static, self.workspace = model, static, workspace
        self.methods = [*(f"layer {layer}" for layer in range(model.n_layers)), "mean of layers"]
        if static is not None:
            self.methods.append(STATIC)

    def __call__(self, sentences: Sequence[SenseSentence], what: str) -> Iterator[tuple[Occurrence, list[Array]]]:
        """Yield every occurrence with its vectors, of length 1 or zeros: one (D,) for each method."""
        arrays = self.model.embed([sentence.tokens for sentence in sentences])
        for number, (sentence, layers) in enumerate(zip(sentences, arrays, strict=True)):
            if number % 100 == 0:
                self.workspace.report(what, number, len(sentences))
            for occurrence in sentence.occurrences:
                each = layers[:, occurrence.place]
                found = [*unit(each), unit(each.mean(axis=0))]
                if self.static is not None:
                    found.append(unit(self.static([sentence.tokens[occurrence.place]])[0]))
                yield occurrence, found


def run(config: SensesConfig, workspace: Workspace) -> Results:
    """Learn from SemCor, answer every test set."""
    wordnet, train, test = (workspace.find(name) for name in (config.wordnet, config.train, config.test))
    static = StaticVectors(workspace.find(config.vectors)) if config.vectors is not None else None
    vectors = SenseVectors(load(config.model, precision=config.precision), static, workspace)
    first = first_senses(wordnet)
    known = senses_of(vectors, _annotated(train))
    methods = [FIRST, *vectors.methods]
    sets: dict[str, dict[str, Any]] = {}
    for name in config.sets:
        rows = []
        unseen = 0
        for occurrence, found in vectors(_annotated(test / name), name):
            fallback = first.get(occurrence.lemma)
            candidates = known.get(occurrence.lemma)
            unseen += candidates is None
            answers = [fallback, *(_nearest(candidates, k, vector, fallback) for k, vector in enumerate(found))]
            rows.append([answer in occurrence.senses for answer in answers])
        sets[name] = _counts(np.array(rows, dtype=bool).reshape(-1, len(methods)), unseen)
    return {
        "methods": methods,
        "sets": sets,
        "known": {"senses": sum(map(len, known.values())), "lemmas": len(known)},
    }


def _annotated(folder: Any) -> list[SenseSentence]:
    return [sentence for sentence in read_senses(folder) if sentence.occurrences]


def senses_of(vectors: SenseVectors, sentences: Sequence[SenseSentence]) -> dict[Lemma, dict[str, list[Array]]]:
    """Return the senses of every lemma, each with its mean vector by every method."""
    sums: dict[Lemma, dict[str, list[Array]]] = defaultdict(dict)
    for occurrence, found in vectors(sentences, "sense vectors"):
        for sense in occurrence.senses:
            known = sums[occurrence.lemma]
            before = known.get(sense)
            known[sense] = found if before is None else [a + b for a, b in zip(before, found, strict=True)]
    return {
        lemma: {sense: [unit(total) for total in totals] for sense, totals in known.items()}
        for lemma, known in sums.items()
    }


def _nearest(candidates: dict[str, list[Array]] | None, method: int, vector: Array, fallback: str | None) -> str | None:
    """Return the candidate with the largest cosine; the fallback if there is no candidate or no vector.

    Without context, the senses of a form have the same vector but for rounding; then the first one in training wins.
    """
    if candidates is None or not vector.any():
        return fallback
    cosines = {sense: float(vectors[method] @ vector) for sense, vectors in candidates.items()}
    best = max(cosines.values())
    return next(sense for sense, cosine in cosines.items() if cosine > best - TIE)


def _counts(right: Any, unseen: int) -> dict[str, Any]:
    """Count right answers by method, and how often exactly one of two methods is right."""
    return {
        "count": len(right),
        "unseen": unseen,
        "right": right.sum(axis=0).tolist(),
        "differ": [[int((a != b).sum()) for b in right.T] for a in right.T],
    }


def totals(results: Results, leave_out: Sequence[str] = ()) -> dict[str, Any]:
    """Add up the counts of all sets but some."""
    chosen = [counts for name, counts in results["sets"].items() if name not in leave_out]
    return {
        "count": sum(one["count"] for one in chosen),
        "unseen": sum(one["unseen"] for one in chosen),
        "right": np.sum([one["right"] for one in chosen], axis=0).tolist(),
        "differ": np.sum([one["differ"] for one in chosen], axis=0).tolist(),
    }


def table(results: Results) -> str:
    """One row per dataset: F1 of every method."""
    rows = []
    for name, one in {
        **results["sets"],
        ALL: totals(results),
        WITHOUT_DEV: totals(results, ["semeval2007"]),
    }.items():
        scores = [f"{100 * right / one['count']:.1f}" for right in one["right"]]
        rows.append([name, f"{one['count']:,}", f"{100 * one['unseen'] / one['count']:.1f} %", *scores])
    paper = [f"{PAPER[method]:.1f}" if method in PAPER else "" for method in results["methods"]]
    rows.append(["paper, the original size", "", "", *paper])
    return markdown(["F1", "occurrences", "lemma unseen", *results["methods"]], rows)


def figure(results: Results) -> "Figure":
    """F1 on all datasets by method, with two standard errors."""
    one = totals(results)
    drawn = new_figure(7.0, 3.6)
    axes = drawn.subplots()
    shares = [right / one["count"] for right in one["right"]]
    errors = [200 * math.sqrt(share * (1 - share) / one["count"]) for share in shares]
    points(
        axes, results["methods"], {"F1": [(100 * share, error) for share, error in zip(shares, errors, strict=True)]}
    )
    axes.set_ylabel("F1, all datasets, ± 2 standard errors")
    return drawn


def claims(results: Results) -> list[Claim]:
    """The top layer over the first; both over the context-free layer; the best over the first sense."""
    one, methods = totals(results), results["methods"]

    def compared(text: str, better: str, worse: str) -> Claim:
        if better == worse:
            return Claim(text, UNTESTED, "the model has one LSTM layer")
        a, b = methods.index(better), methods.index(worse)
        difference = 100 * (one["right"][a] - one["right"][b]) / one["count"]
        error = 100 * math.sqrt(one["differ"][a][b]) / one["count"]  # of a difference of paired answers
        scores = [100 * one["right"][k] / one["count"] for k in (a, b)]
        evidence = f"{better} {scores[0]:.1f}, {worse} {scores[1]:.1f}: {difference:+.2f} ± {error:.2f}"
        return Claim(text, HOLDS if difference > 2 * error else FAILS, evidence)

    top = [method for method in methods if method.startswith("layer ")][-1]
    return [
        compared("For word senses, the top layer is better than the first LSTM layer", top, "layer 1"),
        compared("Context matters: the top layer is better than the context-free layer 0", top, "layer 0"),
        compared("The top layer is better than WordNet's first sense", top, FIRST),
    ]


ANALYSIS = Analysis(
    "senses",
    "Word senses",
    "section 5.3, Table 5",
    "Word sense disambiguation by the nearest sense vector, learned from SemCor, on the five all-words test sets.",
    SensesConfig,
    run,
    table,
    figure,
    claims=claims,
)
