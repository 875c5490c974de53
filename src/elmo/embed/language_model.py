"""LAYERS ─▶ PREDICTIONS: the probability of each word of a sentence, and substitutes for it (paper, section 3.1).

`<S>` w1 … wn `</S>` ─▶ log p(w | words before it) and log p(w | words after it), n + 1 each: forward predicts the
words and `</S>`, backward the words and `<S>`. A word outside the vocabulary is predicted as `<UNK>`.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from operator import index
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from elmo.embed.runner import Runner
from elmo.embed.words import with_boundaries
from elmo.errors import ConfigError, WeightsError
from elmo.messages import counted
from elmo.model.device import without_autocast
from elmo.model.kernels.products import product
from elmo.model.packing import Packing
from elmo.text.vocabulary import SPECIAL, Vocabulary

LogProbabilities = npt.NDArray[np.float64]
Rows = Sequence[npt.NDArray[np.int64]]


@dataclass(frozen=True, eq=False)
class Scores:
    """Log-probabilities of a sentence, natural logarithms. For a model of one direction, backward values are None."""

    tokens: list[str]
    known: npt.NDArray[np.bool_]  # (T,) whether in the vocabulary; other tokens have the probability of `<UNK>`
    forward: LogProbabilities  # (T,) log p(token | tokens before it)
    forward_end: float  # log p(`</S>` | all tokens)
    backward: LogProbabilities | None  # (T,) log p(token | tokens after it)
    backward_end: float | None  # log p(`<S>` | all tokens)

    @property
    def forward_surprisal(self) -> LogProbabilities:
        """−log2 p of each token given those before it, in bits."""
        return _bits(self.forward)

    @property
    def backward_surprisal(self) -> LogProbabilities | None:
        """−log2 p of each token given those after it, in bits."""
        return None if self.backward is None else _bits(self.backward)

    @property
    def forward_total(self) -> float:
        """Log-probability of the sentence, read forward: of its tokens and `</S>`."""
        return float(self.forward.sum()) + self.forward_end

    @property
    def backward_total(self) -> float | None:
        """Log-probability of the sentence, read backward: of its tokens and `<S>`."""
        if self.backward is None or self.backward_end is None:
            return None
        return float(self.backward.sum()) + self.backward_end

    @property
    def forward_perplexity(self) -> float:
        """exp of the mean loss of the n + 1 forward predictions."""
        return perplexity(self.forward_total, len(self.tokens) + 1)

    @property
    def backward_perplexity(self) -> float | None:
        """exp of the mean loss of the n + 1 backward predictions."""
        return None if self.backward_total is None else perplexity(self.backward_total, len(self.tokens) + 1)

    @property
    def perplexity(self) -> float:
        """The mean of the forward and the backward perplexity, as in the paper and in `elmo perplexity`."""
        if self.backward_perplexity is None:
            return self.forward_perplexity
        return (self.forward_perplexity + self.backward_perplexity) / 2


class Substitute(NamedTuple):
    """A word that fits at a place in a sentence, and its probability."""

    word: str
    probability: float


@dataclass(frozen=True)
class SubstitutesByDirection:
    """The words that fit best at a place in a sentence: by both language models together, and by each alone.

    For a model of one direction, backward is None.
    """

    both: list[Substitute]  # of all words but `<S>`, `</S>` and `<UNK>`, as `Embedder.substitutes` returns them
    forward: list[Substitute]  # p(word | tokens before it), as in `Scores`
    backward: list[Substitute] | None  # p(word | tokens after it), as in `Scores`


def perplexity(log_probability: float, predictions: int) -> float:
    """Return exp of the mean loss."""
    return float(np.exp(-log_probability / predictions))


class LanguageModel:
    """Predicts words with a biLM's softmax and its vocabulary. The runner computes the layers."""

    def __init__(self, runner: Runner, vocabulary: Vocabulary | None) -> None:
        bilm = runner.module
        if bilm.softmax is None:
            raise WeightsError(
                "the model has no softmax, so it predicts no words; load(…, softmax=True) reads the one in a model "
                "folder. Published HDF5 files have none: `elmo finetune` trains one"
            )
        if vocabulary is None:
            raise WeightsError(
                "the model has a softmax but no vocabulary with its words; name the file with load(…, vocabulary=)"
            )
        if len(vocabulary) != bilm.config.n_softmax:
            raise WeightsError(
                f"the softmax has {bilm.config.n_softmax} words, the vocabulary {len(vocabulary)}; expected the same "
                f"number. Are they from one model?"
            )
        self.runner = runner
        self.bilm = bilm
        self.softmax = bilm.softmax
        self.vocabulary = vocabulary
        self.dim = bilm.config.lstm.projection_dim

    def score_all(self, sentences: Iterable[list[str]], state: str, batch_tokens: int) -> Iterator[Scores]:
        """Yield the scores of each sentence, in order, from the state "fresh" or "warm"."""
        start = partial(self.runner.before, state)
        return self.runner.independent(map(with_boundaries, sentences), self.scores, start, batch_tokens=batch_tokens)

    @torch.inference_mode()
    def scores(self, batch: list[list[str]], layers: list[Tensor], packing: Packing) -> list[Scores]:
        """Return the scores of a batch of sentences with boundaries, from their layers (N, 2D), packed."""
        top = layers[-1]
        rows = packing.of_sentences()
        ids = [self.vocabulary.ids(sentence) - 1 for sentence in batch]
        sides = [(top[:, : self.dim], [row[:-1] for row in rows], [words[1:] for words in ids])]
        if self.bilm.config.bidirectional:
            sides.append((top[:, self.dim :], [row[1:] for row in rows], [words[:-1] for words in ids]))
        ahead, *others = self.runner.each(lambda side: self._log_p(*side), sides)
        back = others[0] if others else [None] * len(batch)
        tokens = [sentence[1:-1] for sentence in batch]
        return [self._scored(*sentence) for sentence in zip(tokens, ahead, back, strict=True)]

    @torch.inference_mode()
    def substitutes(self, sentence: list[str], i: int, n: int) -> SubstitutesByDirection:
        """Return the n words that fit best at token i of a sentence, from a state of zeros, and their probabilities.

        The product of both directions contains a word's own frequency twice. By Bayes' rule it is divided out once; the
        frequency is estimated from the word's rank by Zipf's law, as training does to sample its negatives.
        """
        place = _place(i, len(sentence))
        if n < 1:
            raise ConfigError(f"n is {n}; expected the number of words to find, 1 or more")
        (top,), _ = self.runner.run([with_boundaries(sentence)], self.runner.before("fresh"), _top_layer)  # (T + 2, 2D)
        sides = [top[place, : self.dim]]  # forward, up to the token before it
        if self.bilm.config.bidirectional:
            sides.append(top[place + 2, self.dim :])  # backward, down to the token after it
        with without_autocast(top):
            scores = product(torch.stack(sides), self.bilm.softmax_weight(), self.softmax.bias).float()
        log_p = torch.log_softmax(scores, dim=1)  # (directions, V)
        rank = torch.arange(1, log_p.shape[1] + 1, device=log_p.device)
        together = log_p.sum(dim=0) - (len(sides) - 1) * torch.log(torch.log1p(1 / rank))
        together[self._special(log_p.device)] = -torch.inf
        forward, *others = (self._best(side.exp(), n) for side in log_p)
        return SubstitutesByDirection(
            both=self._best(torch.softmax(together, dim=0), n),
            forward=forward,
            backward=others[0] if others else None,
        )

    def _special(self, device: torch.device) -> Tensor:
        """Return the rows of the tokens that are no words."""
        return torch.from_numpy(self.vocabulary.ids(SPECIAL) - 1).to(device)

    def _best(self, probabilities: Tensor, n: int) -> list[Substitute]:
        """Return the n words of the highest probabilities (V,)."""
        words = probabilities.index_fill(0, self._special(probabilities.device), -1)
        best = torch.topk(words, min(n, len(words) - len(SPECIAL)))
        found = [self.vocabulary.words[row] for row in best.indices.tolist()]
        return [Substitute(*pair) for pair in zip(found, best.values.tolist(), strict=True)]

    def _log_p(self, hidden: Tensor, rows: Rows, targets: Rows) -> list[LogProbabilities]:
        """Return log p of each sentence's targets, given the output of one direction at those rows."""
        chosen, words = (torch.from_numpy(np.concatenate(parts)).to(hidden.device) for parts in (rows, targets))
        log_p: LogProbabilities = self.bilm.log_probabilities(hidden[chosen], words).double().cpu().numpy()
        return np.split(log_p, np.cumsum([len(part) for part in rows])[:-1])

    def _scored(self, tokens: list[str], ahead: LogProbabilities, back: LogProbabilities | None) -> Scores:
        return Scores(
            tokens=tokens,
            known=np.array([word in self.vocabulary for word in tokens], dtype=np.bool_),
            forward=ahead[:-1],
            forward_end=float(ahead[-1]),
            backward=None if back is None else back[1:],
            backward_end=None if back is None else float(back[0]),
        )


def _top_layer(batch: list[list[str]], layers: list[Tensor], packing: Packing) -> list[Tensor]:
    """Return the top layer of a batch of one sentence, whose packed order is its own."""
    return [layers[-1]]


def _bits(log_p: LogProbabilities) -> LogProbabilities:
    bits: LogProbabilities = -log_p / np.log(2)
    return bits


def _place(i: int, length: int) -> int:
    """Return the index of the token, counted from the front."""
    if not -length <= index(i) < length:
        allowed = f"expected {-length} to {length - 1}" if length else "so there is none to replace"
        raise ConfigError(f"i is {i}; the sentence has {counted(length, 'token')}, {allowed}")
    return index(i) % length
