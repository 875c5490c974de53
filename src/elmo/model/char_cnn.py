"""CHARACTER IDS ─▶ TOKEN VECTORS (paper, section 3.4): (N, C) ─▶ (N, D), context independent.

characters ─▶ convolutions of several widths ─▶ max over positions ─▶ activation ─▶ highways ─▶ linear to D
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from elmo.errors import ConfigError
from elmo.model.checks import LARGEST, MOST_LAYERS, check_integer
from elmo.model.kernels import MAX_WINDOW, triton_computes

PADDING_ID = 261  # the padding *character*, learned and part of the convolutions; 0 means "no token"
GROUP = 64  # words convolved together: their (words, positions, filters) fit into a CPU's cache

MOST_CHARACTERS = 1000  # of a token: every token takes the memory of this many

ACTIVATIONS = {"relu": torch.relu, "tanh": torch.tanh}


@dataclass(frozen=True)
class CharCNNConfig:
    """Sizes of the token encoder. Names are those of options.json, defaults those of the published models."""

    activation: str = "relu"
    embedding_dim: int = 16
    filters: tuple[tuple[int, int], ...] = ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024))
    n_highway: int = 2
    max_characters_per_token: int = 50
    n_characters: int = 261  # rows of the embedding, without "no token"

    def __post_init__(self) -> None:
        if self.activation not in ACTIVATIONS:
            raise ConfigError(f"char_cnn.activation is {self.activation!r}; expected one of {', '.join(ACTIVATIONS)}")
        for name, least, most in (
            ("embedding_dim", 1, LARGEST),
            ("n_highway", 0, MOST_LAYERS),
            ("max_characters_per_token", 3, MOST_CHARACTERS),
            ("n_characters", 1, LARGEST),
        ):
            check_integer(f"char_cnn.{name}", getattr(self, name), least, most)
        if not self.filters:
            raise ConfigError("char_cnn.filters is empty; expected [width, count] pairs")
        check_integer("the number of char_cnn.filters", len(self.filters), maximum=MOST_LAYERS)
        for width, count in self.filters:
            check_integer("a width of char_cnn.filters", width)
            check_integer("a count of char_cnn.filters", count)
        if self.widest > self.max_characters_per_token:
            raise ConfigError(
                f"char_cnn.max_characters_per_token is {self.max_characters_per_token}; "
                f"expected at least the width of the widest filter, {self.widest}"
            )

    @property
    def n_filters(self) -> int:
        """F, the number of filters of all widths."""
        return sum(count for _, count in self.filters)

    @property
    def widest(self) -> int:
        """Width of the widest filter."""
        return max(width for width, _ in self.filters)


class Highway(nn.Module):
    """`g·relu(W_t x + b_t) + (1 − g)·x` with `g = sigmoid(W_c x + b_c)`: near the identity at first."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.reference = False  # compute with PyTorch operations instead of a kernel
        # Carry and transform are side by side, so that one product computes both.
        self.weight = nn.Parameter(torch.empty(dim, 2 * dim))
        self.bias = nn.Parameter(torch.empty(2 * dim))
        if not self.weight.is_meta:
            self.initialize()

    @torch.no_grad()
    def initialize(self) -> None:
        """Set the original's initial values. The negative carry bias keeps the gate nearly closed."""
        dim = len(self.weight)
        self.weight.normal_(0.0, dim**-0.5)
        self.bias[:dim] = -2.0
        self.bias[dim:] = 0.0

    def forward(self, x: Tensor) -> Tensor:
        """(N, F) ─▶ (N, F)."""
        if triton_computes(x) and not self.reference:
            from elmo.model.kernels.highway_gpu import highway_gpu

            return highway_gpu(x, self.weight, self.bias)
        carry, transform = torch.addmm(self.bias, x, self.weight).to(x.dtype).chunk(2, dim=1)
        return torch.lerp(x, torch.relu(transform), torch.sigmoid(carry))


class CharCNN(nn.Module):
    """The token encoder: computes the vector of a word from its characters. `padding_id` is that of the alphabet."""

    def __init__(self, config: CharCNNConfig, dim: int, padding_id: int = PADDING_ID) -> None:
        super().__init__()
        self.config = config
        self.padding_id = padding_id
        self.reference = False  # convolve with PyTorch operations instead of a kernel
        n_filters, embedding_dim = config.n_filters, config.embedding_dim
        self.embedding = nn.Parameter(torch.empty(config.n_characters + 1, embedding_dim))  # row 0: no token
        self.filters = nn.ParameterList(torch.empty(width * embedding_dim, count) for width, count in config.filters)
        self.biases = nn.ParameterList(torch.empty(count) for _, count in config.filters)
        self.highways = nn.ModuleList(Highway(n_filters) for _ in range(config.n_highway))
        self.projection: nn.Parameter | None = None
        self.projection_bias: nn.Parameter | None = None
        if n_filters != dim:
            self.projection = nn.Parameter(torch.empty(n_filters, dim))
            self.projection_bias = nn.Parameter(torch.empty(dim))
        if not self.embedding.is_meta:
            self.initialize()

    @torch.no_grad()
    def initialize(self) -> None:
        """Set the original's initial values."""
        self.embedding.uniform_(-1.0, 1.0)
        self.embedding[0] = 0.0
        for weight, bias in zip(self.filters, self.biases, strict=True):
            if self.config.activation == "relu":
                weight.uniform_(-0.05, 0.05)
            else:
                weight.normal_(0.0, len(weight) ** -0.5)
            bias.zero_()
        if self.projection is not None and self.projection_bias is not None:
            self.projection.normal_(0.0, len(self.projection) ** -0.5)
            self.projection_bias.zero_()

    def forward(self, ids: Tensor) -> Tensor:
        """Character ids (N, C) ─▶ token vectors (N, D)."""
        x = self.convolve(ids)
        for highway in self.highways:
            x = highway(x)
        if self.projection is not None and self.projection_bias is not None:
            x = torch.addmm(self.projection_bias, x, self.projection)
        return x

    def convolve(self, ids: Tensor) -> Tensor:
        """Convolve and pool: (N, C) ─▶ (N, F). Words of similar length are computed together, without their padding.

        All windows of padding only give the same value, so that after the longest word of a group as many positions
        as the widest filter has are enough.
        """
        if not len(ids):
            return self.embedding.new_empty(0, self.config.n_filters)
        small = self.config.widest * self.config.embedding_dim <= MAX_WINDOW
        if triton_computes(self.embedding) and not self.reference and small:
            from elmo.model.kernels.char_cnn_gpu import convolve_gpu

            relu = self.config.activation == "relu"
            return convolve_gpu(ids, self.padding_id, self.embedding, [*self.filters], [*self.biases], relu)
        lengths = (ids != self.padding_id).sum(dim=1)
        order = torch.argsort(lengths)
        groups = []
        for group in torch.split(order, GROUP if ids.device.type == "cpu" else max(len(order) // 4, GROUP)):
            longest = int(lengths[group[-1]])
            groups.append(self._convolve_group(ids[group, : longest + self.config.widest]))
        return torch.cat(groups)[torch.argsort(order)]

    def _convolve_group(self, ids: Tensor) -> Tensor:
        characters = nn.functional.embedding(ids, self.embedding)  # (N, C', E)
        n, length, dim = characters.shape
        outputs = []
        for (width, count), weight, bias in zip(self.config.filters, self.filters, self.biases, strict=True):
            places = length - width + 1
            # Every window of `width` characters as one row: (N·places, width·E)
            window = torch.cat([characters[:, k : k + places] for k in range(width)], dim=2)
            scores = (window.reshape(n * places, width * dim) @ weight).view(n, places, count)
            # max, not amax: where padding makes positions equal, amax would share the gradient among them.
            outputs.append(scores.max(dim=1).values + bias)
        return ACTIVATIONS[self.config.activation](torch.cat(outputs, dim=1))
