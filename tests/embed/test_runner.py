"""The runner: results of each sentence in order, from one state or a carried one; batches that run out of memory."""

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from elmo.embed.embedder import Embedder
from elmo.embed.runner import BATCH_TOKENS
from elmo.errors import ConfigError, ElmoError
from elmo.model.bilm import BiLM, BiLMConfig
from elmo.model.char_cnn import CharCNNConfig
from elmo.model.lstm import LSTMConfig, State
from elmo.model.packed import PackedBiLM
from elmo.model.packing import Packing
from elmo.weights.folder import Pretrained
from embedders import REFERENCE, assert_close, embedder
from models import random_sentences, state_of

SENTENCES = random_sentences(np.random.default_rng(1), 30)


def first_tokens(batch: list[list[str]], layers: list[Tensor], packing: Packing) -> list[tuple[str, int]]:
    """A result that names its sentence: the first token, and the number of sentences computed with it."""
    assert all(len(layer) == sum(map(len, batch)) for layer in layers)
    return [(sentence[0], len(batch)) for sentence in batch]


def test_results_are_in_the_order_of_the_sentences_whatever_their_batches() -> None:
    runner = embedder().runner
    sentences = [[f"word{k}", *["x"] * (7 * k % 5)] for k in range(20)]
    sentences[4] = []
    results = list(
        runner.independent(
            sentences, first_tokens, lambda: runner.after("fresh"), batch_tokens=6, empty=lambda: ("empty", 0)
        )
    )
    assert [name for name, _ in results] == [s[0] if s else "empty" for s in sentences]
    assert {size for _, size in results} > {1, 2}  # some ran together


def test_the_carried_state_is_the_one_after_each_row() -> None:
    runner = embedder().runner
    sentences = [["<S>", *sentence, "</S>"] for sentence in ([["the"], ["cat", "sat"], ["on"]])]
    list(runner.carry(sentences, first_tokens, batch_size=2))
    states = [None, None]
    for row, sentence in ((0, sentences[0]), (1, sentences[1]), (0, sentences[2])):
        _, states[row] = REFERENCE.layers(sentence[1:-1], states[row])
    h, c = state_of(states)
    assert runner.carried is not None
    assert_close(runner.carried.h.numpy(), h)
    assert_close(runner.carried.c.numpy(), c)
    runner.reset_carried()
    assert runner.carried is None


@pytest.mark.parametrize(
    ("width", "threads", "times"),
    [(256, 1, 1), (256, 2, 1), (256, 3, 3), (256, 8, 8), (256, 16, 8), (64, 3, 8), (512, 8, 2), (1024, 8, 1)],
)
def test_the_number_of_tokens_of_a_batch_follows_from_width_and_threads_unless_asked_for(
    width: int, threads: int, times: int, request: pytest.FixtureRequest
) -> None:
    request.addfinalizer(partial(torch.set_num_threads, torch.get_num_threads()))
    torch.set_num_threads(threads)
    bilm = BiLM(BiLMConfig(LSTMConfig(8, width // 2), CharCNNConfig(filters=((1, 8),), n_highway=1)))
    runner = Embedder(Pretrained(bilm)).runner
    assert (runner.batch_tokens(None), runner.batch_tokens(7)) == (times * BATCH_TOKENS["cpu"], 7)
    with pytest.raises(ConfigError, match="batch_tokens is 0; expected 1 or more"):
        runner.batch_tokens(0)


# Memory


ALLOCATOR = (
    "[enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate "
    "8589934592 bytes. Error code 12 (Cannot allocate memory)"
)
SHORTAGES = {
    "torch": lambda: torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB."),
    "allocator": lambda: RuntimeError(ALLOCATOR),
    "python": MemoryError,
}


def limit_memory(monkeypatch: pytest.MonkeyPatch, tokens: int, error: Callable[[], Exception]) -> list[int]:
    """Let the biLM fail on batches of more than so many tokens; the sizes it was given are listed."""
    contextualize, sizes = PackedBiLM.contextualize, []

    def limited(self: PackedBiLM, vectors: Tensor, packing: Packing, state: State) -> Any:
        sizes.append(len(vectors))
        if len(vectors) > tokens:
            raise error()
        return contextualize(self, vectors, packing, state)

    monkeypatch.setattr(PackedBiLM, "contextualize", limited)
    return sizes


@pytest.mark.parametrize("shortage", SHORTAGES)
@pytest.mark.parametrize("state", ["fresh", "warm", "carried"])
def test_a_batch_that_does_not_fit_is_halved_and_says_so(
    shortage: str, state: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    model, undisturbed = embedder(), embedder()
    model.warm_state()
    wanted = list(undisturbed.embed(SENTENCES, state=state, batch_size=10))
    with monkeypatch.context() as patched, caplog.at_level(logging.WARNING, logger="elmo"):
        sizes = limit_memory(patched, 25, SHORTAGES[shortage])
        arrays = list(model.embed(SENTENCES, state=state, batch_size=10))
    assert max(sizes) > 25
    assert len(arrays) == len(wanted)
    for array, other in zip(arrays, wanted, strict=True):
        assert_close(array, other)
    assert "is halved" in caplog.text
    assert "batch_" in caplog.text  # and which setting would have spared it


def test_a_sentence_that_does_not_fit_alone_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    limit_memory(monkeypatch, 25, SHORTAGES["torch"])
    with pytest.raises(ElmoError, match=r"^out of memory on cpu with one sentence of 30 tokens; split it$"):
        list(embedder().embed([["the"], ["the"] * 30, ["cat"]]))


def test_another_error_is_not_taken_for_a_shortage(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = limit_memory(monkeypatch, 25, lambda: RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
    with pytest.raises(RuntimeError, match="mat1 and mat2 shapes cannot be multiplied"):
        list(embedder().embed(SENTENCES))
    assert len([size for size in sizes if size > 25]) == 1
