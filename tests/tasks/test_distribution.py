"""A trained task becomes a distribution: it is installed, and known by its name."""

import json
import re
import tomllib
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from distributions import install, new_site
from elmo.config import build, read_toml
from elmo.embed.embedder import load as load_model
from elmo.errors import ConfigError, DataError, WeightsError
from elmo.tasks import folder
from elmo.tasks.distribution import write_distribution
from elmo.tasks.folder import load
from elmo.tasks.from_paths import train
from elmo.tasks.ner.model import TASK
from elmo.tasks.predict import load_task
from elmo.weights import installed
from elmo.weights.installed import MODELS, TASKS
from embedders import assert_close, assert_refused, elmo, read_arrays
from tasks.small_ner import splits, write_columns, write_elmo, write_vectors
from tasks.small_sentences import train_head


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder beside a folder of sys.path in which the biLM `tiny` is installed."""
    made = new_site(tmp_path, monkeypatch)
    monkeypatch.setenv("ELMO_CACHE", str(tmp_path / "cache"))
    install(made, "elmo-tiny", MODELS, "tiny", "elmo_tiny", write_elmo(tmp_path / "tiny"))
    return made


def trained(*settings: str) -> Path:
    """A small tagger, trained for an epoch; returns RUN/model."""
    write_columns(Path("data"), splits())
    vectors = write_vectors(Path("glove.txt")).resolve()
    small = [
        "hidden=8", "n_layers=1", "inputs.characters.filters=6", "train.epochs=1", "train.device=cpu",
        f"inputs.vectors={vectors}", "inputs.elmo.model=tiny",
    ]  # fmt: skip
    return train("ner", "data", "run", settings=[*small, *settings]).model


def install_distribution(out: Path, site: Path) -> str:
    """Install what was written, as its pyproject.toml says; return the name of the model."""
    project = tomllib.loads((out / "pyproject.toml").read_text(encoding="utf-8"))
    ((name, package),) = project["project"]["entry-points"][TASKS].items()
    assert project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"] == [package]
    install(site, project["project"]["name"], TASKS, name, package, out / package)
    return str(name)


def test_a_trained_task_is_packaged_installed_and_used(site: Path) -> None:
    model = trained()
    Path("notes.md").write_text("## Data\nInvented sentences.\n")
    ended = elmo(
        "package", str(model), "shipped", "--name", "my-people", "--title", "names of people and places",
        "--license", "CC-BY-4.0", "--language", "en", "--notes", "notes.md", "--data", "data",
    )  # fmt: skip
    assert ended.code == 0, ended.err
    assert ended.err.startswith("shipped: elmo-torch-my-people, 0.0 MB")

    out = Path("shipped")
    project = tomllib.loads((out / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["dependencies"] == ["elmo-torch>=0.1", "elmo-tiny"]
    assert (project["license"], project["license-files"]) == ("CC-BY-4.0", ["LICENSE"])
    assert "Licensed under CC-BY-4.0." in (out / "LICENSE").read_text()
    inside = out / "elmo_my_people"
    assert not (inside / "elmo").exists()  # the biLM is a distribution of its own
    stored = load_file(inside / "model.safetensors")
    assert {tensor.dtype for tensor in stored.values()} == {torch.float16}
    for name, tensor in load_file(model / "model.safetensors").items():
        assert torch.equal(stored[name], tensor.half()), name

    assert install_distribution(out, site) == "my-people"
    Path("shipped").rename("away")  # nothing but what is installed is needed
    Path("run").rename("gone")
    Path("sentences.txt").write_text("Anna saw Lima .\n")
    ended = elmo("predict", "my-people", "sentences.txt")
    assert ended.code == 0, ended.err
    assert json.loads(ended.out) == {"line": 1, **load_task("gone/model").predict(["Anna saw Lima ."])[0]}
    parts = ("dev", "test")
    measured = {part: json.loads(elmo("evaluate", "my-people", "data", "--part", part, "--json").out) for part in parts}
    assert load_task("my-people").scores == measured
    assert re.search(r"  my-people +0\.\d MB  en  names of people and places\n", elmo("info").out)

    card = (Path("away") / "elmo_my_people" / "README.md").read_text(encoding="utf-8")
    assert card.startswith("---\nlanguage: en\nlicense: cc-by-4.0\n")
    assert f"| f1 | {measured['dev']['f1']:.2f} | {measured['test']['f1']:.2f} |" in card
    assert "## Scores\nOf these weights, as they are stored.\n" in card and "## Data\nInvented sentences.\n" in card
    assert "`tiny`, which must be installed" in card
    for path in Path("away").rglob("*.*"):
        assert path.suffix == ".safetensors" or str(Path.cwd()) not in path.read_text(encoding="utf-8"), path


def test_the_recipe_on_the_card_is_that_of_the_model(site: Path, tmp_path: Path) -> None:
    write_distribution(trained("hidden=9"), "tagger")
    card = Path("tagger/elmo_tagger/README.md").read_text(encoding="utf-8")
    assert "Of the run, before its weights were rounded." in card and "license" not in card
    (tmp_path / "recipe.toml").write_text(card.partition("```toml\n")[2].partition("```")[0], encoding="utf-8")
    values = read_toml(tmp_path / "recipe.toml")
    assert values.pop("task") == "ner"
    config = build(TASK.config, values)
    assert config == load("tagger/elmo_tagger", "cpu").config
    assert (config.hidden, config.inputs.vectors) == (9, "glove.txt")
    assert "license" not in Path("tagger/pyproject.toml").read_text() and not Path("tagger/LICENSE").exists()


def test_a_sentence_head_is_packaged_installed_and_used_by_its_name(site: Path) -> None:
    model = train_head("tiny", Path())
    sentences = ["Anna saw Lima .", "", "x"]
    expected = load_model("tiny", device="cpu").encode(sentences, pooling="run/model")
    write_distribution(model, "my-sentence", license="CC-BY-SA-4.0", data="data")
    assert install_distribution(Path("my-sentence"), site) == "my-sentence"
    Path("my-sentence").rename("away")
    Path("run").rename("gone")
    found = load_model("tiny", device="cpu").encode(sentences, pooling="my-sentence")
    assert_close(found, expected, 2e-3)  # float16
    Path("in.txt").write_text("".join(f"{sentence}\n" for sentence in sentences))
    ended = elmo("embed", "in.txt", "out.npz", "--model", "tiny", "--pool", "my-sentence", "--device", "cpu")
    assert ended.code == 0, ended.err
    assert_close(np.stack(read_arrays(Path("out.npz"))[0]), found, 1e-6)
    with pytest.raises(WeightsError, match=r"reads the layers of tiny; .* Use elmo\.load\('tiny'\), or --model tiny$"):
        load_model(device="cpu").encode(sentences, pooling="my-sentence")
    card = Path("away/elmo_my_sentence/README.md").read_text(encoding="utf-8")
    assert '`elmo.load("tiny").encode(sentences, pooling="my-sentence")`' in card and "| spearman |" in card
    with pytest.raises(ConfigError, match=r"the name of an installed one \(.*\bmy-sentence\b.*\)$"):
        load_model("tiny", device="cpu").encode(sentences, pooling="my-sentences")


def test_a_head_with_its_own_bilm(site: Path, tmp_path: Path) -> None:
    write_distribution(train_head(tmp_path / "tiny", Path()), "head")
    inside = Path("head/elmo_head")
    vectors = load_model(inside / "elmo", device="cpu").encode(["x"], pooling=str(inside))
    assert_close(vectors, load_model("tiny", device="cpu").encode(["x"], pooling="run/model"), 2e-3)
    card = (inside / "README.md").read_text(encoding="utf-8")
    assert '`model.encode(sentences, pooling="head")`' in card and "; the model is the biLM in `elmo/`." in card


def test_a_bilm_that_is_not_installed_is_contained(site: Path, tmp_path: Path) -> None:
    model = trained(f"inputs.elmo.model={tmp_path / 'tiny'}")
    write_distribution(model, "tagger")
    assert (Path("tagger") / "elmo_tagger" / "elmo" / "model.safetensors").is_file()
    project = tomllib.loads(Path("tagger/pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["dependencies"] == ["elmo-torch>=0.1"]
    answers = [load_task(one).predict(["Anna saw Lima ."]) for one in (model, "tagger/elmo_tagger")]
    assert answers[0] == answers[1]


def test_the_vectors_of_the_first_words(site: Path) -> None:
    model = trained()
    write_distribution(model, "tagger", max_words=3)
    whole, cut = load(model, "cpu"), load("tagger/elmo_tagger", "cpu")
    assert cut.words == whole.words[:3]
    assert whole.model.inputs.table is not None and cut.model.inputs.table is not None
    expected = whole.model.inputs.table.weight[:5].half().float()  # no word, an unknown word, and three
    assert torch.equal(cut.model.inputs.table.weight, expected)
    write_distribution(model, "all", max_words=10_000)
    assert load("all/elmo_all", "cpu").words == whole.words


def test_a_task_without_elmo(site: Path) -> None:
    write_distribution(trained("inputs.elmo.placement=none"), "plain")
    assert "| biLM | none |" in Path("plain/elmo_plain/README.md").read_text(encoding="utf-8")
    assert load_task("plain/elmo_plain").predict(["Anna ."])[0]["tokens"] == ["Anna", "."]


def test_a_norwegian_model_below_the_home_folder(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    yaml = pytest.importorskip("yaml", reason="needs PyYAML: pip install pyyaml")
    trained("inputs.elmo.placement=none")
    monkeypatch.setenv("HOME", str(Path.cwd()))
    written = write_distribution("~/run/model", "~/norsk", language="no", data="~/data")
    assert written.folder == Path.cwd() / "norsk"
    _, head, _ = (written.folder / "elmo_norsk" / "README.md").read_text(encoding="utf-8").split("---\n", 2)
    assert yaml.safe_load(head) == {"language": "no", "library_name": "elmo-torch", "tags": ["elmo", "ner"]}
    install_distribution(written.folder, site)
    (listed,) = (one for one in installed.listing(TASKS) if one.name == "norsk")
    assert listed.languages == "no"


def test_what_cannot_be_packaged_leaves_nothing(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = trained()
    expected = "cannot be the name of a model; expected letters, digits, - and _, such as my-tagger"
    assert_refused(elmo("package", str(model), "out", "--name", "a b"), f"elmo: 'a b' {expected}")
    with pytest.raises(ConfigError, match=r"^'a\.b' cannot be the name of a model"):
        write_distribution(model, "a.b")
    Path("full").mkdir()
    with pytest.raises(DataError, match=r"^full"):
        write_distribution(model, "full")
    with pytest.raises(WeightsError, match=r"^run: the folder of a run, not of a trained task; give run/model"):
        write_distribution("run", "out")
    with pytest.raises(DataError, match="absent"):
        write_distribution(model, "out", data="absent")
    of = load(model, "cpu")
    with torch.no_grad():
        of.model.get_parameter("scores.bias")[0] = 1e6
    (Path("large")).mkdir()
    folder.save(Path("large"), of)
    with pytest.raises(WeightsError, match=r"^scores\.bias: has a value that float16 cannot store; keep float32"):
        write_distribution("large", "out")
    assert not Path("out").exists()
    assert [path.name for path in Path().iterdir() if path.name.startswith(".out")] == []


def test_the_distribution_of_an_installed_bilm(site: Path) -> None:
    assert installed.distribution(MODELS, "tiny") == "elmo-tiny"
    assert installed.distribution(MODELS, "english") is None
    assert installed.distribution(MODELS, "english-large") == "elmo-torch-english-large"
    assert installed.distribution(MODELS, "nothing") is None
