"""A trained task and its folder: what is saved is loaded, and a folder that does not fit is refused."""

import json
import re
import resource
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from distributions import install, new_site
from elmo.embed.embedder import load
from elmo.embed.runner import Runner
from elmo.embed.word_store import PROBES
from elmo.errors import ConfigError, DataError, WeightsError
from elmo.tasks import folder
from elmo.tasks.batches import answers
from elmo.tasks.folder import TrainedTask
from elmo.tasks.frozen import FrozenLayers
from elmo.tasks.inputs import Inputs
from elmo.tasks.ner.model import TASK
from elmo.tasks.predict import load_task
from elmo.weights.installed import KNOWN, MODELS, TASKS
from embedders import assert_refused, elmo, embedder
from tasks.small_ner import recipe, splits, write_columns

WORDS = ["saw", "in", "the", "naïve", "10 000", "日本"]
LABELS = TASK.labels(splits()["train"])


def trained(*assignments: str) -> TrainedTask:
    """A tagger with random weights, as if it had been trained."""
    torch.manual_seed(4)
    config = recipe("inputs.vectors=glove.txt", "inputs.elmo.model=small", *assignments)
    settings = config.inputs.elmo
    of = embedder() if settings.placement != "none" else None
    inputs = Inputs(
        config.inputs,
        WORDS,
        torch.randn(len(WORDS), 5),
        frozen=FrozenLayers(of) if of and not settings.trainable else None,
        bilm=of.bilm if of and settings.trainable else None,
    )
    return TrainedTask(TASK, config, LABELS, WORDS, TASK.model(config, inputs, LABELS).eval(), {"dev": {"f1": 12.5}})


def saved(path: Path, *assignments: str) -> Path:
    path.mkdir()
    folder.save(path, trained(*assignments))
    return path


@pytest.mark.parametrize("change", ["placement=none", "placement=both", "trainable=true"])
def test_what_is_saved_is_loaded(change: str, tmp_path: Path) -> None:
    task = trained(f"inputs.elmo.{change}")
    folder.save(tmp_path, task)
    assert (tmp_path / "elmo").is_dir() == (change != "placement=none")
    loaded = folder.load(tmp_path, "cpu")
    assert replace(loaded, model=task.model) == task
    assert not loaded.model.training
    ours, theirs = loaded.model.state_dict(), task.model.state_dict()
    assert list(ours) == list(theirs)
    assert all(torch.equal(ours[name], value) for name, value in theirs.items())
    examples = splits()["test"]
    assert answers(loaded.model, examples, 3) == answers(task.model, examples, 3)


def test_a_task_on_a_published_model_is_loaded_again(tmp_path: Path) -> None:
    """options.json has integers where a model folder has floats; the fingerprint of the biLM is that of its numbers."""
    of = embedder()
    of.save(tmp_path / "copy")
    assert load(str(tmp_path / "copy"), device="cpu").fingerprint() == of.fingerprint()
    path = saved(tmp_path / "m", "inputs.elmo.placement=both")
    assert folder.load(path, "cpu").labels == LABELS


def test_only_task_weights_and_vectors_are_in_the_weights_file(tmp_path: Path) -> None:
    names = set(load_file(saved(tmp_path / "m", "inputs.elmo.trainable=true") / "model.safetensors"))
    assert not any(name.startswith("inputs.bilm.") for name in names)
    assert {"inputs.table.weight", "inputs.mix_input.gamma", "scores.weight", "crf.transitions"} <= names


def test_a_folder_below_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved(tmp_path / "m")
    (tmp_path / "data").mkdir()
    write_columns(tmp_path / "data", splits())
    monkeypatch.setenv("HOME", str(tmp_path))
    predictor = load_task("~/m", "cpu")
    assert predictor.labels == LABELS
    assert predictor.evaluate("~/data", "test", "~/out.txt") == predictor.evaluate(tmp_path / "data")
    assert (tmp_path / "out.txt").is_file()
    with pytest.raises(DataError, match=re.escape(f"{tmp_path / 'out.txt'}: exists already")):
        predictor.evaluate("~/data", "test", "~/out.txt")


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "words.txt"])
@pytest.mark.parametrize("content", [None, b"\xff{"])
def test_a_folder_that_is_incomplete_or_damaged(name: str, content: bytes | None, tmp_path: Path) -> None:
    path = saved(tmp_path / "m")
    (path / name).unlink()
    if content is not None:
        (path / name).write_bytes(content)
    inside = name == "config.json"
    place = f"{path / name}: (cannot be read|not JSON)" if inside else f"{path}: cannot be read as a trained task"
    with pytest.raises(WeightsError, match=f"^{place}"):
        folder.load(path, "cpu")


def test_a_path_in_the_config_runs_no_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = saved(tmp_path / "m")
    (path / "model.py").write_text("raise SystemExit('code was run')\n")
    for name in ("m", str(path)):
        edit(path, "task", name)
        with pytest.raises(WeightsError, match=f"config.json: {name}: no such task; expected squad, .*--task"):
            folder.load(path, "cpu")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("task", None), ("config", []), ("labels", None), ("labels", [1]), ("elmo", "elmo"), ("elmo", {})),
        *(("elmo", {"folder": "../elsewhere"}), ("elmo", {"folder": None}), ("elmo", {"name": 3}), ("scores", 1)),
    ],
)
def test_a_config_of_another_form(key: str, value: object, tmp_path: Path) -> None:
    path = saved(tmp_path / "m")
    edit(path, key, value)
    with pytest.raises(WeightsError, match=f"config.json: '{key}' is .*; expected what `elmo train` writes there"):
        folder.load(path, "cpu")


def test_a_config_without_its_bilm(tmp_path: Path) -> None:
    path = saved(tmp_path / "m")
    record = json.loads((path / "config.json").read_text())
    del record["elmo"]
    (path / "config.json").write_text(json.dumps(record))
    with pytest.raises(WeightsError, match=r"config.json: 'elmo' is None; expected what `elmo train` writes there"):
        folder.load(path, "cpu")


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        # The largest that is allowed would take 4 × 4 × 65,536² bytes, 64 GiB, for one matrix of the LSTM.
        ("hidden", 65_536, r"config.json: describes a larger network than model.safetensors contains"),
        ("hidden", 65_537, r"config.json: hidden is 65537; expected a number in \[1, 65536\]"),
        ("n_layers", 10**9, r"config.json: n_layers is 1000000000; expected a number in \[1, 100\]"),
        ("dropout", 10**400, "config.json: dropout is 1000.*; expected a number"),
    ],
)
def test_sizes_that_only_the_config_claims(field: str, value: int, message: str, tmp_path: Path) -> None:
    path = saved(tmp_path / "m")
    edit(path, "config", json.loads((path / "config.json").read_text())["config"] | {field: value})
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(WeightsError, match=message):
        folder.load(path, "cpu")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 << 10  # KiB


def test_more_labels_than_a_crf_can_have(tmp_path: Path) -> None:
    path = saved(tmp_path / "m")
    edit(path, "labels", ["O"] * 2001)
    with pytest.raises(WeightsError, match=r"config.json: a CRF of 2,001 labels; expected 1 to 2,000"):
        folder.load(path, "cpu")


@pytest.mark.parametrize("label", ["", "B", "X-PER", "PER"])
def test_labels_that_are_no_tags(label: str, tmp_path: Path) -> None:
    path = saved(tmp_path / "m")
    edit(path, "labels", [label, *LABELS[1:]])
    with pytest.raises(WeightsError, match=rf"config.json: labels: '{label}'; expected O, or B-, I-, U- or L- and a"):
        folder.load(path, "cpu")


@pytest.mark.parametrize("content", ["", "saw\n", "\n" * 7])
def test_words_that_are_not_those_of_the_vectors(content: str, tmp_path: Path) -> None:
    path = saved(tmp_path / "m")
    (path / "words.txt").write_text(content)
    with pytest.raises(WeightsError, match=r"words.txt: has \d words, and model.safetensors has \(8, 5\) vectors; "):
        folder.load(path, "cpu")


def test_a_device_instead_of_a_file(tmp_path: Path) -> None:
    path = saved(tmp_path / "m")
    for name in ("words.txt", "model.safetensors"):
        (path / name).rename(path / "away")
        (path / name).symlink_to("/dev/zero")
        with pytest.raises(WeightsError, match=f"cannot be read as a trained task \\({name} is not a file"):
            folder.load(path, "cpu")
        (path / name).unlink()
        (path / "away").rename(path / name)


def test_numbers_of_another_type(tmp_path: Path) -> None:
    path = saved(tmp_path / "m")
    tensors = load_file(path / "model.safetensors")
    save_file({name: tensor.int() for name, tensor in tensors.items()}, path / "model.safetensors")
    with pytest.raises(WeightsError, match=r"model.safetensors: '.*' is of type int32; expected float32"):
        folder.load(path, "cpu")


def edit(path: Path, key: str, value: object) -> None:
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(config | {key: value}))


@pytest.mark.parametrize("value", [torch.zeros(1), torch.tensor(float("nan"))])
def test_weights_that_do_not_fit(value: torch.Tensor, tmp_path: Path) -> None:
    path = saved(tmp_path / "m")
    tensors = load_file(path / "model.safetensors")
    like = tensors["scores.weight"]
    tensors["scores.weight"] = value if value.numel() and value.dim() else value.expand_as(like).contiguous()
    save_file(tensors, path / "model.safetensors")
    with pytest.raises(WeightsError, match=r"model.safetensors: 'scores.weight' has shape .*; config.json needs"):
        folder.load(path, "cpu")


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("model_type", "elmo", "config.json: not a trained task: model_type is 'elmo'; expected 'elmo-task'"),
        ("config", {"hiden": 3}, "config.json: unknown field 'hiden'; did you mean 'hidden'?"),
    ],
)
def test_a_config_that_is_not_that_of_the_task(key: str, value: object, message: str, tmp_path: Path) -> None:
    path = saved(tmp_path / "m")
    record = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps({**record, key: value}))
    with pytest.raises(WeightsError) as error:
        folder.load(path, "cpu")
    assert str(error.value) == f"{path}/{message}"


@pytest.mark.parametrize("more", [True, False])
def test_weights_of_another_model(more: bool, tmp_path: Path) -> None:
    path = saved(tmp_path / "m")
    tensors = load_file(path / "model.safetensors")
    if more:
        tensors["another.weight"] = torch.zeros(2)
    else:
        del tensors["scores.bias"]
    save_file(tensors, path / "model.safetensors")
    problem = "has a tensor 'another.weight' that the model lacks" if more else "has no tensor 'scores.bias'"
    with pytest.raises(WeightsError) as error:
        folder.load(path, "cpu")
    assert str(error.value) == f"{path}/model.safetensors: {problem}; it does not belong to config.json"


def test_a_bilm_that_has_changed(tmp_path: Path) -> None:
    path = saved(tmp_path / "m")
    tensors = load_file(path / "elmo" / "model.safetensors")
    save_file({name: value * 1.5 for name, value in tensors.items()}, path / "elmo" / "model.safetensors")
    with pytest.raises(WeightsError, match=r"m: was trained with another version of the biLM .*\. Train"):
        folder.load(path, "cpu")


# Installed: a biLM that a task does not carry along, and a task that has a name


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return new_site(tmp_path, monkeypatch)


def test_an_installed_bilm_stays_where_it_is(site: Path, tmp_path: Path) -> None:
    embedder().save(tmp_path / "tiny")
    install(site, "elmo-tiny", MODELS, "tiny", "elmo_tiny", tmp_path / "tiny")
    path = saved(tmp_path / "m", "inputs.elmo.model=tiny")
    assert not (path / "elmo").exists()
    assert answers(folder.load(path, "cpu").model, splits()["test"], 3) == answers(trained().model, splits()["test"], 3)


def test_a_bilm_that_is_not_installed(site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved(tmp_path / "m")
    record = json.loads((path / "config.json").read_text())
    advice = "pip install elmo-torch-english-huge, or models/english-huge from its repository"
    for name, message in (
        ("gone", f"{path}: needs the biLM 'gone', which is not installed. Install its distribution first"),
        ("english-huge", f"english-huge: is not installed; {advice}"),
    ):
        monkeypatch.setitem(KNOWN, (MODELS, "english-huge"), "elmo-torch-english-huge")
        (path / "config.json").write_text(json.dumps({**record, "elmo": {"name": name, "fingerprint": ""}}))
        with pytest.raises(WeightsError) as error:
            folder.load(path, "cpu")
        assert str(error.value) == message


def test_an_installed_task_is_loaded_by_its_name(site: Path, tmp_path: Path) -> None:
    """Also where there is a folder of that name; ./ means the folder."""
    install(site, "elmo-entities", TASKS, "entities", "elmo_entities", saved(tmp_path / "m"))
    saved(Path("entities"), "hidden=7")
    assert folder.load("entities", "cpu").config.hidden == trained().config.hidden != 7
    assert folder.load("./entities", "cpu").config.hidden == 7
    assert folder.load(Path("entities").absolute(), "cpu").config.hidden == 7


def test_the_bilm_computes_in_the_precision_that_is_asked_for(tmp_path: Path) -> None:
    path = saved(tmp_path / "m")
    texts = [example.texts[0] for example in splits()["test"]]
    for precision in ("int8", "bfloat16"):
        found = folder.load(path, "cpu", precision=precision).model.inputs.frozen
        assert found is not None
        wanted = load(str(path / "elmo"), device="cpu", precision=precision).embed(texts, dtype="float16")
        for layers, array in zip(found.layers(texts).activations.unbind(1), wanted, strict=True):
            assert torch.equal(layers[:, : array.shape[1]], torch.from_numpy(array).float())


@pytest.mark.parametrize("change", ["placement=none", "trainable=true"])
def test_a_precision_needs_a_frozen_bilm(change: str, tmp_path: Path) -> None:
    path = saved(tmp_path / "m", f"inputs.elmo.{change}")
    with pytest.raises(ConfigError) as error:
        folder.load(path, "cpu", precision="int8")
    assert str(error.value) == f"precision is 'int8'; {path} has no frozen biLM that it is for: expected 'float32'"


def test_word_vectors_are_kept_for_later_commands(site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Later commands read the characters of no word but the first ones, by which they check the file."""
    asked: set[str] = set()
    encode = Runner._encode

    def noted(runner: Runner, words: Sequence[str]) -> torch.Tensor:
        asked.update(words)
        return encode(runner, words)

    monkeypatch.setattr(Runner, "_encode", noted)
    path = saved(tmp_path / "m")
    Path("sentences.txt").write_text("Ada saw Paris .\n")
    write_columns(Path("data"), splits())
    commands = ("predict", path, "sentences.txt"), ("evaluate", path, "data", "--json")
    words = {"Ada", "saw", "Paris", "."}.union(*(example.texts[0] for example in splits()["test"]))
    expected = [elmo(*arguments).out for arguments in commands]
    for first in (True, False):
        asked.clear()
        found = [elmo(*arguments, "--word-cache", "words") for arguments in commands]
        assert [(ended.code, ended.out) for ended in found] == [(0, out) for out in expected]
        assert len(asked) == PROBES if not first else asked >= words


def test_the_command_line_knows_an_installed_task(site: Path, tmp_path: Path) -> None:
    install(site, "elmo-entities", TASKS, "entities", "elmo_entities", saved(tmp_path / "m"))
    write_columns(Path("data"), splits())
    Path("sentences.txt").write_text("Ada saw Paris .\n")
    ended = elmo("predict", "entities", "sentences.txt")
    assert ended.code == 0, ended.err
    assert json.loads(ended.out) == {"line": 1, **load_task(tmp_path / "m").predict(["Ada saw Paris ."])[0]}
    ended = elmo("evaluate", "entities", "data", "--json")
    assert json.loads(ended.out) == load_task(tmp_path / "m").evaluate("data")
    _, tasks = elmo("info").out.split("Trained tasks, for elmo.load_task(NAME) and elmo predict NAME:\n")
    assert "  entities " in tasks


def test_a_name_of_nothing(site: Path, tmp_path: Path) -> None:
    install(site, "elmo-entities", TASKS, "entities", "elmo_entities", saved(tmp_path / "m"))
    Path("sentences.txt").write_text("Ada\n")
    expected = "expected RUN/model of a run, or the name of an installed task (entities)"
    message = f"elmo: tagger: no such folder, and no trained task of that name; {expected}"
    assert_refused(elmo("predict", "tagger", "sentences.txt"), message)
