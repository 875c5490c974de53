"""`elmo embed --engine ray`: the rows of one process to the bit, with two workers; and what it refuses."""

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow.parquet as parquet
import pytest

from elmo.embed.embed_file import embed_file
from elmo.errors import ConfigError, DataError, ElmoError
from elmo.integrations.ray import embed_file_on_ray
from embedders import assert_refused, elmo, nothing_new_in, write_model
from models import random_sentences
from tasks.small_sentences import train_head

SENTENCES = [
    [word for word in sentence if word.strip("\x00")] for sentence in random_sentences(np.random.default_rng(8), 40)
]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("models") / "model")


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "in.txt"
    path.write_text("".join(" ".join(sentence) + "\n" for sentence in SENTENCES), encoding="utf-8")
    return path


@pytest.fixture
def two_cpus() -> Iterator[None]:
    ray = pytest.importorskip("ray", reason="needs Ray: pip install 'elmo-torch[ray]'")
    ray.init(include_dashboard=False, num_cpus=2, object_store_memory=80_000_000, logging_level="error")
    yield
    ray.shutdown()


@pytest.mark.usefixtures("two_cpus")
def test_two_workers_give_the_rows_of_one_process_also_after_a_stop(
    text: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone, output, part = (tmp_path / name for name in ("alone.parquet", "out.parquet", "out.parquet.part"))
    size = embed_file(text, alone, model, device="cpu", tokenized=True, batch_tokens=8)
    with nothing_new_in(tmp_path), pytest.raises(ConfigError, match=r"^workers is 3, but the cluster has 2 CPUs; "):
        embed_file_on_ray(text, output, model, workers=3)

    whole = text.read_bytes()
    text.write_bytes(whole + b"\xff\n")
    with pytest.raises(DataError, match=r"line 41 is not UTF-8 .* saved in .*out\.parquet\.part; use --resume to"):
        embed_file_on_ray(text, output, model, tokenized=True, batch_tokens=8)
    text.write_bytes(whole)
    first, *_, last = sorted(part.glob("*.parquet"))
    first.rename(part / f".{first.name}.x.tmp")  # as if a worker had been killed while it wrote
    kept = last.stat().st_ino

    command = ("embed", text, output, "-m", model, "--tokenized", "--batch-tokens", 8, "--engine", "ray")
    assert_refused(elmo(*command), f"{part}: contains an unfinished run. Use --resume to continue it, or remove it")
    assert_refused(elmo(*command, "--resume", "--layers", "top"), f"{part}: layers is 'top', but the run to resume has")
    ended = elmo(*command, "--resume", "--workers", 2)
    assert (ended.code, ended.err) == (0, f"{output}: 40 sentences, {size.tokens} tokens\n")
    assert (output / last.name).stat().st_ino == kept  # it was not computed again
    assert parquet.read_table(output).equals(parquet.read_table(alone))  # every value, to the bit
    shards = [f"{number:08d}.parquet" for number in range(int(last.stem) + 1)]
    assert {path.name for path in output.iterdir()} >= {"_settings.json", *shards}
    assert not list(output.glob(".*"))

    monkeypatch.chdir(tmp_path)
    train_head(model, Path())
    pooled = {"pool": "run/model", "tokenized": True, "batch_tokens": 8}
    embed_file(text, "pooled.parquet", model, device="cpu", **pooled)
    embed_file_on_ray(text, "vectors.parquet", model, **pooled)  # the workers find the head by its absolute path
    assert parquet.read_table("vectors.parquet").equals(parquet.read_table("pooled.parquet"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--state", "carried"], "computes sentences in any order: state is 'carried'; expected fresh or warm"),
        (["--device", "cuda"], "computes on CPUs: device is 'cuda'; expected cpu"),
        (["--threads", 2], "has one thread per worker: threads is 2; set --workers instead"),
        (["--format", "npz"], "writes a folder of Parquet files; give a name that ends in .parquet"),
        (["--pool", "median"], "pooling is 'median'; expected one of mean, max, first-last, sif"),
        (["--layers", 7], "layers is 7; this model has 3"),
    ],
)
def test_what_ray_cannot_do_is_refused(options: list[object], message: str, text: Path, model: Path) -> None:
    with nothing_new_in(text.parent):
        ended = elmo("embed", text, text.parent / "out.parquet", "-m", model, "--engine", "ray", *options)
    assert_refused(ended, message)


def test_standard_input_and_other_names_are_refused(text: Path, model: Path, tmp_path: Path) -> None:
    ended = elmo("embed", "-", tmp_path / "out.parquet", "-m", model, "--engine", "ray")
    assert_refused(ended, "--engine ray cannot read standard input, which other machines do not see; give a file")
    missing = tmp_path / "none.parquet"
    ended = elmo("embed", missing, tmp_path / "out.parquet", "-m", model, "--engine", "ray")
    assert_refused(ended, f"{missing}: cannot be read (No such file or directory)")
    for option, value in (("--workers", 2), ("--field", "line")):
        ended = elmo("embed", text, tmp_path / "out.hdf5", "-m", model, option, value)
        assert_refused(ended, f"{option} is for --engine ray; leave it out")
    with pytest.raises(ConfigError, match=r"^workers is 0; expected 1 or more$"):
        embed_file_on_ray(text, tmp_path / "out.parquet", model, workers=0)


def test_a_folder_that_is_not_an_unfinished_run_is_left_alone(text: Path, model: Path, tmp_path: Path) -> None:
    part = tmp_path / "out.parquet.part"
    part.mkdir()
    (part / "notes.txt").touch()
    with nothing_new_in(tmp_path), pytest.raises(DataError, match=r"contains notes\.txt, so it is not an unfinished"):
        embed_file_on_ray(text, tmp_path / "out.parquet", model, resume=True)
    (tmp_path / "done.parquet").mkdir()
    with pytest.raises(DataError, match=r"done\.parquet: exists already"):
        embed_file_on_ray(text, tmp_path / "done.parquet", model)


def test_without_ray_the_message_names_the_extra(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ElmoError, match=r"^--engine ray needs Ray: pip install 'elmo-torch\[ray\]'$"):
        embed_file_on_ray(text, tmp_path / "out.parquet")
