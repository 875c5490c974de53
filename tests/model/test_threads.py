"""Coarse threads: everything is computed once, in order, and the program's own settings stay as they are."""

import os
import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest
import torch

from elmo.embed.embedder import Embedder
from elmo.embed.runner import BATCH_TOKENS
from elmo.model.bilm import BiLM, BiLMConfig
from elmo.model.char_cnn import CharCNNConfig
from elmo.model.lstm import LSTMConfig
from elmo.model.threads import available, each
from elmo.weights.folder import Pretrained
from embedders import assert_same_bits
from models import random_sentences


@pytest.fixture(autouse=True, params=[1, 2, 3, 9], ids="{} threads".format)
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def in_a_new_thread() -> int:
    """The number of threads that PyTorch uses in a thread that the program starts now."""
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    return found[0]


def test_results_are_in_order_also_where_it_is_called_inside_itself() -> None:
    def row(number: int) -> list[int]:
        return each(lambda other: 10 * number + other, range(5))

    assert each(row, range(7)) == [[10 * number + other for other in range(5)] for number in range(7)]
    assert each(row, []) == []


def test_every_worker_computes_alone_and_as_many_at_once_as_there_are_threads(threads: int) -> None:
    assert available() == threads
    together = threading.Barrier(threads, timeout=20)

    def work(_: int) -> int:
        together.wait()  # nobody comes past it unless all are at work
        assert available() == threads
        return torch.get_num_threads()

    assert each(work, range(threads)) == [1] * threads


def test_the_threads_of_the_program_stay_as_they_are(threads: int) -> None:
    assert in_a_new_thread() == threads
    each(abs, range(5))
    assert torch.get_num_threads() == threads
    assert in_a_new_thread() == threads


def test_the_work_is_done_in_inference_mode_and_the_caller_s_mode_stays() -> None:
    assert all(each(lambda _: torch.is_inference_mode_enabled(), range(4)))
    assert not torch.is_inference_mode_enabled()


def test_an_error_reaches_the_caller_and_the_threads_go_on() -> None:
    def invert(number: int) -> float:
        return 1 / number

    with pytest.raises(ZeroDivisionError):
        each(lambda _: each(invert, [1, 2, 0, 4]), range(3))
    assert each(invert, [1, 2]) == [1, 0.5]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_process_starts_its_own_threads() -> None:
    each(abs, range(5))
    child = os.fork()
    if not child:
        os._exit(each(abs, [-5, -6, -7])[2])
    for _ in range(1000):
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            break
        time.sleep(0.02)
    else:
        os.kill(child, 9)
        os.waitpid(child, 0)
        raise AssertionError("the forked process waits for threads that it does not have")
    assert os.waitstatus_to_exitcode(status) == 7


def test_vectors_do_not_depend_on_the_number_of_threads(threads: int) -> None:
    torch.manual_seed(0)
    cnn = CharCNNConfig(filters=((1, 8), (3, 24)), n_highway=2)
    model = Embedder(Pretrained(BiLM(BiLMConfig(LSTMConfig(64, 32), cnn))))
    sentences = random_sentences(np.random.default_rng(0), 60, 12)
    found = list(model.embed(sentences, batch_tokens=50))
    alone = [next(model.embed([sentence])) for sentence in sentences]  # on two threads, a direction each
    torch.set_num_threads(1)
    model.cache.clear()
    assert_same_bits(found, list(model.embed(sentences, batch_tokens=50)))
    assert_same_bits(alone, [next(model.embed([sentence])) for sentence in sentences])


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_larger_batches_of_more_threads_change_only_the_rounding(threads: int, precision: str) -> None:
    torch.manual_seed(0)
    bilm = BiLM(BiLMConfig(LSTMConfig(64, 32), CharCNNConfig(filters=((1, 8), (3, 24)), n_highway=2)))
    model = Embedder(Pretrained(bilm), precision=precision)
    sentences = random_sentences(np.random.default_rng(0), 2000, 12)
    assert sum(map(len, sentences)) > 4 * BATCH_TOKENS["cpu"]
    found = np.concatenate(list(model.embed(sentences)), axis=1)
    torch.set_num_threads(1)
    expected = np.concatenate(list(model.embed(sentences)), axis=1)
    assert np.abs(found - expected).max() <= (0 if precision == "int8" else 1e-6)
