"""Negatives against the log-uniform formula: how often each word is drawn, how many tries it took, what is expected."""

import math
from decimal import Decimal, localcontext

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elmo.pretrain.sampler import LogUniform


def probabilities(n_words: int) -> np.ndarray:
    """P(k) = log((k + 2) / (k + 1)) / log(V + 1), as TensorFlow's log_uniform_candidate_sampler documents it."""
    return np.array([math.log((k + 2) / (k + 1)) / math.log(n_words + 1) for k in range(n_words)])


def one_by_one(rng: np.random.Generator, n_words: int, n: int) -> tuple[list[int], int]:
    """Draw until n distinct words were seen: a loop over single random numbers."""
    seen: set[int] = set()
    tries = 0
    while len(seen) < n:
        seen.add(min(int(math.exp(rng.random() * math.log(n_words + 1))) - 1, n_words - 1))
        tries += 1
    return sorted(seen), tries


def test_the_formula_is_a_distribution() -> None:
    for n_words in (1, 2, 10, 1000):
        assert probabilities(n_words).sum() == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize(("n_words", "critical"), [(2, 10.83), (11, 29.59), (31, 59.70)])
def test_a_single_draw_is_log_uniform(n_words: int, critical: float) -> None:
    """Chi-square over 8,000 draws of one word; `critical` is exceeded by one fair seed in a thousand."""
    rng = np.random.default_rng(0)
    sampler = LogUniform(n_words)
    draws = [sampler.draw(rng, 1) for _ in range(8000)]
    assert {one.tries for one in draws} == {1}
    counts = np.bincount([int(one.words[0]) for one in draws], minlength=n_words)
    assert len(counts) == n_words
    expected = 8000 * probabilities(n_words)
    assert ((counts - expected) ** 2 / expected).sum() < critical


@given(st.integers(0, 2**32), st.integers(1, 80), st.data())
@settings(deadline=None, max_examples=150)
def test_words_are_distinct_rising_and_those_of_a_loop(seed: int, n_words: int, data: st.DataObject) -> None:
    n = data.draw(st.integers(1, n_words))
    drawn = LogUniform(n_words).draw(np.random.default_rng(seed), n)
    words, tries = one_by_one(np.random.default_rng(seed), n_words, n)
    assert drawn.words.tolist() == words
    assert drawn.tries == tries
    assert drawn.words.dtype == np.int64
    assert (np.diff(drawn.words) > 0).all()
    assert 0 <= drawn.words[0] <= drawn.words[-1] < n_words


@pytest.mark.parametrize("seed", range(3))
def test_a_published_size_is_the_loop_s_too(seed: int) -> None:
    drawn = LogUniform(793_471).draw(np.random.default_rng(seed), 8192)
    words, tries = one_by_one(np.random.default_rng(seed), 793_471, 8192)
    assert drawn.words.tolist() == words
    assert drawn.tries == tries


def test_all_words_can_be_drawn() -> None:
    drawn = LogUniform(7).draw(np.random.default_rng(0), 7)
    assert drawn.words.tolist() == list(range(7))
    assert drawn.tries >= 7
    only = LogUniform(1).draw(np.random.default_rng(0), 1)
    assert (only.words.tolist(), only.tries) == ([0], 1)


class Largest(np.random.Generator):
    """Random numbers that are as near to one as they can be."""

    def random(self, size: int) -> np.ndarray:  # type: ignore[override]
        return np.full(size, np.nextafter(1.0, 0.0))


@pytest.mark.parametrize("n_words", [1, 2, 3, 99, 100, 793_471, 10**7])
def test_the_largest_random_number_is_the_last_word(n_words: int) -> None:
    """exp(log(V + 1)·u) must not round up to V + 1: there is no such word."""
    words = LogUniform(n_words).draw(Largest(np.random.PCG64(0)), 1).words
    assert n_words - 2 <= words[0] <= n_words - 1


# How often a word is expected


def exact(word: int, tries: int, n_words: int) -> float:
    """log(1 − (1 − P)^tries) in fifty digits."""
    with localcontext() as context:
        context.prec = 50
        p = (Decimal(word + 2) / Decimal(word + 1)).ln() / Decimal(n_words + 1).ln()
        return float((1 - (1 - p) ** tries).ln())


@pytest.mark.parametrize(("n_words", "tries"), [(10, 1), (10, 30), (1000, 50), (793_471, 8192), (793_471, 17_000)])
def test_the_expected_count_is_the_formula_s(n_words: int, tries: int) -> None:
    words = np.unique(np.geomspace(1, n_words, 25).astype(np.int64)) - 1
    log_q = LogUniform(n_words).log_expected_count(words, tries)
    assert log_q.dtype == np.float32
    np.testing.assert_allclose(log_q, [exact(int(word), tries, n_words) for word in words], rtol=1e-6, atol=1e-7)
    assert (np.diff(log_q) <= 0).all()
    assert (log_q <= 0).all()


def test_of_one_try_a_word_is_expected_with_its_probability() -> None:
    log_q = LogUniform(50).log_expected_count(np.arange(50), 1)
    np.testing.assert_allclose(np.exp(log_q), probabilities(50), rtol=1e-6)


def test_the_expected_count_is_how_often_a_word_is_among_so_many_tries() -> None:
    """4,000 simulations of 30 tries, by NumPy's own sampler: within 4.5 deviations of each word's frequency."""
    n_words, tries, repeats = 40, 30, 4000
    rng = np.random.default_rng(1)
    drawn = rng.choice(n_words, size=(repeats, tries), p=probabilities(n_words))
    found = np.array([(drawn == word).any(axis=1).mean() for word in range(n_words)])
    q = np.exp(LogUniform(n_words).log_expected_count(np.arange(n_words), tries).astype(np.float64))
    deviation = np.sqrt(q * (1 - q) / repeats)
    assert (np.abs(found - q) < 4.5 * deviation + 1e-6).all()


def test_the_expected_count_is_how_often_a_word_is_drawn() -> None:
    """With the tries of each draw, which depend on its words, so nearly: within 2 % and 4 deviations."""
    n_words, n, repeats = 200, 40, 4000
    rng = np.random.default_rng(2)
    sampler = LogUniform(n_words)
    found, expected = np.zeros(n_words), np.zeros(n_words)
    for _ in range(repeats):
        drawn = sampler.draw(rng, n)
        found[drawn.words] += 1 / repeats
        expected += np.exp(sampler.log_expected_count(np.arange(n_words), drawn.tries)) / repeats
    deviation = np.sqrt(expected * (1 - expected) / repeats)
    assert (np.abs(found - expected) < 0.02 * expected + 4 * deviation).all()
    assert found.sum() == pytest.approx(n)
    assert expected.sum() == pytest.approx(n, rel=0.01)
