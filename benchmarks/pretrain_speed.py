"""Training speed on a GPU: complete steps, their parts, and the LSTMs compared with cuDNN's.

    python benchmarks/pretrain_speed.py CORPUS [--preset original] [--batch 512 1024 2048] [--steps 40]

A complete step is that of `elmo pretrain`: batches made from the corpus while the last step runs, token encoder, both
directions with their clips, dropout, sampled softmax, gradient clipping, optimizer. The parts are timed separately on
one batch, forward and backward. "Of peak" is relative to the speed of one 8192³ product in the same run. It counts
only the products that the model requires, not those that are computed twice or on padding. Memory is the peak that
PyTorch reserved on the device.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

from elmo.model.bilm import BiLM, BiLMConfig
from elmo.model.char_cnn import PADDING_ID, CharCNN
from elmo.model.device import PRECISIONS
from elmo.pretrain.batch import Batch
from elmo.pretrain.config import PretrainConfig
from elmo.pretrain.corpus import Corpus
from elmo.pretrain.loop import Training
from elmo.pretrain.loss import sampled_softmax
from elmo.pretrain.step import clip

TOKENS = 10 * 769_000_000  # the original's ten epochs


def milliseconds(function: Callable[[], object], repeats: int = 10) -> float:
    """Return the mean time of a call on the device, after three calls that are not counted."""
    for _ in range(3):
        function()
    torch.cuda.synchronize()
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(repeats):
        function()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / repeats


def peak() -> float:
    """Return the floating-point operations per second of one large product in bfloat16."""
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    return 2 * 8192**3 / (milliseconds(lambda: a @ b) / 1e3)


def operations(config: BiLMConfig, negatives: int) -> tuple[float, float, float]:
    """Count forward operations: highways and projection per distinct word, LSTMs per token, softmax per token."""
    cnn, lstm = config.char_cnn, config.lstm
    assert cnn is not None
    dim = lstm.projection_dim
    after = cnn.n_highway * 2 * cnn.n_filters * 2 * cnn.n_filters + 2 * cnn.n_filters * dim
    layer = 2 * (2 * dim) * 4 * lstm.dim + 2 * lstm.dim * dim
    return after, config.directions * lstm.n_layers * layer, config.directions * 2 * dim * negatives


def convolutions(config: BiLMConfig, characters: Tensor) -> float:
    """Count the operations of all windows that contain a character of the word."""
    assert config.char_cnn is not None
    lengths = (characters != PADDING_ID).sum(dim=1)
    places = [(lengths.clamp(max=characters.shape[1] - w + 1).sum(), w, count) for w, count in config.char_cnn.filters]
    return float(sum(2 * n * w * config.char_cnn.embedding_dim * count for n, w, count in places))


def cudnn(config: BiLMConfig, batch: int, steps: int) -> Callable[[], None]:
    """Return a forward and backward pass of cuDNN's LSTMs with projection, one stack per direction, without clips."""
    dim, size = config.lstm.projection_dim, config.lstm.dim
    stacks = [nn.LSTM(dim, size, config.lstm.n_layers, proj_size=dim).cuda().bfloat16() for _ in range(2)]
    inputs = torch.randn(2, steps, batch, dim, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    gradient = torch.randn(steps, batch, dim, device="cuda", dtype=torch.bfloat16)
    for stack in stacks:
        stack.flatten_parameters()

    def run() -> None:
        for stack, text in zip(stacks, inputs, strict=True):
            stack(text)[0].backward(gradient)
            stack.zero_grad(set_to_none=True)
        inputs.grad = None

    return run


def ours(config: BiLMConfig, batch: int, steps: int) -> Callable[[], None]:
    """Return the same for our LSTMs, with clips and skip connections, recorded as in training."""
    bilm = BiLM(replace(config, char_cnn=None, n_words=1, n_softmax=None)).cuda()
    size = 2, steps * batch, config.lstm.projection_dim
    inputs = torch.randn(*size, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    gradient = torch.randn(*size, device="cuda", dtype=torch.bfloat16)
    state = bilm.zero_state(batch)

    def run() -> None:
        bilm.zero_grad(set_to_none=True)
        inputs.grad = None
        with torch.autocast("cuda", torch.bfloat16, cache_enabled=False):
            layers, _ = bilm.run_lstms(inputs, [batch] * steps, state)
        layers[-1].backward(gradient)

    return recorded(run)


def recorded(function: Callable[[], None]) -> Callable[[], None]:
    """Record the kernels of a function as a CUDA graph."""
    side_stream = torch.cuda.Stream()
    with torch.cuda.stream(side_stream):
        function()
    torch.cuda.current_stream().wait_stream(side_stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        function()
    return graph.replay


def compare_lstms(config: BiLMConfig, batches: list[int], steps: int, limit: float) -> None:
    print("\n| batch | LSTMs, tokens/s | of peak | cuDNN without clips | ours : cuDNN |\n|---|---|---|---|---|")
    work = 3 * operations(config, 0)[1]
    for batch in batches:
        times = []
        for make in (ours, cudnn):
            times.append(milliseconds(make(config, batch, steps)) / 1e3)
            torch.cuda.empty_cache()
        mine, theirs = (batch * steps / seconds for seconds in times)
        share = mine * work / limit
        print(f"| {batch} | {mine:,.0f} | {share:.0%} | {theirs:,.0f} | {mine / theirs:.2f} |", flush=True)


def training_of(corpus: Corpus, folder: Path, preset: str, batch: int, changes: list[str]) -> Training:
    sets = [f"batch.size={batch}", "precision=bfloat16", "evaluation.every=0", "steps=100000", *changes]
    return Training(corpus, folder / "run", PretrainConfig.load(preset, None, sets))


def seconds_per_step(training: Training, steps: int, first: int = 30) -> float:
    """Return the seconds per step, batches included; the `first` steps compile kernels and record graphs."""
    batches = training.batches.from_step(0, first + steps, pinned=True)
    for number, batch in enumerate(batches):
        if number == first:
            torch.cuda.synchronize()
            begin = time.perf_counter()
        losses, _ = training.step(number, batch, 0.01)
        if number % 4 == 0:
            losses.tolist()  # as in the loop, which is never more than a few steps ahead of the device
    torch.cuda.synchronize()
    return (time.perf_counter() - begin) / steps


def parts(training: Training, batch: Batch) -> dict[str, tuple[float, float]]:
    """Time each part: milliseconds, and the number of floating-point operations forward and backward."""
    bilm, config = training.bilm, training.bilm.config
    assert batch.predicted is not None and batch.negatives is not None and batch.log_q is not None
    assert isinstance(bilm.token_encoder, CharCNN) and bilm.softmax is not None and bilm.softmax.weight is not None
    after, lstm, softmax = operations(config, batch.negatives.shape[1])
    n_tokens = batch.inputs.shape[1]
    characters = batch.words.long()
    read_words = characters[torch.unique(batch.inputs)]  # without padding words
    weight, bias = (t.detach()[batch.predicted].requires_grad_() for t in (bilm.softmax.weight, bilm.softmax.bias))
    hidden = torch.randn(config.directions, n_tokens, config.lstm.projection_dim, device="cuda", requires_grad=True)
    inputs = hidden.detach().to(PRECISIONS[training.config.precision]).requires_grad_()
    gradient = torch.randn_like(inputs)
    low = training.config.precision == "bfloat16"
    precision = torch.autocast("cuda", torch.bfloat16, enabled=low, cache_enabled=False)

    def encode() -> None:
        bilm.zero_grad(set_to_none=True)
        with precision:
            words = bilm.token_encoder(characters)
        words.sum().backward()

    def read() -> None:
        bilm.zero_grad(set_to_none=True)
        inputs.grad = None
        rows = training.config.batch.size
        with precision:
            layers, _ = bilm.run_lstms(inputs, [rows] * (n_tokens // rows), training.state, training.config.dropout)
        layers[-1].backward(gradient)

    def predict() -> None:
        drawn = zip(hidden, batch.targets, batch.negatives, batch.log_q, strict=True)
        with precision:
            torch.stack([sampled_softmax(*one, weight, bias) for one in drawn]).sum().backward()

    def update() -> None:
        clip(training.optimizer.parameters, 10.0)
        training.optimizer.step(0.01)

    work = {
        "char CNN": (encode, 3 * (convolutions(config, read_words) + len(read_words) * after)),
        "LSTMs": (read, 3 * n_tokens * lstm),
        "softmax": (predict, 3 * n_tokens * softmax),
    }
    updating = milliseconds(update)  # first, with the last step's gradients
    found = {name: (milliseconds(recorded(function)), count) for name, (function, count) in work.items()}
    return {**found, "clip and optimizer": (updating, 0.0)}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--preset", default="original")
    parser.add_argument("--batch", type=int, nargs="+", default=[512, 1024, 2048])
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--set", nargs="*", default=[], help="changes to the recipe, such as kernels=reference")
    parser.add_argument("--lstm", action="store_true", help="also compare the LSTMs with cuDNN's")
    arguments = parser.parse_args()
    corpus = Corpus.open(arguments.corpus)
    limit = peak()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, 8192³ in bfloat16: {limit / 1e12:.0f} TFLOP/s")
    print(f"{arguments.preset}, {len(corpus.vocabulary):,} words, {' '.join(arguments.set)}", flush=True)
    unroll = PretrainConfig().batch.unroll
    if arguments.lstm:
        compare_lstms(BiLMConfig.preset(arguments.preset), arguments.batch, unroll, limit)
    each: dict[int, tuple[dict[str, tuple[float, float]], float]] = {}
    header = "| batch | tokens/s | ms per step | of peak | GiB | estimated | hours for 10 × 769 M |"
    print(f"\n{header}\n" + "|---" * 7 + "|")
    for batch in arguments.batch:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        with tempfile.TemporaryDirectory() as folder:
            training = training_of(corpus, Path(folder), arguments.preset, batch, arguments.set)
            seconds = seconds_per_step(training, arguments.steps)
            memory = torch.cuda.max_memory_reserved() / 2**30
            estimated = training.plan.bytes_needed / 2**30
            example = training.batches.of_step(0)[0].to(training.device)
            each[batch] = parts(training, example) if training._recorded else {}, seconds
        work = sum(count for _, count in each[batch][0].values())
        speed = batch * unroll / seconds
        print(
            f"| {batch} | {speed:,.0f} | {1e3 * seconds:.1f} | {work / seconds / limit:.0%} | {memory:.1f} | "
            f"{estimated:.1f} | {TOKENS / speed / 3600:.1f} |", flush=True,
        )  # fmt: skip
        del training, example
    for batch, (found, seconds) in each.items():
        print(f"\n| batch {batch} | ms | share of the step | TFLOP/s | of peak |\n|---|---|---|---|---|")
        for name, (ms, count) in found.items():
            speed = count / ms * 1e3
            print(f"| {name} | {ms:.2f} | {ms / seconds / 1e3:.0%} | {speed / 1e12:.0f} | {speed / limit:.0%} |")
        rest = 1e3 * seconds - sum(ms for ms, _ in found.values())
        print(f"| everything else | {rest:.2f} | {rest / seconds / 1e3:.0%} | | |", flush=True)


if __name__ == "__main__":
    main()
