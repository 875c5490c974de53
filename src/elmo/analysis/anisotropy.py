"""ANISOTROPY (beyond the paper): how narrow the cone is in which the vectors of a layer lie, and what it does.

Measured on the tokens of a treebank: the mean cosine of two random tokens (0 if vectors point everywhere; Ethayarajh
2019), the share of the variance along the first principal component, and the neighbours of tokens: how many of the ten
nearest tokens of other sentences have the same part of speech and another word form, and how often the most popular
token is a neighbour (a "hub"). Each as the vectors are, centred, and without their first principal components.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from elmo.analysis.analysis import Analysis, Results, Workspace
from elmo.analysis.claims import FAILS, HOLDS, UNTESTED, Claim
from elmo.analysis.figures import COLOURS, new_figure
from elmo.analysis.pos import read
from elmo.analysis.similarity import changes
from elmo.analysis.tables import markdown
from elmo.analysis.vectors import Array, shares, unit
from elmo.config import CheckedConfig, NonNegativeInt, PositiveInt
from elmo.embed.embedder import load
from elmo.packaged import DEFAULT

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NEIGHBOURS = 10
PAIRS = 100_000
QUERIES_AT_ONCE = 512
MATTERS = 0.005  # of neighbours of the same tag: smaller differences are none


@dataclass(frozen=True)
class AnisotropyConfig(CheckedConfig):
    """Tokens of the English Web Treebank's dev part."""

    model: str = DEFAULT
    data: str = "ud-english-ewt"
    part: str = "dev"
    tokens: PositiveInt = 20_000  # the first so many
    removed: tuple[NonNegativeInt, ...] = (0, 1, 2, 5, 10)  # principal components; 0 is centring alone
    seed: NonNegativeInt = 0


@dataclass(frozen=True)
class Tokens:
    """All tokens of some sentences, one after another."""

    words: list[str]
    tags: list[str]
    sentences: list[int]  # the number of the sentence of each


def run(config: AnisotropyConfig, workspace: Workspace) -> Results:
    """Measure every layer with every change."""
    found = read(workspace.find(config.data), config.part)
    tokens = Tokens([], [], [])
    chosen = []
    for number, (some, tags) in enumerate(found):
        if len(tokens.words) >= config.tokens:
            break
        chosen.append(some)
        tokens.words.extend(some)
        tokens.tags.extend(tags)
        tokens.sentences.extend([number] * len(some))
    model = load(config.model)
    arrays = []
    for number, array in enumerate(model.embed(chosen)):
        if number % 100 == 0:
            workspace.report("layers", number, len(chosen))
        arrays.append(array)
    layers = np.concatenate(arrays, axis=1)  # (L+1, tokens, 2D)
    rng = np.random.default_rng(config.seed)
    pairs = rng.integers(len(tokens.words), size=(PAIRS, 2))
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    results: Results = {"tokens": len(tokens.words), "layers": []}
    for number, layer in enumerate(layers):
        options = changes(layer, config.removed)
        row: Results = {"first component": float(shares(layer)[0]), "changes": {}}
        for place, (name, change) in enumerate(options.items()):
            workspace.report("neighbours", number * len(options) + place, len(layers) * len(options))
            vectors = unit(change(layer))
            row["changes"][name] = {"cosine": mean_cosine(vectors, pairs), **neighbours(vectors, tokens)}
        results["layers"].append(row)
    return results


def mean_cosine(vectors: Array, pairs: Any) -> float:
    """Return the mean cosine of pairs of unit vectors; `pairs` (P, 2) are their rows."""
    return float((vectors[pairs[:, 0]] * vectors[pairs[:, 1]]).sum(axis=1, dtype=np.float64).mean())


def neighbours(vectors: Array, tokens: Tokens) -> dict[str, float]:
    """Describe the nearest tokens of every token, in other sentences: (N, D) unit vectors.

    "same tag" is the share of neighbours of another form that have the part of speech of the token; "same word" the
    share of all neighbours that have its form; "hub" how often the most frequent neighbour is one, divided by the mean.
    """
    rows = torch.from_numpy(vectors)
    sentence = torch.tensor(tokens.sentences)
    words, tags = (torch.tensor(_numbered(values)) for values in ([w.lower() for w in tokens.words], tokens.tags))
    k = min(NEIGHBOURS, len(rows) - 1)
    counts = torch.zeros(len(rows), dtype=torch.long)
    same_word = same_tag = others = 0
    for first in range(0, len(rows), QUERIES_AT_ONCE):
        some = slice(first, first + QUERIES_AT_ONCE)
        cosines = rows[some] @ rows.T
        cosines[sentence[some, None] == sentence[None]] = -torch.inf
        nearest = cosines.topk(k, dim=1).indices
        counts += torch.bincount(nearest.flatten(), minlength=len(rows))
        form = words[nearest] == words[some, None]
        same_word += int(form.sum())
        others += int((~form).sum())
        same_tag += int(((tags[nearest] == tags[some, None]) & ~form).sum())
    total = k * len(rows)
    return {
        "same word": same_word / total,
        "same tag": same_tag / max(1, others),
        "hub": float(counts.max()) / k,
    }


def _numbered(values: Sequence[str]) -> list[int]:
    numbers: dict[str, int] = {}
    return [numbers.setdefault(value, len(numbers)) for value in values]


def table(results: Results) -> str:
    """One row per layer and change."""
    rows = []
    for number, layer in enumerate(results["layers"]):
        for name, found in layer["changes"].items():
            first = f"{100 * layer['first component']:.1f} %" if name == "as they are" else ""
            rows.append(
                [
                    f"layer {number}",
                    name,
                    first,
                    f"{round(found['cosine'], 3) + 0.0:.3f}",  # not -0.000
                    f"{100 * found['same tag']:.1f} %",
                    f"{100 * found['same word']:.1f} %",
                    f"{found['hub']:.0f}",
                ]
            )
    header = ["", "vectors", "variance of component 1", "mean cosine", "neighbours: same tag, another word"]
    return markdown([*header, "same word", "largest hub, times the mean"], rows)


def figure(results: Results) -> "Figure":
    """Mean cosine and tag agreement of neighbours, by layer and change."""
    drawn = new_figure(8.5, 3.6)
    left, right = drawn.subplots(1, 2)
    names = list(results["layers"][0]["changes"])
    for colour, (number, layer) in zip(COLOURS, enumerate(results["layers"]), strict=False):
        for axes, field, factor in ((left, "cosine", 1), (right, "same tag", 100)):
            values = [factor * layer["changes"][name][field] for name in names]
            axes.plot(range(len(names)), values, marker="o", color=colour, label=f"layer {number}")
    for axes in (left, right):
        axes.set_xticks(range(len(names)), names, rotation=25, ha="right")
    left.set_ylabel("mean cosine of two random tokens")
    right.set_ylabel("neighbours of the same tag, %")
    left.legend(fontsize="small")
    return drawn


def claims(results: Results) -> list[Claim]:
    """What others found: higher layers lie in narrower cones; centring removes them."""
    plain = [layer["changes"]["as they are"]["cosine"] for layer in results["layers"]]
    shown = ", ".join(f"layer {number} {value:.2f}" for number, value in enumerate(plain))
    found = [
        Claim(
            "Vectors of higher layers lie in a narrower cone (Ethayarajh 2019)",
            HOLDS if plain == sorted(plain) else FAILS,
            f"mean cosine of two random tokens: {shown}",
        )
    ]
    text = "Removing the mean improves the neighbours of words in context"
    if all("centred" in layer["changes"] for layer in results["layers"]):
        both = [
            [layer["changes"][name]["same tag"] for name in ("as they are", "centred")] for layer in results["layers"]
        ]
        evidence = "; ".join(f"layer {k}: {100 * a:.1f} → {100 * b:.1f} %" for k, (a, b) in enumerate(both))
        verdict = HOLDS if all(b - a >= MATTERS for a, b in both) else FAILS
        return [*found, Claim(text, verdict, f"neighbours of the same tag, {evidence}")]
    return [*found, Claim(text, UNTESTED, "removed has no 0")]


ANALYSIS = Analysis(
    "anisotropy",
    "Anisotropy",
    "beyond the paper",
    "How alike the vectors of unrelated tokens are, layer by layer, and what centring them does to nearest neighbours.",
    AnisotropyConfig,
    run,
    table,
    figure,
    claims=claims,
)
