"""AllenNLP's names give bilm-tf's numbers, with the state carried as in both of them."""

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from elmo.errors import ConfigError, DataError, WeightsError
from elmo.integrations import allennlp
from elmo.integrations.allennlp import Elmo, ElmoBiLm, ElmoEmbedder, ScalarMix, batch_to_ids
from elmo.weights.download import cache_folder
from embedders import DIM, N_LAYERS, OPTIONS, REFERENCE, WEIGHTS, assert_close, fresh, nothing_new_in
from models import write_published
from reference_files import VARIANTS, reference

Files = tuple[Path, Path]
SENTENCES = [["The", "cat", "sat", "."], ["naïve"], ["on", "the", "mat"]]
C = 20  # characters per token of the small model


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return write_published(tmp_path, OPTIONS, WEIGHTS)


def published_batches(name: str) -> tuple[Path, Path, list[list[list[str]]], int]:
    folder = reference(name)
    options = json.loads((folder / "options.json").read_text())
    (weights,) = folder.glob("*weights*.hdf5")
    batches = json.loads((folder / "batches.json").read_text())
    return folder / "options.json", weights, batches, options["char_cnn"]["max_characters_per_token"]


def expected_layers(name: str, batches: list[list[list[str]]]) -> Iterator[list[NDArray[np.float32]]]:
    with h5py.File(reference(name) / "expected.hdf5") as file:
        for number, batch in enumerate(batches):
            yield [file[f"carried/{number}/{row}"][...] for row in range(len(batch))]


ALL = [f"variants/{name}" for name in VARIANTS]


@pytest.mark.parametrize("name", ALL)
def test_the_embedder_gives_what_bilm_tf_computed_batch_after_batch(name: str) -> None:
    options, weights, batches, _ = published_batches(name)
    embedder = ElmoEmbedder(str(options), str(weights))
    for batch, expected in zip(batches, expected_layers(name, batches), strict=True):
        for found, theirs in zip(embedder.embed_batch(batch), expected, strict=True):
            assert_close(found, theirs)


@pytest.mark.parametrize("name", ALL)
def test_the_module_gives_what_bilm_tf_computed_batch_after_batch(name: str) -> None:
    options, weights, batches, characters = published_batches(name)
    with h5py.File(reference(name) / "expected.hdf5") as file:
        n_layers = len(file["carried/0/0"])
    biLM = ElmoBiLm(options, weights)  # noqa: N806
    assert biLM.num_layers == n_layers
    top = [-9e10] * (n_layers - 1) + [1.0]
    elmo = Elmo(options, weights, 1, dropout=0.0, scalar_mix_parameters=top)
    average = Elmo(options, weights, 2, dropout=0.0)
    for batch, expected in zip(batches, expected_layers(name, batches), strict=True):
        ids = batch_to_ids(batch, characters)
        layers, output, mean = biLM(ids), elmo(ids), average(ids)
        assert output["mask"].sum(dim=1).tolist() == [len(sentence) for sentence in batch]
        for row, theirs in enumerate(expected):
            n = len(batch[row])
            assert_close(np.stack([layer[row, 1 : n + 1].numpy() for layer in layers["activations"]]), theirs)
            assert_close(output["elmo_representations"][0][row, :n].numpy(), theirs[-1])
            assert not output["elmo_representations"][0][row, n:].any()
            for mixed in mean["elmo_representations"]:
                assert_close(mixed[row, :n].detach().numpy(), theirs.mean(axis=0))


# Ids


def test_ids_are_allennlps() -> None:
    ids = batch_to_ids([["ab", "日"], ["c"], []])
    assert ids.shape == (3, 2, 50)
    assert ids[0, 0, :6].tolist() == [259, 98, 99, 260, 261, 261]
    assert ids[0, 1, :6].tolist() == [259, 0xE6 + 1, 0x97 + 1, 0xA5 + 1, 260, 261]
    assert not ids[1, 1].any() and not ids[2].any()
    assert batch_to_ids([]).shape == (0, 0, 50)
    with pytest.raises(DataError, match=r"sentence 1 is a string; expected a list of tokens, such as text\.split\(\)"):
        batch_to_ids([["a"], "b c"])


# The module


def test_shapes_and_defaults(files: Files) -> None:
    elmo = Elmo(*files, 2)
    assert elmo.get_output_dim() == DIM
    assert [name for name, parameter in elmo.named_parameters() if parameter.requires_grad] == [
        f"scalar_mix_{k}.{name}" for k in (0, 1) for name in ("gamma", *(f"scalar_parameters.{j}" for j in range(3)))
    ]
    output = elmo(batch_to_ids(SENTENCES, C))
    assert set(output) == {"elmo_representations", "mask"}
    first, second = output["elmo_representations"]
    assert first.shape == second.shape == (3, 4, DIM)
    assert output["mask"].dtype == torch.bool
    dropped = (first[output["mask"]] == 0).float().mean().item()
    assert 0.3 < dropped < 0.7  # dropout 0.5 is on, and different in each
    assert not torch.equal(first, second)
    elmo.eval().reset_states()
    assert_close(elmo(batch_to_ids(SENTENCES, C))["elmo_representations"][0][0].detach().numpy(),
                 fresh(SENTENCES[0]).mean(axis=0))  # fmt: skip


def test_further_dimensions_are_rows_of_the_batch(files: Files) -> None:
    elmo, flat = (Elmo(*files, 1).eval() for _ in range(2))
    ids = batch_to_ids([*SENTENCES, ["a"]], C)
    found, expected = elmo(ids.view(2, 2, 4, C)), flat(ids)
    assert found["mask"].shape == (2, 2, 4)
    assert torch.equal(found["elmo_representations"][0].flatten(0, 1), expected["elmo_representations"][0])


def test_batches_without_tokens(files: Files) -> None:
    elmo = Elmo(*files, 1, vocab_to_cache=["@@PADDING@@", "a"])
    ids = batch_to_ids([[], []], C)
    for words in (None, torch.zeros(2, 0, dtype=torch.long)):
        output = elmo(ids, words)
        assert (output["elmo_representations"][0].shape, output["mask"].shape) == ((2, 0, DIM), (2, 0))


def test_boundaries_may_be_kept(files: Files) -> None:
    elmo = Elmo(*files, 1, keep_sentence_boundaries=True).eval()
    output = elmo(batch_to_ids(SENTENCES, C))
    assert output["mask"].sum(dim=1).tolist() == [6, 3, 5]
    assert_close(output["elmo_representations"][0][1, 1:2].detach().numpy(), fresh(SENTENCES[1]).mean(axis=0))


def test_a_smaller_batch_keeps_the_states_of_other_rows_and_a_larger_one_begins_new_rows(files: Files) -> None:
    biLM = ElmoBiLm(*files)  # noqa: N806
    states: dict[int, Any] = {}
    for batch in (SENTENCES[:2], SENTENCES[:1], SENTENCES):
        layers = biLM(batch_to_ids(batch, C))["activations"]
        for row, sentence in enumerate(batch):
            expected, states[row] = REFERENCE.layers(sentence, states.get(row))
            found = np.stack([layer[row, 1 : len(sentence) + 1].numpy() for layer in layers])
            assert_close(found, expected)
    biLM.stateful = False
    found = np.stack([layer[0, 1:5].numpy() for layer in biLM(batch_to_ids(SENTENCES, C))["activations"]])
    assert_close(found, fresh(SENTENCES[0]))


def test_the_layer_norm_counts_boundaries_as_allennlp_does(files: Files) -> None:
    elmo = Elmo(*files, 1, do_layer_norm=True, keep_sentence_boundaries=True).eval()
    output = elmo(batch_to_ids(SENTENCES, C))
    layers = ElmoBiLm(*files)(batch_to_ids(SENTENCES, C))
    mask = layers["mask"].numpy()
    tokens = np.stack([layer.numpy()[mask] for layer in layers["activations"]])  # (L+1, all tokens, 2D)
    assert mask.sum() == 8 + 6
    mean, deviation = (f(tokens, axis=(1, 2), keepdims=True) for f in (np.mean, np.std))
    expected = ((tokens - mean) / deviation).mean(axis=0)
    assert_close(output["elmo_representations"][0].detach().numpy()[mask], expected)


def test_cached_words_give_the_same_and_others_are_read_as_characters(files: Files) -> None:
    vocabulary = ["@@PADDING@@", "@@UNKNOWN@@", "The", "cat", "sat", ".", "naïve", "on", "the"]
    cached, plain = Elmo(*files, 1, vocab_to_cache=vocabulary).eval(), Elmo(*files, 1).eval()
    for sentences in (SENTENCES[:2], [["cat"], ["on", "the"]], SENTENCES):  # the last has an unknown word
        ids = batch_to_ids(sentences, C)
        words = torch.zeros(ids.shape[:2], dtype=torch.long)
        for row, sentence in enumerate(sentences):
            for place, word in enumerate(sentence):
                words[row, place] = vocabulary.index(word) if word in vocabulary else len(vocabulary)
        known = int(words.max()) < len(vocabulary)
        found = cached(torch.zeros_like(ids) if known else ids, words)
        expected = plain(ids)
        assert torch.equal(found["mask"], expected["mask"])
        assert_close(*(one["elmo_representations"][0].detach().numpy() for one in (found, expected)))


def test_the_bilm_is_trained_only_with_requires_grad(files: Files) -> None:
    for requires_grad in (False, True):
        elmo = Elmo(*files, 1, requires_grad=requires_grad, dropout=0.0)
        for _ in range(2):  # the state that is carried is detached
            elmo(batch_to_ids(SENTENCES, C))["elmo_representations"][0].square().sum().backward()
        trained = [name for name, parameter in elmo.named_parameters() if parameter.grad is not None]
        assert any(name.startswith("_elmo_lstm.bilm.token_encoder") for name in trained) == requires_grad
        assert "scalar_mix_0.gamma" in trained


def test_a_biLM_may_be_shared_or_be_ones_own(files: Files) -> None:  # noqa: N802
    shared = ElmoBiLm(*files)
    first, second = (Elmo(None, None, 1, module=shared).eval() for _ in range(2))
    ids = batch_to_ids(SENTENCES, C)
    found, carried = first(ids)["elmo_representations"][0], second(ids)["elmo_representations"][0]
    assert (found - carried).abs().max() > 1e-4
    with pytest.raises(ConfigError, match="give options_file and weight_file, or a module"):
        Elmo(*files, 1, module=shared)
    with pytest.raises(ConfigError, match="give options_file and weight_file, or a module"):
        Elmo(None, None, 1)


def test_the_mix_is_the_formula() -> None:
    mix = ScalarMix(2, initial_scalar_parameters=[0.5, -1.0])
    with torch.no_grad():
        mix.gamma.fill_(3.0)
    tensors = [torch.full((1, 2, 4), 2.0), torch.full((1, 2, 4), 10.0)]
    share = np.exp(0.5) / (np.exp(0.5) + np.exp(-1.0))
    assert_close(mix(tensors).detach().numpy(), np.full((1, 2, 4), 3 * (share * 2 + (1 - share) * 10)))
    with pytest.raises(ConfigError, match=r"scalar mix parameters are \[1.0\]; expected 2, one per layer"):
        ScalarMix(2, initial_scalar_parameters=[1.0])
    with pytest.raises(ConfigError, match="1 tensors were given to a mix of 2"):
        mix(tensors[:1])
    with pytest.raises(ConfigError, match="needs the mask"):
        ScalarMix(2, do_layer_norm=True)(tensors)


# The embedder


def test_sentences_batches_and_one_sentence(files: Files) -> None:
    embedder = ElmoEmbedder(*files)
    assert embedder.embed_sentence(SENTENCES[0]).shape == (N_LAYERS, 4, DIM)
    embedder.reset_states()
    states: dict[int, Any] = {}
    for number, array in enumerate(embedder.embed_sentences(iter(SENTENCES), batch_size=2)):
        expected, states[number % 2] = REFERENCE.layers(SENTENCES[number], states.get(number % 2))
        assert_close(array, expected)
    embedder.reset_states()
    activations, mask = embedder.batch_to_embeddings(SENTENCES)
    assert activations.shape == (3, N_LAYERS, 4, DIM)
    assert mask.sum(dim=1).tolist() == [4, 1, 3]
    assert_close(activations[2, :, :3].numpy(), fresh(SENTENCES[2]))
    assert not activations[2, :, 3:].any()


def test_empty_sentences(files: Files) -> None:
    embedder = ElmoEmbedder(*files)
    assert embedder.embed_sentence([]).shape == (N_LAYERS, 0, DIM)
    assert_close(embedder.embed_sentence(SENTENCES[0]), fresh(SENTENCES[0]))  # the state was left alone
    assert [array.shape[1] for array in embedder.embed_batch([[], ["a"]])] == [0, 1]
    with pytest.raises(DataError, match="sentence 0 is a string"):
        embedder.embed_sentence("The cat")


def test_a_device_that_is_not_there(files: Files) -> None:
    with pytest.raises(ConfigError, match="device 'cuda:99' is not available"):
        ElmoEmbedder(*files, cuda_device=99)


def test_files_are_written_as_allennlp_wrote_them(files: Files, tmp_path: Path) -> None:
    lines = "The cat sat .\n\nnaïve\nThe cat sat .\n"
    embedder = ElmoEmbedder(*files)
    arrays = list(embedder.embed_sentences([line.split() for line in lines.splitlines()]))
    for form, select in {
        "all": lambda array: array,
        "top": lambda array: array[-1],
        "average": lambda array: array.mean(axis=0),
    }.items():
        embedder.reset_states()
        embedder.embed_file(io.StringIO(lines), str(tmp_path / f"{form}.hdf5"), form)
        with h5py.File(tmp_path / f"{form}.hdf5") as file:
            assert json.loads(file["sentence_to_index"][0]) == {"The cat sat .": "3", "": "1", "naïve": "2"}
            for number, array in enumerate(arrays):
                assert_close(file[str(number)][...], select(array))
    embedder.embed_file(io.StringIO("a b\nc\n"), tmp_path / "keys.hdf5", forget_sentences=True, use_sentence_keys=True)
    embedder.embed_file(io.StringIO("a b\nc\n"), tmp_path / "forgot.hdf5", forget_sentences=True)
    with h5py.File(tmp_path / "keys.hdf5") as keys, h5py.File(tmp_path / "forgot.hdf5") as forgot:
        assert (set(keys), set(forgot)) == ({"a b", "c"}, {"0", "1"})


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("a\n", {"output_format": "best"}, "output_format is 'best'; expected all, top or average"),
        ("a\na\n", {"use_sentence_keys": True}, "line 2 is a duplicate, so it cannot be a name"),
        ("and/or\n", {"use_sentence_keys": True}, "line 1 is empty, '.', or has a slash"),
    ],
)
def test_files_that_cannot_be_written(
    files: Files, tmp_path: Path, text: str, options: dict[str, Any], message: str
) -> None:
    embedder = ElmoEmbedder(*files)
    with nothing_new_in(tmp_path), pytest.raises((ConfigError, DataError), match=message):
        embedder.embed_file(io.StringIO(text), tmp_path / "out.hdf5", **options)
    (tmp_path / "out.hdf5").write_bytes(b"mine")
    with pytest.raises(DataError, match=r"out\.hdf5: exists already"):
        embedder.embed_file(io.StringIO("a\n"), tmp_path / "out.hdf5")
    assert (tmp_path / "out.hdf5").read_bytes() == b"mine"


# Files


def test_addresses_of_published_models_share_the_cache_with_their_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ELMO_OFFLINE", "1")
    assert allennlp.DEFAULT_WEIGHT_FILE.endswith("elmo_2x4096_512_2048cnn_2xhighway_weights.hdf5")
    folder = cache_folder() / "published" / "original"
    with pytest.raises(WeightsError, match=str(folder / "weights.hdf5")):
        ElmoEmbedder()
    with pytest.raises(WeightsError, match=rf"{cache_folder()}/urls/[0-9a-f]{{16}}/my_weights\.hdf5: not there"):
        Elmo("https://example.org/my_options.json", "https://example.org/my_weights.hdf5", 1)


def test_any_model_of_this_library_can_be_used() -> None:
    elmo = Elmo(None, "english", 1).eval()
    assert elmo(batch_to_ids(SENTENCES))["elmo_representations"][0].shape == (3, 4, 256)


def test_what_does_not_fit_together(files: Files) -> None:
    with pytest.raises(ConfigError, match="requires_grad=True trains the token encoder, but vocab_to_cache keeps"):
        Elmo(*files, 1, requires_grad=True, vocab_to_cache=["a"])
