"""ELMoForManyLangs: the vectors of its own program, and of an independent NumPy implementation; and what is refused."""

import copy
import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch

import elmo
from command_lines import run_line
from elmo.errors import ConfigError, DataError, ElmoError, WeightsError
from elmo.model.bilm import BiLM
from elmo.tasks.inputs import ElmoConfig, Inputs, InputsConfig
from elmo.weights import bilm_tf, many_langs, source
from many_langs_reference import SIZES, ManyLangsReference, folder_of
from reference_files import reference

MODELS = ["both", "words", "characters"]
SENTENCES = [  # of tests/reference/many_langs/make.py
    ["the", "cat", "sat", "on", "日本", "."],
    ["語" * 60, "x y", "the\u3000cat", "🙂", "<bos>"],
    ["a", "<eos>", "the", ""],
    ["naïve"],
]
TEXT = [["the", "cat", "🙂"], [], ["straightforward", "straight", "", "<oov>", "語語"], ["<bos>", "thecat", "g"]]


def changed(**parts: dict[str, Any]) -> dict[str, Any]:
    """The sizes of a small model with other values."""
    sizes = copy.deepcopy(SIZES)
    for part, values in parts.items():
        sizes[part] |= values
    return sizes


# The numbers

@pytest.mark.parametrize("name", MODELS)
def test_the_vectors_that_its_own_program_computes(name: str) -> None:
    folder = reference(f"many_langs/{name}")
    model = elmo.load(folder, device="cpu")
    with h5py.File(folder / "expected.hdf5") as file:
        for k, array in enumerate(model.embed(SENTENCES)):
            np.testing.assert_allclose(array, file[f"fresh/{k}"][...], atol=1e-5)
        for call in range(3):  # its program carries the state from one call to the next
            for k, array in enumerate(model.embed(SENTENCES, state="carried")):
                np.testing.assert_allclose(array, file[f"carried/{call}/{k}"][...], atol=1e-5)


@pytest.mark.parametrize(
    "sizes",
    [
        SIZES,
        changed(token_embedder={"word_dim": 0}),
        changed(token_embedder={"char_dim": 0}),
        changed(token_embedder={"activation": "tanh", "n_highway": 0}),
        changed(token_embedder={"filters": [[1, 3], [10, 2]], "n_highway": 1}, encoder={"n_layers": 3}),
        changed(encoder={"cell_clip": 0.3, "proj_clip": 0, "dim": 3}),
        changed(encoder={"cell_clip": None, "proj_clip": None, "n_layers": 1}),
    ],
)
def test_every_layer_is_that_of_an_independent_implementation(sizes: dict[str, Any], tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "model", sizes, seed=len(str(sizes)))
    model, expected = elmo.load(folder, device="cpu"), ManyLangsReference(folder)
    for _ in range(2):  # the second time the words are in the cache
        for array, sentence in zip(model.embed(TEXT), TEXT, strict=True):
            np.testing.assert_allclose(array, expected.layers(sentence)[0], atol=1e-5)
    dim = sizes["encoder"]["projection_dim"]
    for array in model.embed(TEXT):
        assert np.array_equal(array[0, :, :dim], array[0, :, dim:])  # layer 0 is [x; x]
    states: list[Any] = [None] * len(TEXT)
    for _ in range(2):
        for row, array in enumerate(model.embed(TEXT, state="carried")):
            theirs, states[row] = expected.layers(TEXT[row], states[row])
            np.testing.assert_allclose(array, theirs, atol=1e-5)


def test_ids_and_the_module_for_tasks(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "model")
    model, expected = elmo.load(folder, device="cpu"), ManyLangsReference(folder)
    ids = model.ids(TEXT)
    assert ids.shape == (4, 7, 11)
    output = elmo.Elmo(model, mix="layer:1", dropout=0.0)(ids)
    np.testing.assert_allclose(output.representations[0][2, :5].detach(), expected.layers(TEXT[2])[0][1], atol=1e-5)
    assert output.mask.sum(dim=1).tolist() == [3, 0, 5, 3]
    for wrong in (ids.clone().fill_(18), ids[:, :, 1:]):
        with pytest.raises(DataError, match="expected ids"):
            model.bilm(wrong)
    high = ids.clone()
    high[0, 0, 0] = 9  # a character could be, but there are 7 words
    with pytest.raises(DataError, match="ids of characters are above 7"):
        model.bilm(high)


# Files

def test_our_folder_keeps_everything(tmp_path: Path) -> None:
    theirs = folder_of(tmp_path / "theirs")
    done = run_line(f"elmo convert {theirs} {tmp_path / 'ours'}")
    assert done.code == 0, done.err
    files = {path.name for path in (tmp_path / "ours").iterdir()}
    assert files == {"config.json", "model.safetensors", "warm_state.safetensors", "word.dic", "char.dic"}
    one, two = elmo.load(theirs, device="cpu"), elmo.load(tmp_path / "ours", device="cpu")
    assert one.fingerprint() == two.fingerprint()
    ours = two.bilm.state_dict()
    assert all(torch.equal(tensor, ours[name]) for name, tensor in one.bilm.state_dict().items())
    for state in ("fresh", "warm"):
        for a, b in zip(one.embed(TEXT, state=state), two.embed(TEXT, state=state), strict=True):
            np.testing.assert_allclose(a, b, atol=1e-6)
    for option, tolerance in (("--float16", 2e-2), ("--int8", 0.2)):
        done = run_line(f"elmo convert {tmp_path / 'ours'} {tmp_path / option} {option}")
        assert done.code == 0, done.err
        rounded = elmo.load(tmp_path / option, device="cpu")
        for a, b in zip(one.embed(TEXT), rounded.embed(TEXT), strict=True):
            np.testing.assert_allclose(a, b, atol=tolerance)
    info = run_line(f"elmo info {tmp_path / 'ours'}")
    assert "a table of 7 words of 3, an alphabet of 17 code points, 10 characters of 5" in info.out


def test_a_copy_in_another_process_has_the_words(tmp_path: Path) -> None:
    model = elmo.load(folder_of(tmp_path / "model"), device="cpu")
    again = pickle.loads(pickle.dumps(model))
    for a, b in zip(model.embed(TEXT), again.embed(TEXT), strict=True):
        assert np.array_equal(a, b)


def test_its_sizes_are_found_wherever_the_program_was(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "model")
    expected = elmo.load(folder, device="cpu").fingerprint()
    for path in ("/home/someone/configs/sizes.json", "configs/sizes.json", r"C:\elmo\sizes.json"):
        (folder / "config.json").write_text(json.dumps({"config_path": path, "seed": 1}))
        assert elmo.load(folder, device="cpu").fingerprint() == expected
    (folder / "configs").mkdir()
    shutil.move(folder / "sizes.json", folder / "configs")
    assert elmo.load(folder, device="cpu").fingerprint() == expected
    (folder / "config.json").write_text(json.dumps({"config_path": "/x/other.json"}))
    with pytest.raises(WeightsError, match=r"no 'other\.json', which config\.json names; it has the sizes"):
        source.read(folder)


def test_the_sizes_that_came_with_the_program(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "model")
    (folder / "config.json").write_text(json.dumps({"config_path": "/x/cnn_50_100_512_4096_sample.json"}))
    # Read: the weights of this small model are not those of the sizes.
    with pytest.raises(WeightsError, match=r"'word_emb_layer.embedding.weight' has shape \(7, 3\).*need \(7, 100\)"):
        source.read(folder)


def test_the_size_of_a_published_model() -> None:
    from elmo.model.bilm import BiLMConfig
    from elmo.model.char_cnn import CharCNNConfig
    from elmo.model.many_langs_encoder import ManyLangsConfig

    cnn = CharCNNConfig(embedding_dim=50, n_characters=6000)
    config = BiLMConfig(char_cnn=None, many_langs=ManyLangsConfig(150_000, 100, cnn, 2))
    with torch.device("meta"):
        bilm = BiLM(config)
    filters = sum(width * 50 * count + count for width, count in cnn.filters)
    tokens = 150_000 * 100 + 6000 * 50 + filters + 2 * (2048 * 4096 + 4096) + 2148 * 512 + 512
    assert bilm.n_parameters() == tokens + 4 * (1024 * 16384 + 16384 + 4096 * 512)


# What is refused

def write_sizes(folder: Path, sizes: dict[str, Any]) -> None:
    (folder / "sizes.json").write_text(json.dumps(sizes))


def write_weights(folder: Path, change: Callable[[dict[str, Any]], Any], file: str = "encoder.pkl") -> None:
    tensors = torch.load(folder / file, weights_only=True)
    torch.save(change(tensors), folder / file)


class Harmful:
    def __reduce__(self) -> tuple[Any, ...]:
        return Path("ran").touch, ()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: write_sizes(f, changed(encoder={"name": "lstm"})), "has the encoder 'lstm'; only 'elmo'"),
        (lambda f: write_sizes(f, changed(token_embedder={"name": "lstm"})), "has the encoder 'lstm'; only 'cnn'"),
        (lambda f: write_sizes(f, changed(encoder={"dim": 4})), "encoder.dim is encoder.projection_dim"),
        (lambda f: write_sizes(f, {"encoder": SIZES["encoder"]}), "'token_embedder' is missing in the sizes"),
        (lambda f: write_sizes(f, changed(token_embedder={"filters": 3})), "unexpected form"),
        (lambda f: write_sizes(f, changed(token_embedder={"activation": "x"})), "char_cnn.activation is 'x'"),
        (lambda f: write_sizes(f, changed(token_embedder={"char_dim": 6})), r"has shape \(17, 5\); the sizes"),
        (lambda f: write_sizes(f, changed(encoder={"n_layers": 3})), "no tensor 'forward_layer_2.state_linearity"),
        (lambda f: write_sizes(f, changed(encoder={"n_layers": 1})), "'backward_layer_1.* is not in the sizes"),
        (lambda f: write_sizes(f, changed(token_embedder={"n_highway": 1})), "'highways._layers.1.* is not in"),
        (lambda f: (f / "config.json").write_text("{}"), r"config\.json: has no config_path"),
        (lambda f: (f / "char.dic").unlink(), r"char\.dic: cannot be read"),
        (lambda f: (f / "word.dic").write_text("<oov>\t99\n"), "row 99 of a table of 7 rows"),
        (lambda f: (f / "encoder.pkl").write_bytes(b"\x80\x02garbage"), r"encoder\.pkl: damaged, or has other"),
        (lambda f: (f / "encoder.pkl").write_bytes(b""), r"encoder\.pkl: damaged"),
        (lambda f: write_weights(f, lambda t: list(t.values())), r"encoder\.pkl: expected the tensors of a model"),
        (lambda f: write_weights(f, lambda t: t | {"x": 3}), r"encoder\.pkl: expected the tensors of a model"),
        (lambda f: write_weights(f, lambda t: t | {"x": torch.ones(2)}), "'x' is not in the sizes"),
        (lambda f: write_weights(f, lambda t: {k: v * np.nan for k, v in t.items()}), "contains NaN or infinity"),
        (lambda f: write_weights(f, lambda t: t | {"x": Harmful()}), "could run any code when read; refused"),
    ],
)  # fmt: skip
def test_a_wrong_folder_is_one_line(
    damage: Callable[[Path], Any], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = folder_of(tmp_path / "model")
    damage(folder)
    with pytest.raises(ElmoError, match=message) as error:
        source.read(folder)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "ran").exists()


def test_truncated_pickles_are_one_line(tmp_path: Path) -> None:
    for name in MODELS:
        folder = shutil.copytree(reference(f"many_langs/{name}"), tmp_path / name)
        whole = (folder / "token_embedder.pkl").read_bytes()
        for size in range(0, len(whole), 97):
            (folder / "token_embedder.pkl").write_bytes(whole[:size])
            with pytest.raises(WeightsError, match=r"token_embedder\.pkl: "):
                many_langs.read(folder)


def test_what_other_parts_cannot_do_with_it(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "model")
    bilm = source.read(folder).bilm
    with pytest.raises(WeightsError, match="the published format has no place for the words and characters"):
        bilm_tf.write(bilm, tmp_path / "options.json", tmp_path / "weights.hdf5")
    with pytest.raises(WeightsError, match="which has its own options and words"):
        source.read(folder, options=tmp_path / "options.json")
    with pytest.raises(ConfigError, match=r"inputs\.elmo\.trainable is true, but this biLM does not"):
        Inputs(InputsConfig(elmo=ElmoConfig(trainable=True)), bilm=bilm)
    with pytest.raises(ElmoError, match="softmax"):
        elmo.load(folder, softmax=True, device="cpu").score(["the"])


def test_one_value_that_claims_to_be_many(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "model")
    tensors = torch.load(folder / "encoder.pkl", weights_only=True)
    tensors["forward_layer_0.state_projection.weight"] = torch.zeros(1).expand(1 << 40)
    torch.save(tensors, folder / "encoder.pkl")
    message = r"encoder.pkl: 'forward_layer_0.state_projection.weight' has more values than the file; it is damaged"
    with pytest.raises(WeightsError, match=message):
        many_langs.read(folder)


@pytest.mark.parametrize("name", ["x" * 300, "\ud800", "é" * 200])
def test_sizes_in_a_file_of_a_name_that_none_can_have(name: str, tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "model")
    (folder / "config.json").write_text(json.dumps({"config_path": name}))
    with pytest.raises(WeightsError, match=r"which config.json names; it has the sizes of the model"):
        many_langs.read(folder)
