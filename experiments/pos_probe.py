"""Parts of speech, predicted from each layer by a linear classifier (paper, section 5.3).

    python experiments/pos_probe.py MODEL TREEBANK [--epochs 20] [--seeds 0 1 2]

TREEBANK is a folder of Universal Dependencies with …-train, …-dev and …-test.conllu, whose fifth column is the Penn
tag. The biLM is frozen. A softmax over tags is trained on the standardized vectors of one layer, and the best epoch is
chosen on dev. The first row is a baseline: the most frequent tag of each word, and NN for unknown words.
"""

import argparse
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

import elmo
from elmo.embed.embedder import Embedder

Tagged = list[tuple[list[str], list[str]]]
BATCH = 512


def read(folder: Path, part: str) -> Tagged:
    """Read sentences of words and tags."""
    (path,) = folder.glob(f"*-{part}.conllu")
    found: Tagged = []
    for block in path.read_text(encoding="utf-8").split("\n\n"):
        rows = [line.split("\t") for line in block.splitlines() if line and not line.startswith("#")]
        rows = [row for row in rows if row[0].isdigit()]  # without multiword tokens (1-2) and empty nodes (1.1)
        if rows:
            found.append(([row[1] for row in rows], [row[4] for row in rows]))
    return found


def most_frequent(train: Tagged, test: Tagged) -> float:
    """Return the share of words that have their most frequent tag."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for words, tags in train:
        for word, tag in zip(words, tags, strict=True):
            counts[word][tag] += 1
    best = {word: count.most_common(1)[0][0] for word, count in counts.items()}
    pairs = [pair for words, tags in test for pair in zip(words, tags, strict=True)]
    return float(np.mean([best.get(word, "NN") == tag for word, tag in pairs]))


def vectors(model: Embedder, part: Tagged) -> Tensor:
    """Return the vectors of all words, (layers, words, 2D)."""
    return torch.from_numpy(np.concatenate(list(model.embed([words for words, _ in part])), axis=1))


def probe(features: list[Tensor], tags: list[Tensor], n_tags: int, epochs: int, seed: int) -> tuple[float, float]:
    """Return the accuracy on dev and test of the best classifier on dev; the lists are train, dev, test."""
    torch.manual_seed(seed)
    mean, deviation = features[0].mean(dim=0), features[0].std(dim=0)
    train, dev, test = ((part - mean) / deviation for part in features)
    classifier = nn.Linear(train.shape[1], n_tags)
    optimizer = torch.optim.Adam(classifier.parameters(), lr=2e-3)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.05, epochs)
    best = 0.0, 0.0
    for _ in range(epochs):
        for some in torch.randperm(len(train)).split(BATCH):
            optimizer.zero_grad()
            functional.cross_entropy(classifier(train[some]), tags[0][some]).backward()
            optimizer.step()
        schedule.step()
        with torch.no_grad():
            found = [float((classifier(part).argmax(dim=1) == tag).float().mean()) for part, tag in
                     ((dev, tags[1]), (test, tags[2]))]  # fmt: skip
        best = max(best, (found[0], found[1]))
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("treebank", type=Path)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    arguments = parser.parse_args()
    parts = [read(arguments.treebank, part) for part in ("train", "dev", "test")]
    names = sorted({tag for part in parts for _, tags in part for tag in tags})
    tags = [torch.tensor([names.index(tag) for _, tags in part for tag in tags]) for part in parts]
    print(f"{arguments.model}: {len(names)} tags, {' / '.join(f'{len(part):,}' for part in tags)} words")
    print("| | dev | test | standard deviation over seeds |\n|---|---|---|---|")
    baseline = [100 * most_frequent(parts[0], part) for part in parts[1:]]
    print(f"| most frequent tag | {baseline[0]:.2f} | {baseline[1]:.2f} | |")
    model = elmo.load(arguments.model)
    found = [vectors(model, part) for part in parts]
    for layer in range(model.n_layers):
        each = [probe([part[layer] for part in found], tags, len(names), arguments.epochs, seed)
                for seed in arguments.seeds]  # fmt: skip
        dev, test = 100 * np.mean(each, axis=0)
        print(f"| layer {layer} | {dev:.2f} | {test:.2f} | {100 * np.std([t for _, t in each]):.2f} |", flush=True)


if __name__ == "__main__":
    main()
