"""Many threads, one model: what each gets is what one thread alone gets, and the model is right afterwards."""

import copy
import pickle
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from random import Random
from threading import Barrier
from typing import Any

import numpy as np
import pytest
import torch

import elmo
from elmo.embed.words import WordCache
from elmo.model.bilm import BiLM
from elmo.model.lstm import State
from elmo.text.vocabulary import Vocabulary
from elmo.weights.folder import Pretrained
from embedders import DIM, REFERENCE, assert_close, embedder, fresh, pretrained

WORKERS = 8
WORDS = [f"w{number}" for number in range(150)]
RANDOM = Random(0)
SENTENCES = [RANDOM.choices(WORDS, k=RANDOM.randint(1, 9)) for _ in range(100)]
FEW_WORDS = 12 * 4 * DIM // 2  # bytes of a cache that holds twelve words, so that some are forgotten in every call


@pytest.fixture(autouse=True)
def switching_often() -> Iterator[None]:
    """Let the interpreter change threads as often as it can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def in_threads(call: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
    with ThreadPoolExecutor(WORKERS) as pool:
        return list(pool.map(call, items))


def language_model(**settings: Any) -> elmo.Embedder:
    """The small model with a softmax of random values."""
    bilm, words = pretrained().bilm, ["<S>", "</S>", "<UNK>", *WORDS[:100]]
    torch.manual_seed(0)
    predicting = BiLM(replace(bilm.config, n_softmax=len(words)))
    predicting.load_state_dict({**predicting.state_dict(), **bilm.state_dict()})
    return elmo.Embedder(Pretrained(predicting, Vocabulary(words)), **settings)


@pytest.mark.parametrize("cache_bytes", [0, FEW_WORDS, 1 << 20])
@pytest.mark.parametrize("state", ["fresh", "warm"])
def test_encode_gives_every_thread_its_own_vectors(cache_bytes: int, state: str) -> None:
    wanted = embedder(cache_bytes=0).encode(SENTENCES, state=state)
    model = embedder(cache_bytes=cache_bytes)
    for vectors in (
        in_threads(lambda sentence: model.encode([sentence], state=state)[0], SENTENCES),
        [model.encode([sentence], state=state)[0] for sentence in SENTENCES],  # and in one thread afterwards
    ):
        assert_close(np.stack(vectors), wanted)


def test_embed_of_many_sentences_at_once_is_right_in_every_thread() -> None:
    model = embedder(cache_bytes=FEW_WORDS)
    calls = [SENTENCES[start : start + 20] for start in range(0, len(SENTENCES), 20)]
    found = in_threads(lambda some: list(model.embed(some, batch_tokens=30)), calls)
    for arrays, some in zip(found, calls, strict=True):
        for array, sentence in zip(arrays, some, strict=True):
            assert_close(array, fresh(sentence))


def test_score_gives_every_thread_its_own_probabilities() -> None:
    wanted = list(language_model(cache_bytes=0).score_all(SENTENCES))
    model = language_model(cache_bytes=FEW_WORDS)
    for scores in (in_threads(model.score, SENTENCES), [model.score(sentence) for sentence in SENTENCES]):
        for ours, theirs in zip(scores, wanted, strict=True):
            assert ours.tokens == theirs.tokens
            assert_close(ours.forward, theirs.forward)
            assert_close(ours.backward, theirs.backward)


def test_carried_batches_of_several_threads_come_one_after_the_other() -> None:
    """Each of them begins where one other ended, and no two at the same place, in whatever order they come."""
    model, sentence = embedder(cache_bytes=FEW_WORDS), ["w1"]
    found = in_threads(lambda _: next(model.embed([sentence], state="carried", batch_size=1)), range(30))
    wanted = [array for (array,) in REFERENCE.carried([[sentence]] * 31)]
    for array in wanted[:4]:  # later the state hardly moves any more
        assert sum(np.abs(array - other).max() < 1e-4 for other in wanted) == 1
        assert sum(np.abs(array - other).max() < 1e-4 for other in found) == 1
    (after,) = model.embed([sentence], state="carried", batch_size=1)
    assert_close(after, wanted[30])


def test_the_threads_encode_outside_the_lock() -> None:
    """Two threads are in the encoder at the same time: neither would get on if the other held a lock meanwhile."""
    both = Barrier(2, timeout=10)

    def encode(words: Sequence[str]) -> torch.Tensor:
        both.wait()
        return torch.tensor([[float(word)] for word in words])

    cache = WordCache(encode, 10)
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(cache.vectors, [["1", "2"], ["2", "3"]]))
    assert [vectors.tolist() for vectors in found] == [[[1.0], [2.0]], [[2.0], [3.0]]]
    assert len(cache) == 3


def test_words_encoded_before_the_cache_was_cleared_are_not_kept() -> None:
    """Their weights may be gone."""
    cache: WordCache

    def encode(words: Sequence[str]) -> torch.Tensor:
        cache.clear()
        return torch.tensor([[float(word)] for word in words])

    cache = WordCache(encode, 10)
    assert cache.vectors(["1"]).tolist() == [[1.0]]
    assert len(cache) == 0


def test_weights_that_change_between_threaded_calls_are_noticed_by_all_threads() -> None:
    model = embedder(cache_bytes=1 << 20)
    for factor in (1.0, 1.1, 0.9):
        with torch.no_grad():
            for parameter in model.bilm.parameters():
                parameter.mul_(factor)
        wanted = elmo.Embedder(Pretrained(model.bilm), cache_bytes=0).encode(SENTENCES, state="warm")
        vectors = in_threads(lambda sentence: model.encode([sentence], state="warm")[0], SENTENCES[:40])
        assert_close(np.stack(vectors), wanted[:40])


class Interrupted(BaseException):
    """What Ctrl-C raises, at a place of our choosing."""


def test_an_interrupted_change_of_the_cache_leaves_no_wrong_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = WordCache(lambda words: torch.tensor([[float(word)] for word in words]), 4)
    cache.vectors(["1", "2", "3", "4"])
    with monkeypatch.context() as patched:
        patched.setattr(torch, "tensor", _interrupt_after(3))
        with pytest.raises(Interrupted):
            cache.vectors(["3", "5", "6"])
    for words in (["1", "2"], ["5", "6"], ["3", "5"], ["1", "4"]):
        assert cache.vectors(words).tolist() == [[float(word)] for word in words]


def _interrupt_after(calls: int) -> Callable[..., torch.Tensor]:
    made, tensor = iter(range(calls)), torch.tensor

    def interrupted(*arguments: Any, **options: Any) -> torch.Tensor:
        if next(made, None) == calls - 1:
            raise Interrupted
        return tensor(*arguments, **options)

    return interrupted


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_an_embedder_can_be_copied_and_sent_to_another_process(copied: Callable[[Any], Any]) -> None:
    model = embedder(name="small")
    list(model.embed(SENTENCES[:4], state="carried", batch_size=2))
    twin = copied(model)
    assert repr(twin) == repr(model)
    for state in ("fresh", "warm", "carried"):
        ours, theirs = (list(one.embed(SENTENCES[4:8], state=state, batch_size=2)) for one in (model, twin))
        for one, other in zip(ours, theirs, strict=True):
            assert_close(one, other)


def test_a_pickle_is_the_same_before_and_after_use() -> None:
    model = embedder(name="small")
    before = pickle.dumps(model)
    for state in ("fresh", "warm"):
        list(model.embed(SENTENCES[:8], state=state))
    model.layers(SENTENCES[:2])
    assert pickle.dumps(model) == before
    list(model.embed(SENTENCES[:4], state="carried"))
    assert pickle.dumps(model) != before  # results depend on it now
    model.reset_state()
    assert pickle.dumps(model) == before
    with torch.no_grad():
        model.bilm.lstms[0].bias += 1.0
    assert pickle.dumps(model) != before


def test_the_stored_warm_state_is_pickled_with_its_weights_only() -> None:
    stored = State(*(torch.full_like(part, 0.25) for part in embedder().bilm.zero_state(1)))
    model = elmo.Embedder(replace(pretrained(), warm_state=stored))
    twin = pickle.loads(pickle.dumps(model))
    assert all(bool((part == 0.25).all()) for part in twin.warm_state())
    with torch.no_grad():
        model.bilm.lstms[0].bias += 1.0
    other = pickle.loads(pickle.dumps(model))
    assert not any(bool((part == 0.25).all()) for part in other.warm_state())
