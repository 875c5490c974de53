"""The softmax against float64 arithmetic over all words at once."""

import numpy as np
import pytest
import torch

from elmo.model import softmax
from elmo.model.softmax import Softmax, log_probabilities, tokens_at_once


@pytest.mark.parametrize("tokens", [1, 4, 256])
@pytest.mark.parametrize("at_once", [1, 30, 1 << 22])  # scores in memory: one, some, all
def test_log_probabilities_are_those_of_all_words(at_once: int, tokens: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(softmax.SCORES_AT_ONCE, "cpu", at_once)
    monkeypatch.setattr(softmax, "TOKENS_AT_ONCE", tokens)
    torch.manual_seed(0)
    hidden, weight, bias = torch.randn(9, 4), torch.randn(11, 4), torch.randn(11)
    targets = torch.randint(0, 11, (9,))
    scores = hidden.double().numpy() @ weight.double().numpy().T + bias.double().numpy()
    expected = scores[np.arange(9), targets.numpy()] - np.log(np.exp(scores).sum(axis=1))
    np.testing.assert_allclose(log_probabilities(hidden, targets, weight, bias).numpy(), expected, atol=1e-5)


def test_probabilities_of_all_words_sum_to_one() -> None:
    torch.manual_seed(1)
    hidden, weight, bias = torch.randn(1, 4), torch.randn(11, 4), torch.randn(11)
    log_p = log_probabilities(hidden.expand(11, 4), torch.arange(11), weight, bias)
    assert log_p.exp().sum().item() == pytest.approx(1.0, abs=1e-6)


def test_a_token_has_the_same_probability_alone_and_beside_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(softmax.SCORES_AT_ONCE, "cpu", 1 << 16)  # of 256 words
    torch.manual_seed(2)
    hidden, weight, bias, targets = torch.randn(300, 64), torch.randn(999, 64), torch.randn(999), torch.arange(300)
    every = log_probabilities(hidden, targets, weight, bias)
    for first, last in ((0, 1), (7, 9), (250, 300)):
        some = log_probabilities(hidden[first:last], targets[first:last], weight, bias)
        assert torch.equal(some, every[first:last])


def test_no_tokens_have_no_probabilities() -> None:
    empty = log_probabilities(torch.zeros(0, 4), torch.zeros(0, dtype=torch.long), torch.zeros(3, 4), torch.zeros(3))
    assert (empty.shape, empty.dtype) == ((0,), torch.float32)


def test_the_number_of_tokens_in_memory_is_at_least_one() -> None:
    hidden = torch.zeros(1, 4)
    assert tokens_at_once(hidden, 1 << 30) == 1
    assert tokens_at_once(hidden, 1 << 20) == 4


def test_a_softmax_that_shares_the_word_table_has_only_a_bias() -> None:
    assert [name for name, _ in Softmax(5, 3, shared=True).named_parameters()] == ["bias"]
    own = Softmax(5, 3)
    assert own.weight is not None
    assert own.weight.shape == (5, 3)
    assert own.bias.tolist() == [0.0] * 5
