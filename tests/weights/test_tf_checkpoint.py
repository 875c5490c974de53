"""bilm-tf's training checkpoints: the model of the HDF5 file with the same values, and its softmax."""

import json
import logging
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import elmo
import tf_writer
from command_lines import run_line
from elmo.errors import WeightsError
from elmo.weights import bilm_tf, source, tf_checkpoint
from models import published, write_published
from numpy_reference import Options, Reference
from reference_files import reference

Arrays = dict[str, NDArray[np.float32]]
PARTS = {"W_0": "kernel", "B": "bias", "W_P_0": "projection/kernel"}
N_WORDS = 9
WORDS = ["<S>", "</S>", "<UNK>", "the", "cat", "sat", "on", "a", "mat"]


def new_name(name: str, one_layer: bool = False, one_direction: bool = False) -> str:
    """The name that TensorFlow 1.2 and later give to the variable of a dataset."""
    if not name.startswith("RNN_"):
        return f"lm/{name}"
    direction, _, _, cell, _, part = name.split("/")
    layers = "" if one_layer else f"multi_rnn_cell/cell_{cell.removeprefix('Cell')}/"
    return f"lm/{'' if one_direction else direction + '/'}rnn/{layers}lstm_cell/{PARTS[part]}"


def softmax_of(options: Options) -> Arrays:
    rng = np.random.default_rng(5)
    dim = options["lstm"]["projection_dim"]
    return {
        "lm/softmax/W": rng.standard_normal((N_WORDS, dim)).astype(np.float32),
        "lm/softmax/b": rng.standard_normal(N_WORDS).astype(np.float32),
    }


def training_run(folder: Path, options: Options, variables: Arrays, step: int = 1250) -> Path:
    """A folder as bilm-tf's training leaves it: also with an optimizer's slots."""
    slots = {f"{name}/Adagrad": np.ones_like(array) for name, array in variables.items()}
    others = {"global_step": np.array(step, dtype=np.float32), "train_perplexity": np.array(40, dtype=np.float32)}
    tf_writer.write_checkpoint(folder / f"model.ckpt-{step}", variables | slots | others)
    (folder / "options.json").write_text(json.dumps(options | {"bidirectional": True, "n_tokens_vocab": N_WORDS}))
    path = f"/home/someone/elmo/run/model.ckpt-{step}"  # on the machine that trained it
    (folder / "checkpoint").write_text(f'model_checkpoint_path: "{path}"\nall_model_checkpoint_paths: "{path}"\n')
    return folder


def run_of(folder: Path, variant: str | int = "as published") -> Path:
    options, weights = published(variant)
    one_layer = options["lstm"]["n_layers"] == 1
    variables = {new_name(name, one_layer): array for name, array in weights.items()}
    return training_run(folder, options, variables | softmax_of(options))


def same_parameters(ours: torch.nn.Module, theirs: torch.nn.Module) -> bool:
    one, two = ours.state_dict(), theirs.state_dict()
    return one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)


# The same model as from the HDF5 file

@pytest.mark.parametrize("variant", ["as published", "one layer", "three layers", "H == D", "F == D", "no highway", 3])
def test_the_model_of_a_checkpoint_is_that_of_the_hdf5_file(variant: str | int, tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", variant)
    theirs = bilm_tf.read(*write_published(tmp_path / "published", *published(variant)))
    assert same_parameters(source.read(run).bilm, theirs)


def test_the_old_names_are_the_datasets_names(tmp_path: Path) -> None:
    options, weights = published("as published")
    run = training_run(tmp_path / "run", options, {f"lm/{name}": array for name, array in weights.items()})
    theirs = bilm_tf.read(*write_published(tmp_path / "published", options, weights))
    assert same_parameters(source.read(run).bilm, theirs)


def test_the_files_that_tensorflow_wrote() -> None:
    for name, layers in (("sharded", 2), ("old", 1)):
        bilm = source.read(reference(f"tensorflow/{name}"), softmax=True).bilm
        assert (bilm.config.lstm.n_layers, bilm.config.bidirectional, bilm.config.n_softmax) == (layers, True, 130)
        assert bilm.softmax is not None and bilm.softmax.weight is not None
        assert bilm.softmax.weight.shape == (130, 4)


def test_its_layers_and_probabilities(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run")
    (run / "vocab-2016-09-10.txt").write_text("\n".join(WORDS) + "\n")  # the name of the published vocabulary
    options, weights = published("as published")
    model = elmo.load(run, softmax=True, device="cpu")
    sentence = ["the", "cat", "sat", "."]
    expected, _ = Reference(options, weights).layers(sentence)
    np.testing.assert_allclose(next(model.embed([sentence])), expected, atol=1e-5)
    every, _ = Reference(options, weights).layers(sentence, keep_boundaries=True)
    softmax = softmax_of(options)
    dim = options["lstm"]["projection_dim"]
    scores = every[-1][:-2, :dim] @ softmax["lm/softmax/W"].T + softmax["lm/softmax/b"]  # from <S>, the, cat, sat
    ids = [WORDS.index(word) if word in WORDS else 2 for word in sentence]
    log_p = scores[range(4), ids] - np.log(np.exp(scores).sum(axis=1))
    np.testing.assert_allclose(model.score(sentence).forward[:4], log_p, atol=1e-5)


def test_one_direction_and_words_instead_of_characters(tmp_path: Path) -> None:
    options, weights = published("as published")
    lstm = {name: array for name, array in weights.items() if name.startswith("RNN_0")}
    dim = options["lstm"]["projection_dim"]
    table = np.random.default_rng(1).standard_normal((N_WORDS, dim)).astype(np.float32)
    variables = {new_name(name, one_direction=True): array for name, array in lstm.items()} | {"lm/embedding": table}
    shared = softmax_of(options)["lm/softmax/b"]
    run = training_run(
        tmp_path / "run",
        {"lstm": options["lstm"], "share_embedding_softmax": True},
        variables | {"lm/softmax/b": shared},
    )
    (run / "vocabulary.txt").write_text("\n".join(WORDS) + "\n")
    model = source.read(run, softmax=True)
    config = model.bilm.config
    assert (config.bidirectional, config.n_words, config.n_softmax) == (False, N_WORDS, N_WORDS)
    assert config.share_embedding_softmax
    assert torch.equal(model.bilm.softmax_weight(), torch.from_numpy(table))
    projection = torch.from_numpy(lstm[f"{bilm_tf.cell_name(0, 0)}/W_P_0"])
    assert torch.equal(model.bilm.lstms[0].weight_projection[0], projection)


# Where it is

def test_every_name_of_a_checkpoint(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run")
    prefix = run / "model.ckpt-1250"
    for name in (run, prefix, f"{prefix}.index", f"{prefix}.data-00000-of-00001"):
        assert tf_checkpoint.find(Path(name)) == prefix
        assert source.read(name).bilm.config.n_layers == 3
    assert tf_checkpoint.find(tmp_path) is None
    assert tf_checkpoint.find(run / "options.json") is None


def test_the_latest_of_several(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run")
    for path in list(run.glob("model.ckpt-1250.*")):
        shutil.copy(path, path.with_name(path.name.replace("1250", "900")))
    assert tf_checkpoint.find(run) == run / "model.ckpt-1250"
    (run / "checkpoint").unlink()
    with pytest.raises(WeightsError, match=r"contains model\.ckpt-1250, model\.ckpt-900, and its file 'checkpoint'"):
        source.read(run)
    assert source.read(run / "model.ckpt-900").bilm.config.n_layers == 3


def test_beside_an_hdf5_file_it_is_read_only_for_its_softmax(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run")
    options, weights = published("as published")
    write_published(run, options, {name: 2 * array for name, array in weights.items()})
    plain, whole = source.read(run), source.read(run, softmax=True)
    assert plain.bilm.softmax is None and whole.bilm.softmax is not None
    assert torch.equal(plain.bilm.lstms[0].bias, 2 * whole.bilm.lstms[0].bias)
    (run / "another.index").touch()  # which one has the softmax is not known, and does not matter here
    (run / "checkpoint").unlink()
    assert torch.equal(source.read(run).bilm.lstms[0].bias, plain.bilm.lstms[0].bias)
    with pytest.raises(WeightsError, match="name one of them"):
        source.read(run, softmax=True)


def test_a_name_that_is_nearly_too_long(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="no such file or folder"):
        source.read(tmp_path / ("x" * 252))


def test_conversion_keeps_the_softmax(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run")
    (run / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    done = run_line(f"elmo convert {run / 'model.ckpt-1250'} {tmp_path / 'out'}")
    assert done.code == 0, done.err
    converted, original = source.read(tmp_path / "out", softmax=True), source.read(run, softmax=True)
    assert same_parameters(converted.bilm, original.bilm)
    assert converted.vocabulary is not None and converted.vocabulary.words == WORDS


def test_facts_about_it(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run")
    for name in (run, run / "model.ckpt-1250"):
        done = run_line(f"elmo info {name}")
        assert done.code == 0, done.err
        assert "model.ckpt-1250.index" in done.out and "options.json" in done.out


def test_without_its_vocabulary_it_is_read_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "elmo"):
        model = source.read(run_of(tmp_path / "run"), softmax=True)
    assert model.vocabulary is None
    assert "no vocabulary.txt beside it" in caplog.text


# What is refused

def changed(options: Options, **lstm: Any) -> Options:
    return options | {"lstm": options["lstm"] | lstm}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda o: o | {"share_embedding_softmax": True}, "this model reads characters and has no word embedding"),
        (lambda o: changed(o, dim=12), r"kernel' has shape \(10, 44\); options.json lstm needs \(10, 48\)"),
        (lambda o: changed(o, n_layers=3), "no variable 'lm/RNN_0/RNN/MultiRNNCell/Cell2/LSTMCell/W_0'"),
        (lambda o: changed(o, n_layers=1), "cell_1/lstm_cell/.*' is not in options.json"),
        (lambda o: o | {"char_cnn": o["char_cnn"] | {"activation": "gelu"}}, "char_cnn.activation is 'gelu'"),
    ],
)
def test_options_of_another_model(change: Any, message: str, tmp_path: Path) -> None:
    run = run_of(tmp_path / "run")
    options, _ = published("as published")
    (run / "options.json").write_text(json.dumps(change(options)))
    with pytest.raises(WeightsError, match=message) as error:
        source.read(run, softmax=True)
    assert "\n" not in str(error.value)


def test_a_vocabulary_of_another_model_and_options_that_are_missing(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run")
    (run / "vocab.txt").write_text("\n".join(WORDS[:-1]) + "\n")
    with pytest.raises(WeightsError, match="has rows for 9 words, the vocabulary 8 words"):
        source.read(run, softmax=True)
    with pytest.raises(WeightsError, match=r"token_embeddings= is for an \.hdf5"):
        source.read(run, token_embeddings=tmp_path / "x.hdf5")
    (run / "options.json").unlink()
    with pytest.raises(WeightsError, match=r"model\.ckpt-1250: no options beside it; looked for options\.json"):
        source.read(run)


def test_damaged_weights_and_nan(tmp_path: Path) -> None:
    options, weights = published("as published")
    variables = {new_name(name): array.copy() for name, array in weights.items()}
    variables["lm/CNN_proj/b_proj"][1] = np.nan
    run = training_run(tmp_path / "run", options, variables)
    with pytest.raises(WeightsError, match="'lm/CNN_proj/b_proj' contains NaN or infinity"):
        source.read(run)
    data = run / "model.ckpt-1250.data-00000-of-00001"
    data.write_bytes(data.read_bytes()[:100])
    done = run_line(f"elmo convert {run} {tmp_path / 'out'}")
    assert (done.code, done.err.count("\n")) == (2, 1) and "is cut short" in done.err
    assert not (tmp_path / "out").exists()
