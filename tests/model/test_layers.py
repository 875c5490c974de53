"""The output of the biLM: its boundaries can be taken off."""

import torch

from elmo.model.layers import Layers


def test_without_boundaries_by_hand() -> None:
    lengths, places = [4, 2, 3], 4
    mask = torch.arange(places) < torch.tensor(lengths)[:, None]
    activations = (torch.arange(1.0, 25.0).view(2, 3, places, 1) * mask[..., None]).expand(2, 3, places, 2)
    inner = Layers(activations, mask).without_boundaries()
    assert inner.mask.tolist() == [[True, True], [False, False], [True, False]]
    assert inner.activations[..., 0].tolist() == [[[2, 3], [0, 0], [10, 0]], [[14, 15], [0, 0], [22, 0]]]
