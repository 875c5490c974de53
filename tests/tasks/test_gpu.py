"""Tasks on a GPU: the layers stay there, a run resumes, and its model answers on a CPU as it did there."""

import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

from elmo.embed.embedder import Embedder
from elmo.tasks.coref.model import SpanRanker
from elmo.tasks.frozen import FrozenLayers
from elmo.tasks.inputs import Inputs
from elmo.tasks.ner.model import TASK
from elmo.tasks.predict import load_task
from elmo.tasks.train import TaskTraining
from elmo.training.run import Run
from embedders import fresh, pretrained
from tasks import small_squad
from tasks.small_coref import EIGHT, small_config
from tasks.small_ner import recipe, splits, write_elmo, write_vectors

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def test_layers_are_looked_up_on_the_device(tmp_path: Path) -> None:
    sentences = [("The", "cat", "sat"), ("Dogs", "bark", "at", "night", ".")]
    layers = FrozenLayers(Embedder(pretrained(), device="cuda"), sentences, tmp_path)
    assert layers._on_device is not None and layers._on_device.is_cuda
    for texts in (sentences[::-1], [sentences[0], ("something", "new")]):
        found = layers.layers(texts)
        assert found.activations.is_cuda and found.mask.is_cuda
        for row, sentence in enumerate(texts):
            ours = found.activations[:, row, : len(sentence)].cpu().numpy()
            assert np.abs(ours - fresh(sentence)).max() < 2e-3
            assert not found.activations[:, row, len(sentence) :].any()


@pytest.mark.parametrize("change", ["inputs.elmo.placement=both", "inputs.elmo.trainable=true"])
def test_a_task_is_trained_and_answers_on_a_cpu_as_on_the_device(change: str, tmp_path: Path) -> None:
    changes = [
        f"inputs.elmo.model={write_elmo(tmp_path / 'elmo')}", f"inputs.vectors={write_vectors(tmp_path / 'glove.txt')}",
        "train.device=cuda", "train.epochs=20", "dropout=0", change,
    ]  # fmt: skip
    training = TaskTraining(TASK, recipe(*changes), splits(40, 12, 12), tmp_path / "run", cache=tmp_path / "cache")
    assert training.train()
    scores = Run.open(tmp_path / "run").record["scores"]
    assert scores["dev"]["f1"] > 80
    items = [list(example.texts[0]) for example in splits()["test"]]
    on_cpu, on_device = (load_task(tmp_path / "run" / "model", device).predict(items) for device in ("cpu", "cuda"))
    assert on_cpu == on_device


def test_a_loss_over_windows_is_that_of_a_cpu_and_waits_for_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Questions about paragraphs; the second step would raise an error where the CPU waits for the device."""
    monkeypatch.setattr("elmo.tasks.squad.paragraph.WINDOW", 10)
    monkeypatch.setattr("elmo.tasks.squad.paragraph.STRIDE", 5)
    files, examples = small_squad.write_files(tmp_path), small_squad.eight()
    found = {}
    for device in ("cpu", "cuda"):
        config = small_squad.small(files, "both", f"train.device={device}")
        data = {"train": examples, "dev": examples}
        training = TaskTraining(small_squad.TASK, config, data, tmp_path / device, cache=tmp_path / "cache")
        losses = []
        for mode in ("default", "error"):
            torch.cuda.set_sync_debug_mode(mode)
            try:
                loss = training.model.loss(examples)
                torch.autograd.backward(loss)
            finally:
                torch.cuda.set_sync_debug_mode("default")
            losses.append(loss.item())
        assert losses[0] == pytest.approx(losses[1], abs=1e-5)
        found[device] = losses[0]
    assert found["cuda"] == pytest.approx(found["cpu"], abs=1e-4)


def test_coreference_has_the_same_loss_and_answers_as_on_a_cpu_and_waits_once() -> None:
    """The GPU is waited for once: its scores of all spans are pruned on the CPU."""
    torch.manual_seed(0)
    losses, found = [], []
    config = small_config("both", spans_per_token=2.0)
    weights = None
    for device in ("cpu", "cuda"):
        frozen = FrozenLayers(Embedder(pretrained(), device=device), (text for one in EIGHT for text in one.texts))
        ranker = SpanRanker(config, Inputs(config.inputs, frozen=frozen), ["news", "talk"]).to(device)
        weights = ranker.state_dict() if weights is None else weights
        ranker.load_state_dict(weights)
        ranker.loss(EIGHT)  # kernels are loaded
        with warnings.catch_warnings(record=True) as waits:
            warnings.simplefilter("always")
            torch.cuda.set_sync_debug_mode("warn")
            loss = ranker.loss(EIGHT[:1])
            torch.cuda.set_sync_debug_mode("default")
        assert len(waits) == (1 if device == "cuda" else 0), [str(one.message) for one in waits]
        loss.backward()
        losses.append(loss.item())
        with torch.no_grad():
            found.append(ranker.eval().answers(EIGHT))
    assert abs(losses[0] - losses[1]) < 1e-3 * abs(losses[0])
    assert found[0] == found[1]
