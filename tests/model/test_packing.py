"""Packing against a brute-force list of (sentence, step) pairs."""

import numpy as np
import pytest

from elmo.model.packing import Packing


@pytest.mark.parametrize("seed", range(60))
def test_packing_by_brute_force(seed: int) -> None:
    rng = np.random.default_rng(seed)
    lengths = rng.integers(0 if seed % 2 else 1, 8, size=rng.integers(0, 8)).tolist()
    order = sorted(range(len(lengths)), key=lambda sentence: -lengths[sentence])
    steps = range(max(lengths, default=0))
    packed = [(sentence, step) for step in steps for sentence in order if lengths[sentence] > step]
    packing = Packing.of(lengths)
    assert packing.order.tolist() == order
    assert packing.rows == [sum(length > step for length in lengths) for step in steps]
    assert list(zip(packing.sentence.tolist(), packing.step.tolist(), strict=True)) == packed
    assert packing.mirror.tolist() == [packed.index((s, lengths[s] - 1 - step)) for s, step in packed]
    assert [rows.tolist() for rows in packing.of_sentences()] == [
        [packed.index((sentence, step)) for step in range(length)] for sentence, length in enumerate(lengths)
    ]
