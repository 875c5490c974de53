"""The layers of a corpus: computed once, stored, looked up by any number of runs."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import elmo
from elmo.errors import DataError
from elmo.tasks import frozen
from elmo.tasks.frozen import FrozenLayers
from embedders import REFERENCE, embedder, fresh, warm_reference

SENTENCES = [("The", "cat", "sat"), ("Dogs", "bark", "at", "night", "."), ("Naïve",)]


def test_layers_are_computed_once_and_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = FrozenLayers(embedder(), SENTENCES, tmp_path)
    (kept,) = tmp_path.iterdir()
    assert kept.name.startswith(embedder().fingerprint())
    assert np.load(kept, mmap_mode="r").shape == (9, 3, embedder().dim)
    monkeypatch.setattr(elmo.Embedder, "embed", lambda *_, **__: pytest.fail("computed again"))
    again = FrozenLayers(embedder(), SENTENCES, tmp_path)
    chosen = [SENTENCES[2], SENTENCES[0], SENTENCES[2]]
    ours, theirs = again.layers(chosen), first.layers(chosen)
    assert torch.equal(ours.activations, theirs.activations)
    assert torch.equal(ours.mask, theirs.mask)
    for row, sentence in enumerate(chosen):
        error = np.abs(ours.activations[:, row, : len(sentence)].numpy() - fresh(sentence)).max()
        assert error < 2e-3


def test_layers_that_are_kept_on_a_device_are_the_same() -> None:
    """Looked up by rows, the last of which is zero; and each layer is in one piece, as the mixes read it."""
    layers = FrozenLayers(embedder(), SENTENCES)
    expected = layers.layers(SENTENCES)
    assert layers._stored is not None
    layers._on_device = frozen._with_zeros(layers._stored.stored, torch.device("cpu"))
    found = layers.layers(SENTENCES)
    assert torch.equal(found.activations, expected.activations)
    assert torch.equal(found.mask, expected.mask)
    for one in (expected.activations, found.activations):
        assert one.is_contiguous() and one.dtype == torch.float32
        assert not one.permute(1, 2, 0, 3)[~found.mask].any()


def test_progress_is_reported_in_tokens(tmp_path: Path) -> None:
    reported: list[tuple[int, int]] = []
    FrozenLayers(embedder(), SENTENCES, tmp_path, lambda done, total: reported.append((done, total)))
    assert reported == [(3, 9), (8, 9), (9, 9)]


def test_other_texts_and_other_models_have_files_of_their_own(tmp_path: Path) -> None:
    FrozenLayers(embedder(), SENTENCES, tmp_path)
    FrozenLayers(embedder(), SENTENCES[:2], tmp_path)
    other = embedder()
    with torch.no_grad():
        next(other.bilm.parameters()).mul_(2)
    FrozenLayers(other, SENTENCES, tmp_path)
    FrozenLayers(embedder(), [("The cat", "sat"), *SENTENCES], tmp_path)
    FrozenLayers(embedder(), [("The", "cat sat"), *SENTENCES], tmp_path)
    assert len(list(tmp_path.iterdir())) == 5


def test_a_text_that_was_not_prepared_is_computed(tmp_path: Path) -> None:
    layers = FrozenLayers(embedder(), SENTENCES, tmp_path)
    new = ("Something", "new")
    found = layers.layers([SENTENCES[0], new])
    assert np.abs(found.activations[:, 1, :2].numpy() - fresh(new)).max() < 2e-3
    assert np.abs(found.activations[:, 0, :3].numpy() - fresh(SENTENCES[0])).max() < 2e-3
    assert found.mask.tolist() == [[True, True, True], [True, True, False]]
    assert not found.activations[:, 1, 2].any()


@pytest.mark.parametrize("state", ["warm", "carried"])
def test_the_state_before_a_text_is_the_asked_one(state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frozen, "PART", 6)  # tokens: the first two sentences, then the third
    before = warm_reference() if state == "warm" else None
    for _ in range(2):  # computed, then read
        layers = FrozenLayers(embedder(), [*SENTENCES, *SENTENCES[:1]], tmp_path, state=state)
    assert len(list(tmp_path.iterdir())) == 1
    for sentence in SENTENCES:
        wanted = REFERENCE.layers(sentence, before)[0]
        found = layers.layers([sentence]).activations[:, 0].numpy()
        assert np.abs(found - wanted).max() < 2e-3
    FrozenLayers(embedder(), SENTENCES, tmp_path)
    assert len(list(tmp_path.iterdir())) == 2


def test_a_carried_state_goes_from_batch_to_batch_and_starts_anew_in_every_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [(f"word{k}", "sat") for k in range(66)]  # a batch of 64, and two that continue its first rows
    carried = FrozenLayers(embedder(), texts, tmp_path, state="carried")
    _, state = REFERENCE.layers(texts[1])
    wanted = REFERENCE.layers(texts[65], state)[0]
    assert np.abs(carried.layers([texts[65]]).activations[:, 0].numpy() - wanted).max() < 2e-3
    monkeypatch.setattr(frozen, "PART", 130)
    again = FrozenLayers(embedder(), texts, tmp_path / "parts", state="carried")
    assert np.abs(again.layers([texts[65]]).activations[:, 0].numpy() - fresh(texts[65])).max() < 2e-3


@pytest.mark.parametrize("spoiled", [b"", b"\x93NUMPY nonsense", None])
def test_a_damaged_file_is_named(spoiled: bytes | None, tmp_path: Path) -> None:
    FrozenLayers(embedder(), SENTENCES, tmp_path)
    (kept,) = tmp_path.iterdir()
    if spoiled is None:
        np.save(kept, np.zeros((9, 3, 2), dtype=np.float16))
    else:
        kept.write_bytes(spoiled)
    with pytest.raises(DataError, match=rf"^{kept}: .*\. Remove it, and it is computed again$"):
        FrozenLayers(embedder(), SENTENCES, tmp_path)


@pytest.mark.parametrize("first", [0, 1, 2, 3])
def test_what_was_computed_before_an_interruption_is_not_computed_again(
    first: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frozen, "PART", 3)  # tokens: every sentence of three or more is a part
    whole = FrozenLayers(embedder(), SENTENCES, tmp_path / "whole").layers(SENTENCES)
    embed, computed = elmo.Embedder.embed, []

    def interrupted(self: elmo.Embedder, texts: Sequence[Any], **options: Any) -> Any:
        if len(computed) == first:
            raise KeyboardInterrupt
        computed.extend(texts)
        return embed(self, texts, **options)

    monkeypatch.setattr(elmo.Embedder, "embed", interrupted)
    if first < 3:
        with pytest.raises(KeyboardInterrupt):
            FrozenLayers(embedder(), SENTENCES, tmp_path / "layers")
        assert not list((tmp_path / "layers").glob("*.npy")), "a file that has the name is complete"
        first = -1
    reported: list[tuple[int, int]] = []
    again = FrozenLayers(embedder(), SENTENCES, tmp_path / "layers", lambda *values: reported.append(values))
    assert computed == list(SENTENCES)
    assert reported[-1] == (9, 9)
    assert [path.suffix for path in (tmp_path / "layers").iterdir()] == [".npy"]
    assert torch.equal(again.layers(SENTENCES).activations, whole.activations)


@pytest.mark.parametrize("when", [1, 2, 3])
def test_two_runs_may_compute_the_same(when: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One ends while the other is at its first, second or last part."""
    monkeypatch.setattr(frozen, "PART", 3)
    embed, calls = elmo.Embedder.embed, []

    def overtaken(self: elmo.Embedder, texts: Sequence[Any], **options: Any) -> Any:
        calls.append(texts)
        if len(calls) == when:
            FrozenLayers(embedder(), SENTENCES, tmp_path)
        return embed(self, texts, **options)

    monkeypatch.setattr(elmo.Embedder, "embed", overtaken)
    found = FrozenLayers(embedder(), SENTENCES, tmp_path).layers(SENTENCES)
    for row, sentence in enumerate(SENTENCES):
        assert np.abs(found.activations[:, row, : len(sentence)].numpy() - fresh(sentence)).max() < 2e-3
    assert len(calls) >= when and [path.suffix for path in tmp_path.iterdir()] == [".npy"]


def test_what_is_held_is_released_at_the_end_of_the_context() -> None:
    of = embedder()
    layers = FrozenLayers(of, [("w1",)])
    with layers.holding([("w2", "w3")]):
        inside = layers.layers([("w2", "w3"), ("w2", "w3")]).activations
        with layers.holding([("w4",)]):
            np.testing.assert_allclose(layers.layers([("w4",)]).activations[:, 0], fresh(["w4"]), atol=4e-3)
        np.testing.assert_allclose(layers.layers([("w1",)]).activations[:, 0], fresh(["w1"]), atol=4e-3)
        np.testing.assert_allclose(FrozenLayers(of).layers([("w2",)]).activations[:, 0], fresh(["w2"]), atol=4e-3)
    for row in (0, 1):
        np.testing.assert_allclose(inside[:, row], fresh(["w2", "w3"]), atol=4e-3)
    np.testing.assert_allclose(layers.layers([("w2", "w3")]).activations[:, 0], fresh(["w2", "w3"]), atol=4e-3)
