"""TEXT ─▶ PERPLEXITY: the full softmax over every held-out token, in both directions (paper, section 3.4).

A sentence of n words has n + 1 predictions: its words and the boundary that ends it, as is usual for language models.
bilm-tf also counts the boundary that begins the next sentence, which is always predicted: `as_bilm_tf` includes it.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from elmo.model.bilm import BiLM
from elmo.model.lstm import State
from elmo.pretrain.corpus import BEGIN, Corpus, Rows, Shard, end_to_end, sentences_in
from elmo.pretrain.distributed import World
from elmo.text.vocabulary import UNKNOWN, Vocabulary

ROWS = 32  # of text, read in parallel; each starts from zeros, so the number is the same on every device
SENTENCES = 256  # read in parallel if each starts from zeros
STEPS = 64  # tokens of each row that are computed together
WORDS_AT_ONCE = 4096


@dataclass(frozen=True)
class Perplexity:
    """The perplexity of a model on a text: of each direction exp(mean loss)."""

    forward: float
    backward: float | None  # None for a model of one direction
    as_bilm_tf: float
    tokens: int  # predictions in each direction
    unknown: float  # the share of them that is not in the vocabulary

    @property
    def mean(self) -> float:
        """The mean of both directions, as in the paper. "Perplexity" alone always means this one."""
        return self.forward if self.backward is None else (self.forward + self.backward) / 2

    @property
    def geometric_mean(self) -> float:
        """The geometric mean of both directions: exp of the mean loss."""
        return self.forward if self.backward is None else math.sqrt(self.forward * self.backward)


@torch.inference_mode()
def perplexity(
    bilm: BiLM,
    vocabulary: Vocabulary,
    corpus: Corpus,
    shards: Sequence[Shard],
    *,
    tokens: int | None = None,
    carried: bool = True,
    world: World | None = None,
) -> Perplexity:
    """Compute the perplexity of a corpus's shards, or of about their first `tokens` tokens.

    The LSTM state is carried from sentence to sentence, as in training; or else each sentence starts from zeros.
    """
    world = world or World()
    device = next(bilm.lstms.parameters()).device
    targets = torch.from_numpy(corpus.targets(vocabulary)).long().to(device)
    unknown = int(vocabulary.ids([UNKNOWN])[0]) - 1
    sums = torch.zeros(bilm.config.directions, 2, 3, dtype=torch.float64, device=device)
    for text in _texts(corpus, shards, tokens):
        encode = _Encoded(bilm, corpus, text, targets)
        for rows in _rows_of(text, carried):
            if own := rows[world.rank :: world.size]:
                sums += _score(bilm, own, encode, targets, unknown)
    world.sum([sums])
    counted = sums[:, 0]  # log p, tokens, unknown
    each = torch.exp(-counted[:, 0] / counted[:, 1]).tolist()
    every = sums.sum(dim=1)
    return Perplexity(
        forward=each[0],
        backward=each[1] if len(each) > 1 else None,
        as_bilm_tf=float(torch.exp(-(every[:, 0] / every[:, 1]).mean())),
        tokens=int(counted[0, 1]),
        unknown=float(counted[0, 2] / counted[0, 1]),
    )


@dataclass(frozen=True)
class _Row:
    """Consecutive sentences, in the order in which each direction reads them."""

    directions: tuple[Rows, Rows]
    begins: npt.NDArray[np.bool_]  # where a sentence begins


def _texts(corpus: Corpus, shards: Sequence[Shard], tokens: int | None) -> Iterator[Rows]:
    """Yield the word rows of each shard, up to a number of tokens, cut at the end of a sentence."""
    left = tokens if tokens is not None else sum(len(shard) for shard in shards)
    for shard in shards:
        if left <= 0:
            return
        text = corpus.rows(shard)
        begins = np.append(sentences_in(text)[0], len(text))
        end = begins[np.searchsorted(begins, min(left, len(text)))]
        yield text[:end]
        left -= int(end)


def _rows_of(text: Rows, carried: bool) -> list[list[_Row]]:
    """Cut a text into rows; returns groups that are computed together, the longest row first in each."""
    begins = text == BEGIN
    starts, lengths = sentences_in(text)
    backward = end_to_end(text, starts, lengths, reverse=True)
    if carried:  # rows of complete sentences, of about equal length
        wanted = np.linspace(0, len(text), min(ROWS, len(starts)) + 1)[1:-1]
        cuts = np.unique(np.append(0, starts[np.searchsorted(starts, wanted, side="right") - 1]))
    else:
        cuts = starts
    rows = [
        _Row((text[cut], backward[cut]), begins[cut])
        for cut in (slice(a, b) for a, b in zip(cuts, np.append(cuts[1:], len(text)), strict=True))
    ]
    rows.sort(key=lambda row: -len(row.begins))
    return [rows] if carried else [rows[k : k + SENTENCES] for k in range(0, len(rows), SENTENCES)]


class _Encoded:
    """The token vectors of the distinct words of a text, computed once."""

    def __init__(self, bilm: BiLM, corpus: Corpus, text: Rows, targets: Tensor) -> None:
        words = np.unique(text)
        device = targets.device
        self._places = torch.zeros(len(corpus.words), dtype=torch.long, device=device)
        self._places[torch.from_numpy(words.astype(np.int64)).to(device)] = torch.arange(len(words), device=device)
        parts = []
        for some in np.split(words, range(WORDS_AT_ONCE, len(words), WORDS_AT_ONCE)):
            if bilm.config.char_cnn is None:
                ids = targets[torch.from_numpy(some.astype(np.int64)).to(device)] + 1
            else:
                characters = corpus.words.characters(some, bilm.config.char_cnn.max_characters_per_token)
                ids = torch.from_numpy(characters).to(device).long()
            parts.append(bilm.token_encoder(ids))
        self._vectors = torch.cat(parts)

    def __call__(self, words: Tensor) -> Tensor:
        """Look up the vectors (…, D) of rows of words.txt."""
        return self._vectors[self._places[words]]


def _score(bilm: BiLM, rows: list[_Row], encode: _Encoded, targets: Tensor, unknown: int) -> Tensor:
    """Sum log p, tokens and unknown tokens: (S, 2, 3), separately for counted tokens and for certain boundaries."""
    directions, device = bilm.config.directions, targets.device
    lengths = np.array([len(row.begins) for row in rows])
    words = np.zeros((directions, len(rows), lengths[0]), dtype=np.int64)
    begins = np.zeros((len(rows), lengths[0]), dtype=np.bool_)
    for k, row in enumerate(rows):
        begins[k, : lengths[k]] = row.begins
        for direction in range(directions):
            words[direction, k, : lengths[k]] = row.directions[direction]
    text, certain = torch.from_numpy(words).to(device), torch.from_numpy(begins).to(device)
    state = bilm.zero_state(len(rows))
    sums = torch.zeros(directions, 2, 3, dtype=torch.float64, device=device)
    for first in range(0, int(lengths[0]) - 1, STEPS):
        # At each step the rows are active that have a next token.
        active = [int((lengths > t + 1).sum()) for t in range(first, min(first + STEPS, int(lengths[0]) - 1))]
        read = torch.cat([text[:, :n, first + t] for t, n in enumerate(active)], dim=1)
        predicted = targets[torch.cat([text[:, :n, first + t + 1] for t, n in enumerate(active)], dim=1)]
        boundary = torch.cat([certain[:n, first + t + 1] for t, n in enumerate(active)])
        before = State(state.h[:, :, : active[0]], state.c[:, :, : active[0]])
        layers, state = bilm.run_lstms(encode(read), active, before)
        for direction, (hidden, target) in enumerate(zip(layers[-1], predicted, strict=True)):
            log_p = bilm.log_probabilities(hidden, target).double()
            every = torch.stack([log_p, torch.ones_like(log_p), (target == unknown).double()])
            for kind, chosen in enumerate((~boundary, boundary)):
                sums[direction, kind] += every[:, chosen].sum(dim=1)
    return sums
