"""The sentence head against hidden layer, attention and projection in NumPy, one sentence at a time."""

from statistics import NormalDist

import numpy as np
import pytest
import torch

from elmo.model.sentence_head import SentenceHead, SentenceHeadSize


def test_a_batch_is_what_numpy_computes_for_each_sentence() -> None:
    torch.manual_seed(3)
    head = SentenceHead(SentenceHeadSize(input_dim=7, hidden=5, dim=4)).double()
    weights = {name: tensor.detach().numpy() for name, tensor in head.named_parameters()}
    x, lengths = torch.randn(3, 6, 7, dtype=torch.float64), [6, 1, 4]
    mask = torch.arange(6) < torch.tensor(lengths)[:, None]
    found = head(x, mask).detach().numpy()
    for row, length in enumerate(lengths):
        tokens = x[row, :length].numpy()
        before = tokens @ weights["hidden.weight"].T + weights["hidden.bias"]
        hidden = before * np.vectorize(NormalDist().cdf)(before)  # GELU
        shares = np.exp(hidden @ weights["score.weight"][0] + weights["score.bias"])
        mean = (hidden * (shares / shares.sum())[:, None]).sum(axis=0)
        projected = weights["projection.weight"] @ mean + weights["projection.bias"]
        assert found[row] == pytest.approx(projected / np.linalg.norm(projected), abs=1e-12)


def test_what_is_beyond_the_end_of_a_sentence_does_not_count() -> None:
    torch.manual_seed(3)
    head = SentenceHead(SentenceHeadSize(input_dim=7, hidden=5, dim=4))
    x, mask = torch.randn(1, 6, 7), torch.arange(6)[None] < 4
    changed = x.clone()
    changed[0, 4:] = 1e6
    assert torch.equal(head(x, mask), head(changed, mask))
    changed.requires_grad_()
    head(changed, mask).sum().backward()
    assert changed.grad is not None and not changed.grad[0, 4:].any() and changed.grad[0, :4].any()
