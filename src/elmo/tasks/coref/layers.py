"""THE NETWORKS OF LEE ET AL. (2017): scores of spans and of pairs of spans, in blocks, so that memory is bounded.

Letters: T tokens; W the longest width of a span; M spans that are kept; D the size of a span's vector; H hidden units;
F the size of a feature's vector; R rows and C columns of a block of pairs.

The vector of a span is g = [first token; last token; head; width], that of a pair is [gᵢ; gⱼ; gᵢ ∘ gⱼ; features]. They
are not computed for all spans and pairs. The first layer of a network is linear: a sum of products, one for each part
of its input. The product with a token or a span is computed once, and then added wherever that token or span occurs.
Only gᵢ ∘ gⱼ depends on the pair. Its product with the weights v of a unit is (gᵢ ∘ v) · gⱼ: a matrix product for all
pairs of a block.
"""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

TOKENS_PER_BLOCK = 2048
ROWS_PER_BLOCK = 128
DISTANCES = (1, 2, 3, 4, 5, 8, 16, 32, 64)  # the shortest distance of each class; the last class is open


class Feedforward(nn.Module):
    """Two hidden layers with ReLU and dropout, and one output: (…, input_dim) ─▶ (…,)."""

    def __init__(self, input_dim: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.first, self.second, self.last = linear(input_dim, hidden), linear(hidden, hidden), linear(hidden, 1)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Compute the output of complete inputs."""
        return self.after_first(self.first(x))

    def after_first(self, summed: Tensor) -> Tensor:
        """Compute the output from what the first layer computed, (…, hidden)."""
        hidden = self.dropout(torch.relu(summed))
        output: Tensor = self.last(self.dropout(torch.relu(self.second(hidden))))
        return output.squeeze(-1)

    def weights_of(self, *sizes: int) -> tuple[Tensor, ...]:
        """Divide the weights of the first layer by the parts of its input: (hidden, size) for each size."""
        return torch.split(self.first.weight, list(sizes), dim=1)


class MentionScorer(nn.Module):
    """The score of every span of at most W tokens, and the vectors of some."""

    def __init__(
        self, token_dim: int, input_dim: int, *, width: int, hidden: int, feature: int, dropout: float
    ) -> None:
        super().__init__()
        self.sizes = token_dim, token_dim, input_dim, feature
        self.output_dim = sum(self.sizes)  # D
        self.max_width = width
        self.heads = Feedforward(token_dim, hidden, dropout)  # how much a token is the head of a span
        self.widths = features(width, feature)
        self.scores = Feedforward(self.output_dim, hidden, dropout)
        self.dropout = nn.Dropout(dropout)

    def forward(self, tokens: Tensor, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Score all spans: tokens (T, ·) in context, their inputs x (T, ·) ─▶ scores (T, W).

        Also returned are what `vectors` needs: how much each token is a head, (T,), and the widths, (T, W, F).
        """
        heads = self.heads(tokens)
        widths = self.dropout(self.widths.weight.expand(len(tokens), -1, -1))
        of_first, of_last, of_head, of_width = self.scores.weights_of(*self.sizes)
        first = nn.functional.linear(tokens, of_first, self.scores.first.bias)  # (T, H)
        last, inside = (self._padded(part) for part in (tokens @ of_last.T, x @ of_head.T))
        padded_heads = self._padded(heads)
        scores = []
        for a in range(0, len(tokens), TOKENS_PER_BLOCK):
            b = min(a + TOKENS_PER_BLOCK, len(tokens))
            some = slice(a, b + self.max_width - 1)
            head = self._attention(self._windows(padded_heads[some])) @ self._windows(inside[some]).transpose(1, 2)
            summed = first[a:b, None] + self._windows(last[some]).transpose(1, 2) + head + widths[a:b] @ of_width.T
            scores.append(self.scores.after_first(summed))
        return torch.cat(scores), heads, widths

    def vectors(self, places: Tensor, tokens: Tensor, x: Tensor, heads: Tensor, widths: Tensor) -> Tensor:
        """Return the vectors of the spans at some places of the grid, (M, D)."""
        first, width = places // self.max_width, places % self.max_width
        steps = torch.arange(self.max_width, device=places.device)
        inside = (first[:, None] + steps).clamp(max=len(tokens) - 1).flatten()  # the W tokens from the first one on
        weights = heads.index_select(0, inside).view(-1, self.max_width)
        weights = torch.softmax(weights.masked_fill(steps > width[:, None], -torch.inf), dim=1)
        read = x.index_select(0, inside).view(len(places), self.max_width, -1)
        head = (weights[:, None] @ read).squeeze(1)
        ends = tokens.index_select(0, first), tokens.index_select(0, first + width)
        return torch.cat([*ends, head, widths.flatten(0, 1).index_select(0, places)], dim=1)

    def _attention(self, heads: Tensor) -> Tensor:
        """The weights of the tokens of each span, a softmax: heads (T, W) of the tokens from t on ─▶ (T, W, W)."""
        beyond = torch.ones(self.max_width, self.max_width, dtype=torch.bool, device=heads.device).triu(1)
        return torch.softmax(heads[:, None].masked_fill(beyond, -torch.inf), dim=-1)

    def _padded(self, x: Tensor) -> Tensor:
        """Add rows of zeros for the spans that would end behind the last token."""
        return torch.cat([x, x.new_zeros(self.max_width - 1, *x.shape[1:])])

    def _windows(self, x: Tensor) -> Tensor:
        """The rows t, …, t + W − 1 of (T + W − 1, ·), without a copy: (T, ·, W)."""
        return x.unfold(0, self.max_width, 1)


class PairScorer(nn.Module):
    """The score of every span with each of the spans before it, at most `max_antecedents` back."""

    _shortest: Tensor

    def __init__(
        self, span_dim: int, n_genres: int, *, max_antecedents: int, hidden: int, feature: int, dropout: float
    ) -> None:
        super().__init__()
        self.sizes = span_dim, span_dim, span_dim, 3 * feature
        self.max_antecedents = max_antecedents
        self.scores = Feedforward(sum(self.sizes), hidden, dropout)
        self.distances = features(len(DISTANCES), feature)
        self.speakers = features(2, feature)  # different, the same
        self.genres = features(n_genres, feature)
        self.dropout = nn.Dropout(dropout)
        self.register_buffer("_shortest", torch.tensor(DISTANCES), persistent=False)

    def blocks(self, n_spans: int) -> Iterator[tuple[slice, slice]]:
        """Divide the spans into rows, with the columns of all their antecedents."""
        for a in range(0, n_spans, ROWS_PER_BLOCK):
            b = min(a + ROWS_PER_BLOCK, n_spans)
            yield slice(a, b), slice(max(0, a - self.max_antecedents), b)

    def forward(self, rows: slice, columns: slice, g: Tensor, mentions: Tensor, speakers: Tensor, genre: int) -> Tensor:
        """Score a block, (R, 1 + C): no antecedent, which is 0; then each column, −inf if it is no antecedent.

        g (M, D) are the vectors of all spans, `mentions` (M,) their scores, `speakers` (M,) numbers.
        """
        of_own, of_other, of_both, of_features = self.scores.weights_of(*self.sizes)
        own, other = g[rows], g[columns]
        both = (own[:, None] * of_both).flatten(0, 1) @ other.T  # (R · H, C)
        pairs = both.view(len(own), -1, len(other)).transpose(1, 2)
        number = torch.arange(len(g), device=g.device)
        distance = number[rows, None] - number[columns]  # (R, C)
        same = speakers[rows, None] == speakers[columns]
        summed = (
            nn.functional.linear(own, of_own, self.scores.first.bias)[:, None]
            + other @ of_other.T
            + pairs
            + self._features(distance, same, genre) @ of_features.T
        )
        scores = self.scores.after_first(summed) + mentions[rows, None] + mentions[columns]
        scores = scores.masked_fill((distance < 1) | (distance > self.max_antecedents), -torch.inf)
        return torch.cat([scores.new_zeros(len(own), 1), scores], dim=1)

    def _features(self, distance: Tensor, same_speaker: Tensor, genre: int) -> Tensor:
        """The features of pairs, (R, C, 3F). Products with 0 and 1 instead of lookups: their gradient is a product."""
        reached = (distance[..., None] >= self._shortest).to(self.distances.weight.dtype)  # 1 up to the class of each
        classes = reached - nn.functional.pad(reached[..., 1:], (0, 1))
        by_speaker = torch.stack([~same_speaker, same_speaker], dim=-1).to(classes.dtype)
        of_genre = self.genres.weight[genre].expand(*distance.shape, -1)
        each = classes @ self.distances.weight, by_speaker @ self.speakers.weight, of_genre
        dropped: Tensor = self.dropout(torch.cat(each, dim=-1))
        return dropped


def linear(input_dim: int, output_dim: int) -> nn.Linear:
    """Return a linear layer with Xavier's initial weights."""
    layer = nn.Linear(input_dim, output_dim)
    nn.init.xavier_uniform_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


def features(count: int, dim: int) -> nn.Embedding:
    """Return the vectors of a feature with `count` values; they are small at first, as in Lee et al.'s code."""
    table = nn.Embedding(count, dim)
    nn.init.normal_(table.weight, std=0.02)
    return table
