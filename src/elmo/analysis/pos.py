"""PARTS OF SPEECH (paper, section 5.3, Table 6): a linear classifier on one frozen layer, with several seeds.

A softmax over tags is trained on the vectors of one layer, scaled to mean 0 and variance 1 in every dimension; the
epoch is chosen on dev. The data are a treebank of Universal Dependencies whose fifth column is the Penn tag. The first
row needs no model: the most frequent tag of a word, NN for unknown words.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from elmo.analysis.analysis import Analysis, Results, Workspace
from elmo.analysis.claims import UNTESTED, Claim, higher
from elmo.analysis.figures import new_figure, points
from elmo.analysis.probe import LinearProbe
from elmo.analysis.tables import markdown, mean_sd
from elmo.analysis.vectors import Array
from elmo.config import CheckedConfig, PositiveInt
from elmo.embed.embedder import Embedder, load
from elmo.errors import DataError
from elmo.packaged import DEFAULT
from elmo.text.reader import read_lines
from elmo.training.seeds import mean_and_sd

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Tagged = list[tuple[list[str], list[str]]]  # sentences of words and tags
PARTS = ("train", "dev", "test")
PAPER = {"layer 1": 97.3, "layer 2": 96.8}  # WSJ, another corpus, with the original size
BASELINE = "most frequent tag"


@dataclass(frozen=True)
class PosConfig(CheckedConfig):
    """The English Web Treebank, twenty epochs, three seeds."""

    model: str = DEFAULT
    data: str = "ud-english-ewt"  # *-train.conllu, *-dev.conllu, *-test.conllu
    seeds: PositiveInt = 3
    epochs: PositiveInt = 20
    precision: str = "float32"  # of the vectors


def run(config: PosConfig, workspace: Workspace) -> Results:
    """Train a classifier for every layer and seed."""
    folder = workspace.find(config.data)
    parts = [read(folder, part) for part in PARTS]
    names = sorted({tag for part in parts for _, tags in part for tag in tags})
    numbers = {name: number for number, name in enumerate(names)}
    tags = [np.array([numbers[tag] for _, tags in part for tag in tags]) for part in parts]
    model = load(config.model, precision=config.precision)
    vectors = [_vectors(model, part, workspace, name) for part, name in zip(parts, PARTS, strict=True)]
    layers = []
    for layer in range(model.n_layers):
        probe = LinearProbe([part[layer] for part in vectors], tags, len(names))
        each = []
        for seed in range(config.seeds):
            workspace.report("classifiers", layer * config.seeds + seed, model.n_layers * config.seeds)
            each.append([100 * share for share in probe.train(config.epochs, seed)])
        layers.append({"dev": [dev for dev, _ in each], "test": [test for _, test in each]})
    return {
        "tags": len(names),
        "words": [len(part) for part in tags],
        BASELINE: [100 * most_frequent(parts[0], part) for part in parts[1:]],
        "layers": layers,
    }


def read(folder: Path, part: str) -> Tagged:
    """Read a part of a treebank."""
    paths = sorted(folder.glob(f"*-{part}.conllu"))
    if len(paths) != 1:
        raise DataError(f"{folder}: number of files *-{part}.conllu: {len(paths)}; expected 1")
    found: Tagged = []
    words: list[str] = []
    tags: list[str] = []
    for number, line in [*read_lines(paths[0]), (0, "")]:
        if line.startswith("#"):
            continue
        if not line.strip():
            if words:
                found.append((words, tags))
            words, tags = [], []
            continue
        columns = line.split("\t")
        if len(columns) < 5:
            raise DataError(
                f"{paths[0]}:{number}: {line[:40]!r}; expected the columns of CoNLL-U, with tabs between them"
            )
        if columns[0].isdigit():  # not the joined words, 1-2, nor the unspoken ones, 1.1
            words.append(columns[1])
            tags.append(columns[4])
    return found


def most_frequent(train: Tagged, test: Tagged) -> float:
    """Return the share of words whose tag is the one that they have most often in training."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for words, tags in train:
        for word, tag in zip(words, tags, strict=True):
            counts[word][tag] += 1
    best = {word: count.most_common(1)[0][0] for word, count in counts.items()}
    pairs = [pair for words, tags in test for pair in zip(words, tags, strict=True)]
    return float(np.mean([best.get(word, "NN") == tag for word, tag in pairs]))


def _vectors(model: Embedder, part: Tagged, workspace: Workspace, name: str) -> Array:
    """Return the vectors of all words, (L+1, words, 2D)."""
    arrays = []
    for number, array in enumerate(model.embed([words for words, _ in part])):
        if number % 100 == 0:
            workspace.report(f"vectors of {name}", number, len(part))
        arrays.append(array)
    return np.concatenate(arrays, axis=1)


def table(results: Results) -> str:
    """One row per layer: accuracy on dev and test."""
    baseline = [f"{value:.2f}" for value in results[BASELINE]]
    rows = [[BASELINE, *baseline, ""]]
    for number, layer in enumerate(results["layers"]):
        paper = PAPER.get(f"layer {number}")
        rows.append([f"layer {number}", mean_sd(layer["dev"]), mean_sd(layer["test"]), f"{paper:.1f}" if paper else ""])
    return markdown(["accuracy", "dev", "test", "paper, WSJ"], rows)


def figure(results: Results) -> "Figure":
    """Test accuracy by layer."""
    drawn = new_figure(5.5, 3.6)
    axes = drawn.subplots()
    found = [(results[BASELINE][1], 0.0)]
    for layer in results["layers"]:
        both = mean_and_sd(layer["test"])
        found.append((both["mean"], both["sd"]))
    names = [BASELINE, *(f"layer {number}" for number in range(len(results["layers"])))]
    points(axes, names, {"accuracy": found})
    axes.set_ylabel("test accuracy, %")
    return drawn


def claims(results: Results) -> list[Claim]:
    """The first LSTM layer over the top layer."""
    text = "For parts of speech, the first LSTM layer is better than the top layer"
    layers: Sequence[Results] = results["layers"]
    if len(layers) < 3:
        return [Claim(text, UNTESTED, "the model has one LSTM layer")]
    return [higher(text, layers[1]["test"], layers[-1]["test"], ("layer 1", f"layer {len(layers) - 1}"))]


ANALYSIS = Analysis(
    "pos",
    "Parts of speech",
    "section 5.3, Table 6",
    "How much of a word's part of speech a linear classifier reads from each layer.",
    PosConfig,
    run,
    table,
    figure,
    claims=claims,
)
