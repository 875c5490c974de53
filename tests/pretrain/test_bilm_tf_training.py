"""Two consecutive training steps that bilm-tf computed: losses, clipped gradients, states and weights."""

import json
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from torch import Tensor

from elmo.model.bilm import BiLM
from elmo.pretrain.batch import Batch
from elmo.pretrain.config import OptimizerConfig
from elmo.pretrain.distributed import World
from elmo.pretrain.optimizer import Optimizer
from elmo.pretrain.step import accumulate, clip
from elmo.text.characters import word_ids
from elmo.text.vocabulary import Vocabulary
from elmo.weights import bilm_tf
from reference_files import reference

TRAINING = reference("training")
TOLERANCE = 5e-6
UNROLL = 5


def published_names(name: str) -> str:
    """TensorFlow's variable ─▶ the dataset of the published format."""
    if not name.startswith("RNN_"):
        return name
    direction, _, _, cell, _, part = name.split("/", 5)
    part = {"kernel": "W_0", "bias": "B", "projection/kernel": "W_P_0"}[part]
    return f"{direction}/RNN/MultiRNNCell/Cell{cell[-1]}/LSTMCell/{part}"


def parameters(group: h5py.Group, folder: Path) -> dict[str, Tensor]:
    """The arrays of `lm/...` as our parameters, softmax included."""
    arrays: dict[str, np.ndarray] = {}
    group["lm"].visititems(
        lambda name, item: arrays.update({name: item[...]}) if isinstance(item, h5py.Dataset) else None
    )
    softmax = {f"softmax.{ours}": torch.tensor(arrays.pop(f"softmax/{theirs}")) for ours, theirs in
               (("weight", "W"), ("bias", "b"))}  # fmt: skip
    weights = folder / "weights.hdf5"
    with h5py.File(weights, "w") as file:
        for name, array in arrays.items():
            file[published_names(name)] = array
    return dict(bilm_tf.read(TRAINING / "options.json", weights).state_dict()) | softmax


def batches(vocabulary: Vocabulary) -> list[Batch]:
    steps = []
    for batch in json.loads((TRAINING / "batches.json").read_text()):
        streams = [batch["tokens"], batch["tokens_reverse"]]
        # (S, B, T + 1) ─▶ time-major
        words = np.array(streams).transpose(0, 2, 1)
        read, predicted = words[:, :-1].reshape(2, -1), words[:, 1:].reshape(2, -1)
        distinct, index = np.unique(read, return_inverse=True)
        targets = vocabulary.ids(predicted.ravel().tolist()).reshape(2, -1) - 1
        steps.append(
            Batch(
                torch.from_numpy(word_ids(distinct.tolist(), 50)),
                torch.from_numpy(index.reshape(2, -1)),
                torch.from_numpy(targets),
            )
        )
    return steps


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_two_training_steps(tmp_path: Path, parts: int, dtype: torch.dtype) -> None:
    """In float64 ours is within 5e-6 of what TensorFlow computed in float32; in float32 both round, so a bit more."""
    vocabulary = Vocabulary.read(TRAINING / "vocabulary.txt")
    with h5py.File(TRAINING / "expected.hdf5") as expected:
        start = parameters(expected["weights/0"], tmp_path)
        config = bilm_tf.read(TRAINING / "options.json", tmp_path / "weights.hdf5").config
        bilm = BiLM(type(config)(config.lstm, config.char_cnn, n_softmax=len(vocabulary)))
        bilm.load_state_dict(start)
        bilm.to(dtype)
        optimizer = Optimizer(OptimizerConfig(), bilm.named_parameters(), set())
        state = bilm.zero_state(3)
        for step, batch in enumerate(batches(vocabulary)):
            rows = [split(batch, part, parts) for part in range(parts)]
            losses, state = accumulate(bilm, rows, state, dropout=0.0, scale=UNROLL, world=World())
            norm = clip(optimizer.parameters, 10.0)
            close(losses, expected[f"loss/{step}"])
            assert norm.item() == pytest.approx(expected[f"gradient_norm_before_clipping/{step}"][()], rel=TOLERANCE)
            assert norm > 10
            gradients = parameters(expected[f"gradient/{step}"], tmp_path)
            for name, parameter in bilm.named_parameters():
                close(parameter.grad, gradients[name])
            optimizer.step(0.2)
            weights = parameters(expected[f"weights/{step + 1}"], tmp_path)
            for name, parameter in bilm.named_parameters():
                close(parameter.detach(), weights[name])
            for direction, way in enumerate(("forward", "backward")):
                for layer in range(2):
                    for part in ("c", "h"):
                        found = getattr(state, part)[layer, direction]
                        close(found, expected[f"state/{step}/{way}/layer{layer}/{part}"])


def close(found: Tensor, wanted: h5py.Dataset | Tensor) -> None:
    single = found.dtype == torch.float32
    np.testing.assert_allclose(
        found.numpy(), wanted[...], rtol=1e-5 if single else 0.0, atol=2 * TOLERANCE if single else TOLERANCE
    )


def split(batch: Batch, part: int, parts: int) -> Batch:
    """Some of the rows of a time-major batch."""
    def some(places: Tensor) -> Tensor:
        return places.view(2, UNROLL, 3).tensor_split(parts, dim=2)[part].reshape(2, -1)

    return Batch(batch.words, some(batch.inputs), some(batch.targets))
