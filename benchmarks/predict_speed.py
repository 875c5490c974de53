"""Speed of `elmo predict` on a CPU, compared with the same task models on a plain biLM, in one run.

    python benchmarks/predict_speed.py TEXT

TEXT has one raw sentence per line; 1,000 are drawn so that their mean is about 20 tokens (`embed_speed.py`); a pair for
SNLI is two neighbouring sentences. The biLM is the English model of the package; the task models have the paper's
sizes, 100-d word vectors, and random weights: speed does not depend on them. Each figure is the median of `--rounds`
rounds, in each of which all variants run one after the other.
"""

import argparse
import statistics
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import torch
from embed_speed import n_tokens, sentences_of, timed
from plain import PlainBiLM

from elmo.embed.embedder import Embedder, load
from elmo.model.layers import Layers
from elmo.tasks.examples import Example
from elmo.tasks.folder import TrainedTask
from elmo.tasks.frozen import FrozenLayers
from elmo.tasks.inputs import Inputs
from elmo.tasks.predict import Predictor
from elmo.tasks.recipe import recipe
from elmo.tasks.word_vectors import count_words
from elmo.text.tokens import Tokens

PEER = "on a plain biLM, 32 at a time"
LABELS = {"ner": ["O", *(f"{p}-{t}" for t in ("PER", "LOC", "ORG", "MISC") for p in "BIUL")], "sst": list("01234")}


class PlainLayers(FrozenLayers):
    """The layers of a batch, computed by a biLM in plain PyTorch."""

    def __init__(self, embedder: Embedder) -> None:
        super().__init__(embedder)
        self.plain = PlainBiLM(embedder.bilm)

    @contextmanager
    def holding(self, texts: Iterable[Tokens]) -> Iterator[None]:
        yield  # nothing is computed before its batch

    def layers(self, texts: Sequence[Tokens]) -> Layers:
        found = self.plain.embed([list(text) for text in texts])
        longest = max(map(len, texts))
        mask = torch.tensor([[k < len(text) for k in range(longest)] for text in texts])
        padded = torch.zeros(len(found[0]), *mask.shape, found[0].shape[-1])
        for row, layers in enumerate(found):
            padded[:, row, : layers.shape[1]] = layers
        return Layers(padded, mask)


def model_of(name: str, placement: str, sentences: list[list[str]], frozen: FrozenLayers | None) -> TrainedTask:
    """Return the model of a task with random weights, and a vector for every word."""
    task, config = recipe(name, None, ["inputs.vectors=below", f"inputs.elmo.placement={placement}"])
    words = list(count_words([Example((tuple(sentence),), None) for sentence in sentences], lowercase=True))
    matrix = torch.from_numpy(np.random.default_rng(0).normal(size=(len(words), 100)).astype(np.float32))
    labels = LABELS.get(name) or list(task.labels([]))
    torch.manual_seed(0)
    model = task.model(config, Inputs(config.inputs, words, matrix, frozen), labels)
    return TrainedTask(task, config, labels, words, model.eval())


def in_calls(predictor: Predictor, items: Sequence[object], size: int) -> None:
    """Make one call per `size` items."""
    for first in range(0, len(items), size):
        predictor.predict(items[first : first + size])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("text", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    sentences = sentences_of(arguments.text)
    pairs = list(zip(sentences, sentences[1:] + sentences[:1], strict=True))
    print(f"{len(sentences)} sentences, {n_tokens(sentences)} tokens, torch {torch.__version__}")
    for name in ("ner", "sst", "snli"):
        given: Sequence[object] = pairs if name == "snli" else sentences
        placement = "both" if name == "snli" else "input"
        found: dict[str, list[float]] = {}
        for _ in range(arguments.rounds):
            embedder = load()  # no word is known
            plain = Predictor(model_of(name, placement, sentences, PlainLayers(embedder)))
            ours = Predictor(model_of(name, placement, sentences, FrozenLayers(embedder)))
            none = Predictor(model_of(name, "none", sentences, None))

            for variant, predictor, at_once in (
                (PEER, plain, 32),
                ("predict, no word known", ours, len(given)),
                ("predict, words known", ours, len(given)),
                ("predict without ELMo", none, len(given)),
            ):
                seconds = timed(partial(in_calls, predictor, given, at_once))
                found.setdefault(variant, []).append(len(given) / seconds)
        slowest = statistics.median(found[PEER])
        print(f"\n{name}, {'pairs' if name == 'snli' else 'sentences'}/s")
        for variant, values in found.items():
            middle = statistics.median(values)
            rounds = " ".join(f"{value:.0f}" for value in values)
            print(f"| {variant} | {middle:.0f} | {rounds} | {middle / slowest:.1f} |")


if __name__ == "__main__":
    main()
