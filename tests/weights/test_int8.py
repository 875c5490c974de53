"""Matrices in int8: the error that rounding allows, and no more."""

import numpy as np
import pytest
import torch

from elmo.weights.int8 import dequantize, quantize


@pytest.mark.parametrize(("shape", "axis"), [((7, 5), 0), ((7, 5), 1), ((2, 7, 5), 1)])
def test_a_matrix_comes_back_within_half_a_step(shape: tuple[int, ...], axis: int) -> None:
    matrix = torch.from_numpy(np.random.default_rng(0).normal(size=shape).astype(np.float32))
    values, scale = quantize(matrix, axis)
    assert values.dtype == torch.int8
    assert values.shape == matrix.shape
    step = np.abs(matrix.numpy()).max(axis=axis, keepdims=True) / 127
    assert np.abs(dequantize(values, scale).numpy() - matrix.numpy()).max() <= 0.5001 * step.max()
    assert (np.abs(dequantize(values, scale).numpy() - matrix.numpy()) <= 0.5001 * step).all()
    assert values.abs().amax(dim=axis).eq(127).all()  # each output uses the full range


def test_an_output_of_zeros_stays_zeros() -> None:
    values, scale = quantize(torch.tensor([[0.0, 1.0], [0.0, -2.0]]), 0)
    assert values.tolist() == [[0, 64], [0, -127]]
    assert dequantize(values, scale)[:, 0].tolist() == [0.0, 0.0]
    assert scale.isfinite().all()


def test_halves_round_to_even() -> None:
    """A scale of 1: 0.5, 1.5 and 2.5 are half way between two levels."""
    values, scale = quantize(torch.tensor([[127.0, 0.5, 1.5, 2.5, -0.5, -1.5]]), 1)
    assert scale.item() == 1.0
    assert values.tolist() == [[127, 0, 2, 2, 0, -2]]
