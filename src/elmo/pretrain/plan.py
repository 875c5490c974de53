"""THE PLAN OF A RUN, before its first step: its size, its length, and whether it will fit into memory."""

import math
import os
from dataclasses import dataclass

import torch

from elmo.errors import ConfigError
from elmo.model.bilm import BiLM, BiLMConfig
from elmo.model.softmax import SCORES_AT_ONCE
from elmo.pretrain.config import PretrainConfig
from elmo.pretrain.streams import Streams
from elmo.training import memory

# Numbers per token or word, as multiples of a layer's width: counted in the kernels, and compared with what was
# measured (benchmarks/RESULTS.md, tests/pretrain/test_plan.py).
CELLS_KEPT = 6  # of H, in every layer until its gradient: four gates, cell, hidden
CELLS_BACKWARD = 7  # of H, in one layer at a time: the gates' gradients and their copies; a GPU has them in their place
OUTPUTS_KEPT = 12  # of D: what a GPU keeps of the top layer in float32, for dropout and softmax
GPU_OWN = 1 << 30  # bytes that libraries, graphs of other sizes and the allocator use of a GPU besides
CPU_OWN = 160 << 20  # bytes that libraries and the allocator use of main memory besides
CELLS_REFERENCE = 22  # of H, that PyTorch keeps by itself in the reference path
FILTERS_KEPT = 8  # of F, and 4 more for every highway
GIB = 1 << 30
OPTIMIZER_COPIES = {"adagrad": 1, "adam": 2, "adamw": 2}


@dataclass(frozen=True)
class Plan:
    """Sizes, steps and memory; computed before the model exists."""

    parameters: int
    softmax_parameters: int
    tokens_per_step: int
    steps: int
    steps_per_epoch: float
    negatives: int | None
    device: str
    bytes_needed: int
    bytes_available: int | None

    @classmethod
    def of(
        cls,
        config: PretrainConfig,
        architecture: BiLMConfig,
        streams: Streams,
        device: torch.device,
        processes: int = 1,
    ) -> "Plan":
        """The plan of a recipe for this architecture and text."""
        assert architecture.n_softmax is not None
        with torch.device("meta"):  # its sizes, without its numbers
            bilm = BiLM(architecture)
        return cls(
            parameters=bilm.n_parameters(),
            softmax_parameters=softmax_parameters(bilm),
            tokens_per_step=config.batch.size * config.batch.unroll,
            steps=config.steps or math.ceil(config.epochs * streams.windows_per_epoch),
            steps_per_epoch=streams.windows_per_epoch,
            negatives=config.sampled(architecture.n_softmax),
            device=str(device),
            bytes_needed=bytes_needed(config, bilm, device.type, processes),
            bytes_available=_available(device),
        )

    def refuse_too_large(self) -> None:
        """Refuse a run that will not fit into the memory that is available."""
        if self.bytes_available is not None and self.bytes_needed > self.bytes_available:
            raise ConfigError(
                f"the run needs about {self.bytes_needed / GIB:.1f} GiB of memory, and {self.device} has "
                f"{self.bytes_available / GIB:.1f} GiB available. Raise batch.accumulate, lower batch.size, or choose "
                f"a smaller preset; --ignore-memory trains anyway"
            )


def _available(device: torch.device) -> int | None:
    """Bytes available to this process: the processes of one machine share its main memory."""
    found = memory.available(device)
    if found is None or device.type != "cpu":
        return found
    return found // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


def softmax_parameters(bilm: BiLM) -> int:
    """The number of parameters that only the softmax has."""
    return sum(p.numel() for p in bilm.softmax.parameters()) if bilm.softmax is not None else 0


def bytes_needed(config: PretrainConfig, bilm: BiLM, device: str, processes: int = 1) -> int:
    """An estimate for one process: weights, gradients, optimizer state, and what one part of a batch keeps."""
    tables = softmax_parameters(bilm)
    weights = sum(p.numel() for p in bilm.parameters()) - tables
    copies = 2 + OPTIMIZER_COPIES[config.optimizer.name]
    sampled = bilm.config.n_softmax is not None and config.sampled(bilm.config.n_softmax) is not None
    lstm, cnn = bilm.config.lstm, bilm.config.char_cnn
    tokens = config.batch.size * config.batch.unroll // (config.batch.accumulate * processes) * bilm.config.directions
    reference, gpu = config.kernels == "reference", device == "cuda"
    low = 2 if gpu and config.precision == "bfloat16" else 4  # bytes of what enters a product
    each = 4 * CELLS_REFERENCE if reference else 4 + low * (CELLS_KEPT - 1) if gpu else 4 * CELLS_KEPT
    kept = tokens * lstm.n_layers * (each * lstm.dim + 6 * low * lstm.projection_dim)
    if not gpu:
        kept += CPU_OWN
    else:
        kept += 4 * tokens * OUTPUTS_KEPT * lstm.projection_dim + GPU_OWN
        copies += 2  # graphs of other sizes have gradients of their own
    if cnn is not None:
        words = min(tokens, int(22.4 * tokens**0.584))  # distinct ones: measured on English (docs/scaling.md)
        kept += low * words * cnn.n_filters * (FILTERS_KEPT + 4 * cnn.n_highway)
    columns = (config.negatives if sampled else bilm.config.n_softmax) or 0
    scores = min(SCORES_AT_ONCE.get(device, SCORES_AT_ONCE["cpu"]), tokens // bilm.config.directions * columns)
    most = low * scores if gpu else max(4 * tokens * CELLS_BACKWARD * lstm.dim, 12 * scores)  # not at the same time
    in_tables = 1 + OPTIMIZER_COPIES[config.optimizer.name] + (not sampled)  # no dense gradient if it is sampled
    return 4 * (weights * copies + tables * in_tables) + kept + most
