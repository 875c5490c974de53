"""A training step on a CPU, with the original recipe at the small size, compared with the reference implementation.

    python benchmarks/pretrain_cpu.py CORPUS [--steps 8] [--rounds 3] [--threads 2]

CORPUS has a vocabulary of 55,000 words (`elmo prepare … --vocab-size 55000`). Batch 128, windows of 20, 8,192 negatives
in each direction, dropout, clipping, Adagrad: bilm-tf's step, which takes 8.7 s (294 tokens/s) on two idle cores of the
machine that RESULTS.md names. Rounds alternate, so that other load affects all rows; the best round of each counts.

- ours      the step of `elmo pretrain`
- reference the same weights and numbers without our kernels: PyTorch records the LSTMs' gradient step by step, and the
            character CNN runs on every position instead of every distinct word
- products  the matrix products of our step alone, each measured by itself: a bound for any implementation
"""

import argparse
import resource
import time
from contextlib import nullcontext
from pathlib import Path

import torch

from elmo.model.bilm import BiLM
from elmo.model.kernels.products import onednn_products
from elmo.pretrain.batch import Batch, Batches
from elmo.pretrain.config import PretrainConfig
from elmo.pretrain.corpus import Corpus
from elmo.pretrain.distributed import World
from elmo.pretrain.optimizer import Optimizer
from elmo.pretrain.step import accumulate, clip, tables_of
from elmo.pretrain.streams import Streams


class Step:
    """Training steps with our kernels, or with the reference implementation."""

    def __init__(self, corpus: Corpus, reference: bool) -> None:
        torch.manual_seed(0)
        self.reference = reference
        self.config = PretrainConfig.load("small")
        self.bilm = BiLM(self.config.model.for_vocabulary(len(corpus.vocabulary)))
        for lstm in self.bilm.lstms:
            lstm.reference = reference
        tables = tables_of(self.bilm.config, sampled=True)
        self.optimizer = Optimizer(self.config.optimizer, self.bilm.named_parameters(), tables)
        batch = self.config.batch
        self.state = self.bilm.zero_state(batch.size)
        streams = Streams(corpus, batch.size, batch.unroll)
        self.batches = Batches(corpus, streams, corpus.vocabulary, max_characters=50, negatives=self.config.negatives)
        self.number = 0

    def __call__(self) -> Batch:
        (batch,) = self.batches.of_step(self.number)
        self.number += 1
        if self.reference:
            every = torch.arange(batch.inputs.numel()).view_as(batch.inputs)
            batch = Batch(
                batch.words[batch.inputs.reshape(-1)], every,
                batch.targets, batch.predicted, batch.negatives, batch.log_q,
            )  # fmt: skip
        with nullcontext() if self.reference else onednn_products(torch.device("cpu")):
            _, self.state = accumulate(self.bilm, [batch], self.state, dropout=0.1, scale=20.0, world=World())
        clip(self.optimizer.parameters, 10.0)
        self.optimizer.step(0.2)
        return batch


def products(bilm: BiLM, batch: Batch) -> float:
    """Return the seconds of a step's matrix products, forward and backward (each product has two in its gradient)."""
    lstm, cnn = bilm.config.lstm, bilm.config.char_cnn
    assert cnn is not None and batch.negatives is not None
    h, d, tokens, words = lstm.dim, lstm.projection_dim, batch.inputs.shape[1], len(batch.words)
    rows, steps = 128, tokens // 128
    lengths = (batch.words != 261).sum(dim=1).float()
    places = float(lengths.mean()) + cnn.widest
    layers = 2 * lstm.n_layers
    total = 0.0
    for width, count in cnn.filters:
        total += _product(int(words * (places - width + 1)), width * cnn.embedding_dim, count)
    total += cnn.n_highway * _product(words, cnn.n_filters, 2 * cnn.n_filters) + _product(words, cnn.n_filters, d)
    total += layers * (_product(tokens, d, 4 * h) + steps * _product(rows, d, 4 * h) + steps * _product(rows, h, d))
    total += 2 * _product(tokens, d, batch.negatives.shape[1])
    return total


def _product(m: int, k: int, n: int) -> float:
    """Return the seconds of (m, k) × (k, n) and of the two products of its gradient."""
    a, b, c = torch.randn(m, k), torch.randn(k, n), torch.randn(m, n)
    a_out, b_out, c_out = torch.empty_like(a), torch.empty_like(b), torch.empty_like(c)
    best = float("inf")
    for _ in range(4):
        start = time.perf_counter()
        torch.mm(a, b, out=c_out)
        torch.mm(c, b.t(), out=a_out)
        torch.mm(a.t(), c, out=b_out)
        best = min(best, time.perf_counter() - start)
    return best


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    corpus = Corpus.open(arguments.corpus)
    tokens = 128 * 20
    ours = Step(corpus, reference=False)
    batch = ours()
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    reference = Step(corpus, reference=True)
    reference()
    best = {"ours": float("inf"), "reference": float("inf"), "products": float("inf")}
    for _ in range(arguments.rounds):
        for name, step, count in (("ours", ours, arguments.steps), ("reference", reference, 2)):
            start = time.perf_counter()
            for _ in range(count):
                step()
            best[name] = min(best[name], (time.perf_counter() - start) / count)
        with onednn_products(torch.device("cpu")):
            best["products"] = min(best["products"], products(ours.bilm, batch))
    words, distinct = len(corpus.vocabulary), len(batch.words)
    print(f"{words:,} words, {distinct:,} distinct words in a step, {arguments.threads} threads")
    print("| | s per step | tokens/s | compared with bilm-tf's 294 |\n|---|---|---|---|")
    for name, seconds in best.items():
        print(f"| {name} | {seconds:.2f} | {tokens / seconds:,.0f} | {tokens / seconds / 294:.1f} × |")
    print(f"ours: {memory:.1f} GiB at most, {best['products'] / best['ours']:.0%} of the products' speed")


if __name__ == "__main__":
    main()
