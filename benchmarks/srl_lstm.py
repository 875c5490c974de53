"""Tokens/s of the highway LSTM for semantic roles, forward and backward, beside torch.nn.LSTM (on a GPU, cuDNN's).

    python benchmarks/srl_lstm.py [--device cuda] [--rounds 7] [--layers 8] [--hidden 300] [--input 1224] [--batch 80]

Batches as in training: 80 propositions of about equal length, without padding. nn.LSTM has as many layers and units, in
one direction. It has neither highways nor dropout within a layer, and computes less: of each token four blocks of units
where the highway LSTM has six, of each state four where that has five. The rounds alternate; the median is reported.
"""

import argparse
import copy
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from elmo.tasks.layers.encoder import Packed
from elmo.tasks.layers.highway_lstm import HighwayLSTM

LENGTHS = (8, 16, 25, 40, 80)  # the mean of the propositions of propbank-ewt is 25


def batch(length: int, size: int, input_dim: int, device: str) -> tuple[Tensor, Packed, int]:
    """Random vectors of `size` sequences whose lengths differ by up to a tenth from `length`."""
    lengths = np.random.default_rng(length).integers(round(0.9 * length), round(1.1 * length) + 1, size)
    x = torch.randn(size, int(lengths.max()), input_dim, device=device)
    return x, Packed.of(lengths.tolist()).to(torch.device(device)), int(lengths.sum())


def plain(lstm: nn.LSTM) -> Callable[[Tensor, Packed], Tensor]:
    def run(x: Tensor, packed: Packed) -> Tensor:
        tokens = x.flatten(0, 1).index_select(0, packed.places)
        read: PackedSequence = lstm(PackedSequence(tokens, packed.active))[0]
        return read.data

    return run


def seconds(model: nn.Module, run: Callable[[Tensor, Packed], Tensor], x: Tensor, packed: Packed) -> float:
    """The time of a forward and a backward pass."""
    if x.is_cuda:
        torch.cuda.synchronize()
    began = time.perf_counter()
    run(x, packed).sum().backward()
    if x.is_cuda:
        torch.cuda.synchronize()
    taken = time.perf_counter() - began
    model.zero_grad(set_to_none=True)
    return taken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    for name, value in (("rounds", 7), ("layers", 8), ("hidden", 300), ("input", 1224), ("batch", 80)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS)
    given = parser.parse_args()
    torch.manual_seed(0)
    highway = HighwayLSTM(given.input, given.hidden, given.layers, dropout=0.1).to(given.device)
    unrecorded = copy.deepcopy(highway)
    unrecorded.recorded = False
    lstm = nn.LSTM(given.input, given.hidden, given.layers).to(given.device)
    threads = f", {torch.get_num_threads()} threads" if given.device == "cpu" else ""
    print(f"{given.device}{threads}: {given.layers} x {given.hidden}, batch {given.batch}, tokens/s, median")
    for length in given.lengths:
        x, packed, tokens = batch(length, given.batch, given.input, given.device)
        every = {"highway": (highway, highway), "nn.LSTM": (lstm, plain(lstm))}
        if given.device != "cpu":
            every["highway without graphs"] = (unrecorded, unrecorded)
        times: dict[str, list[float]] = {name: [] for name in every}
        for number in range(given.rounds + 1):
            for name, (model, run) in every.items():
                taken = seconds(model, run, x, packed)
                if number:  # the first compiles, records and allocates
                    times[name].append(taken)
        medians = {name: tokens / statistics.median(some) for name, some in times.items()}
        shown = ", ".join(f"{name} {speed:,.0f}" for name, speed in medians.items())
        print(f"length {length}: {shown}, ratio {medians['highway'] / medians['nn.LSTM']:.2f}")


if __name__ == "__main__":
    main()
