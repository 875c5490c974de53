"""SENTENCES AS MEANS OF TOKENS (beyond the paper): similarity and classification, beside means of word vectors.

Similarity: the cosine of two mean vectors, correlated with the judgements of the STS Benchmark (Spearman and Pearson,
in percent), as they are, centred, and without their first principal components; mean and components come from the
sentences of the training part. Classification: a linear classifier on the mean vectors of SST's sentences, several
seeds. Nothing else is trained.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from elmo.analysis.analysis import Analysis, Results, Workspace
from elmo.analysis.claims import FAILS, HOLDS, Claim
from elmo.analysis.figures import legend_above, new_figure, points
from elmo.analysis.probe import LinearProbe
from elmo.analysis.sentences import STATIC, Pairs, mean_vectors, read_pairs
from elmo.analysis.tables import markdown, mean_sd
from elmo.analysis.vectors import Array, StaticVectors, Whitening, unit
from elmo.config import CheckedConfig, NonNegativeInt, PositiveInt
from elmo.embed.embedder import load
from elmo.packaged import DEFAULT
from elmo.tasks.sentences import metric
from elmo.tasks.sst import data as sst

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PARTS = ("train", "dev", "test")


@dataclass(frozen=True)
class SimilarityConfig(CheckedConfig):
    """The STS Benchmark and SST-5, as folders inside the data folder."""

    model: str = DEFAULT
    pairs: str = "stsb"  # sts-train.csv, sts-dev.csv, sts-test.csv
    classes: str | None = "sst"  # train.txt, dev.txt, test.txt, trees
    removed: tuple[NonNegativeInt, ...] = (0, 1, 2, 5, 10)  # principal components; 0 is centring alone
    seeds: PositiveInt = 3
    epochs: PositiveInt = 20
    vectors: str | None = "vectors/glove.6B.100d.tasks.txt"


def run(config: SimilarityConfig, workspace: Workspace) -> Results:
    """Correlate the cosines with the judgements, and train the classifiers."""
    folder = workspace.find(config.pairs)
    model = load(config.model)
    static = StaticVectors(workspace.find(config.vectors)) if config.vectors is not None else None
    parts = {part: read_pairs(folder / f"sts-{part}.csv") for part in PARTS}
    vectors = {
        part: mean_vectors(pairs.sentences, model, static, partial(workspace.report, f"sentences of {part}"))
        for part, pairs in parts.items()
    }
    similarity = {
        method: {
            name: {part: correlations(parts[part], change(vectors[part][method])) for part in ("dev", "test")}
            for name, change in changes(vectors["train"][method], config.removed).items()
        }
        for method in vectors["train"]
    }
    classes = _classify(config, workspace, model, static) if config.classes is not None else {}
    return {
        "pairs": {part: len(one.scores) for part, one in parts.items()},
        "similarity": similarity,
        "classes": classes,
    }


def changes(train: Array, removed: Sequence[int]) -> dict[str, Any]:
    """Return the transformations of vectors, by name ("− 2 PC": without the first two principal components).

    What they need is learned from the vectors of the training part.
    """
    found: dict[str, Any] = {"as they are": lambda rows: rows}
    for count in removed:
        found["centred" if count == 0 else f"− {count} PC"] = Whitening(train, count)
    return found


def correlations(pairs: Pairs, vectors: Array) -> dict[str, float]:
    """Return Spearman's and Pearson's correlation, in percent, of cosines and judgements."""
    one, other = unit(vectors[: len(pairs.scores)]), unit(vectors[len(pairs.scores) :])
    return metric.score(pairs.scores.tolist(), (one * other).sum(axis=1).tolist())


def _classify(config: SimilarityConfig, workspace: Workspace, model: Any, static: Any) -> Results:
    """Return the accuracy of a linear classifier for every method, by part and seed."""
    assert config.classes is not None
    folder = workspace.find(config.classes)
    examples = [sst.read_file(folder / f"{part}.txt", phrases=False) for part in PARTS]
    labels = sorted({example.gold for part in examples for example in part})
    gold = [np.array([labels.index(example.gold) for example in part]) for part in examples]
    vectors = [
        mean_vectors([example.texts[0] for example in part], model, static, partial(workspace.report, f"SST, {name}"))
        for part, name in zip(examples, PARTS, strict=True)
    ]
    found = {}
    for method in vectors[0]:
        probe = LinearProbe([part[method] for part in vectors], gold, len(labels))
        each = [probe.train(config.epochs, seed) for seed in range(config.seeds)]
        found[method] = {"dev": [100 * dev for dev, _ in each], "test": [100 * test for _, test in each]}
    return found


def table(results: Results) -> str:
    """Spearman's correlation on test by method and change, then the accuracies."""
    similarity = results["similarity"]
    names = list(next(iter(similarity.values())))
    rows = [
        [method, *(f"{found[name]['test']['spearman']:.1f}" for name in names)] for method, found in similarity.items()
    ]
    text = markdown(["STS-B test, Spearman", *names], rows)
    if not results["classes"]:
        return text
    rows = [[method, mean_sd(found["dev"]), mean_sd(found["test"])] for method, found in results["classes"].items()]
    return f"{text}\n{markdown(['SST-5, linear classifier, accuracy', 'dev', 'test'], rows)}"


def figure(results: Results) -> "Figure":
    """Spearman's correlation by method and change."""
    similarity = results["similarity"]
    drawn = new_figure(8.0, 3.8)
    axes = drawn.subplots()
    names = list(next(iter(similarity.values())))
    series = {name: [(found[name]["test"]["spearman"], 0.0) for found in similarity.values()] for name in names}
    points(axes, list(similarity), series)
    axes.set_ylabel("STS-B test, Spearman × 100")
    legend_above(axes, 6)
    return drawn


def claims(results: Results) -> list[Claim]:
    """What users asked: are means of ELMo's layers better than means of word vectors, and does centring help?"""
    similarity = results["similarity"]

    def score(method: str, change: str, part: str = "test") -> float:
        return float(similarity[method][change][part]["spearman"])

    layers = [method for method in similarity if method != STATIC]
    names = list(similarity[layers[0]])
    found = []
    if STATIC in similarity:
        plain = max(layers, key=lambda method: score(method, "as they are", "dev"))
        changed = max(((m, name) for m in layers for name in names), key=lambda pair: score(pair[0], pair[1], "dev"))
        static = max(names, key=lambda name: score(STATIC, name, "dev"))
        pairs = [(score(plain, "as they are"), score(STATIC, "as they are")), (score(*changed), score(STATIC, static))]
        evidence = (
            f"as they are, {plain} {pairs[0][0]:.1f}, {STATIC} {pairs[0][1]:.1f}; with the change that is best on dev, "
            f"{changed[0]} ({changed[1]}) {pairs[1][0]:.1f}, {STATIC} ({static}) {pairs[1][1]:.1f}"
        )
        verdict = HOLDS if all(ours > theirs for ours, theirs in pairs) else FAILS
        text = "Mean-pooled ELMo vectors are better than mean word vectors for sentence similarity"
        found.append(Claim(text, verdict, evidence))
    if "centred" in names:
        better = [method for method in layers if score(method, "centred") > score(method, "as they are")]
        evidence = "; ".join(f"{m} {score(m, 'as they are'):.1f} → {score(m, 'centred'):.1f}" for m in layers)
        verdict = HOLDS if len(better) == len(layers) else FAILS
        found.append(Claim("Centring improves sentence similarity, for every layer", verdict, evidence))
    return found


ANALYSIS = Analysis(
    "similarity",
    "Sentences as means of tokens",
    "beyond the paper",
    "Mean-pooled layers beside mean word vectors: similarity (STS-B), and sentiment by a linear classifier (SST-5).",
    SimilarityConfig,
    run,
    table,
    figure,
    claims=claims,
)
