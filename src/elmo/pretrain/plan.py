"""THE PLAN OF A RUN, before its first step: parameters, number of steps, and whether it fits into memory."""

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

# Floats per token or word, as multiples of a layer's width: counted in the kernels, and compared with measured peaks
# (benchmarks/RESULTS.md, tests/pretrain/test_plan.py).
CELLS_KEPT = 6  # × H, in every layer until its gradient: four gates, cell, hidden
CELLS_BACKWARD = 7  # × H, in one layer at a time: the gates' gradients and their copies; a GPU overwrites the gates
OUTPUTS_KEPT = 12  # × D: what a GPU keeps of the top layer in float32, for dropout and softmax
GPU_OVERHEAD = 1 << 30  # bytes of libraries, graphs of other sizes and the allocator
CPU_OVERHEAD = 160 << 20  # bytes of libraries and the allocator
CELLS_REFERENCE = 22  # × H, in every layer, of the reference implementation
FILTERS_KEPT = 8  # × F, and 4 more for every highway
GIB = 1 << 30
OPTIMIZER_COPIES = {"adagrad": 1, "adam": 2, "adamw": 2}


@dataclass(frozen=True)
class Plan:
    """Sizes, steps and memory, computed before the model exists."""

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
        """Plan a run of a config with this architecture and text."""
        assert architecture.n_softmax is not None
        with torch.device("meta"):  # shapes without values
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
        """Refuse a run that will not fit into the available memory."""
        if self.bytes_available is not None and self.bytes_needed > self.bytes_available:
            raise ConfigError(
                f"the run needs about {self.bytes_needed / GIB:.1f} GiB of memory, and {self.device} has "
                f"{self.bytes_available / GIB:.1f} GiB available. Raise batch.accumulate, lower batch.size, or choose "
                f"a smaller preset; --ignore-memory trains anyway"
            )


def _available(device: torch.device) -> int | None:
    """Return the bytes available to this process: the processes of one machine share its main memory."""
    found = memory.available(device)
    if found is None or device.type != "cpu":
        return found
    return found // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


def softmax_parameters(bilm: BiLM) -> int:
    """Return the number of parameters that belong to the softmax alone."""
    return sum(p.numel() for p in bilm.softmax.parameters()) if bilm.softmax is not None else 0


def bytes_needed(config: PretrainConfig, bilm: BiLM, device: str, processes: int = 1) -> int:
    """Estimate the memory of one process: weights, gradients, optimizer state, activations of one part of a batch."""
    tables = softmax_parameters(bilm)
    weights = sum(p.numel() for p in bilm.parameters()) - tables
    copies = 2 + OPTIMIZER_COPIES[config.optimizer.name]
    sampled = bilm.config.n_softmax is not None and config.sampled(bilm.config.n_softmax) is not None
    lstm, cnn = bilm.config.lstm, bilm.config.char_cnn
    tokens = config.batch.size * config.batch.unroll // (config.batch.accumulate * processes) * bilm.config.directions
    reference, gpu = config.kernels == "reference", device == "cuda"
    low = 2 if gpu and config.precision == "bfloat16" else 4  # bytes of each input of a product
    each = 4 * CELLS_REFERENCE if reference else 4 + low * (CELLS_KEPT - 1) if gpu else 4 * CELLS_KEPT
    kept = tokens * lstm.n_layers * (each * lstm.dim + 6 * low * lstm.projection_dim)
    if not gpu:
        kept += CPU_OVERHEAD
    else:
        kept += 4 * tokens * OUTPUTS_KEPT * lstm.projection_dim + GPU_OVERHEAD
        copies += 2  # graphs of other sizes have gradients of their own
    if cnn is not None:
        words = min(tokens, int(22.4 * tokens**0.584))  # distinct words, measured on English (docs/scaling.md)
        kept += low * words * cnn.n_filters * (FILTERS_KEPT + 4 * cnn.n_highway)
    columns = (config.negatives if sampled else bilm.config.n_softmax) or 0
    scores = min(SCORES_AT_ONCE.get(device, SCORES_AT_ONCE["cpu"]), tokens // bilm.config.directions * columns)
    most = low * scores if gpu else max(4 * tokens * CELLS_BACKWARD * lstm.dim, 12 * scores)  # not at the same time
    in_tables = 1 + OPTIMIZER_COPIES[config.optimizer.name] + (not sampled)  # sampling has no dense gradient
    return 4 * (weights * copies + tables * in_tables) + kept + most
