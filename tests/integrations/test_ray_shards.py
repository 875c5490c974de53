"""Shards: the windows of one process, in order; a resumed run finds those that are done, and refuses changed ones."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from elmo.embed.embed_file import embed_file
from elmo.errors import DataError, WeightsError
from elmo.integrations.ray_shards import Job, cut, embed_shard, error_of, is_done, shard_name
from embedders import assert_close, embedder, fresh, write_model
from tasks.small_sentences import train_head

LINES = ["the cat sat", "", "naïve 日本", "the cat sat on the mat", "x"]


@pytest.fixture
def job(tmp_path: Path) -> Job:
    (tmp_path / "in.txt").write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    (tmp_path / "part").mkdir()
    return Job(
        input=str(tmp_path / "in.txt"),
        field="text",
        part=str(tmp_path / "part"),
        model="model",
        fingerprint="",
        window_tokens=4,
        layers="all",
        pool=None,
        pooling=None,
        dtype="float32",
        tokenized=True,
        state="fresh",
        batch_tokens=1,
        max_sentence_tokens=None,
        precision="float32",
        forget_sentences=False,
    )


def test_a_shard_has_at_least_the_tokens_of_a_window_and_a_blank_line_counts_as_one(job: Job) -> None:
    shards = list(cut(job))
    assert [(shard.number, shard.first, shard.tokens) for shard in shards] == [(0, 0, 3), (1, 2, 8), (2, 4, 1)]
    assert [sentence for shard in shards for sentence in shard.sentences] == [line.split() for line in LINES]
    assert shards[-1].position == Path(job.input).stat().st_size


def test_a_parquet_file_gives_the_same_shards(job: Job, tmp_path: Path) -> None:
    parquet.write_table(pa.table({"other": range(5), "text": LINES}), tmp_path / "in.parquet")
    from_parquet = cut(replace(job, input=str(tmp_path / "in.parquet")))
    assert [shard.sentences for shard in from_parquet] == [shard.sentences for shard in cut(job)]


def test_a_shard_is_a_file_of_its_sentences_and_is_then_done(job: Job) -> None:
    model = embedder()
    for shard in cut(job):
        assert not is_done(job, shard)
        embed_shard(job, model, shard)
        assert is_done(job, shard)
    rows = parquet.read_table(job.part).to_pylist()
    assert [row["index"] for row in rows] == list(range(5))
    for row, line in zip(rows, LINES, strict=True):
        assert row["tokens"] == line.split()
        expected = fresh(line.split())
        assert_close(pa.array(row["values"], pa.float32()).to_numpy().reshape(row["shape"]), expected)


@pytest.mark.parametrize("options", [{}, {"pool": "mean", "dtype": "float16", "state": "warm", "layers": "average"}])
def test_all_shards_have_the_rows_of_one_process_to_the_bit(options: dict[str, Any], job: Job, tmp_path: Path) -> None:
    write_model(tmp_path / "model")
    output = tmp_path / "alone.parquet"
    embed_file(job.input, output, tmp_path / "model", tokenized=True, batch_tokens=1, device="cpu", **options)
    with_options = replace(job, **options, pooling=options.get("pool"))
    for shard in cut(with_options):
        embed_shard(with_options, embedder(), shard)  # each by another worker
    assert parquet.read_table(job.part).equals(parquet.read_table(output))


def test_a_sentence_head_must_be_the_same_on_all_nodes(job: Job, tmp_path: Path) -> None:
    model = write_model(tmp_path / "model")
    head = str(train_head(model, tmp_path))
    embed_file(job.input, tmp_path / "alone.parquet", model, tokenized=True, batch_tokens=1, device="cpu", pool=head)
    with_head = replace(job, pool=head, pooling=embedder().pooling(head).identity)
    for shard in cut(with_head):
        embed_shard(with_head, embedder(), shard)
    assert parquet.read_table(job.part).equals(parquet.read_table(tmp_path / "alone.parquet"))
    message = f"{head}: the sentence head is another one on this node; copy the same files to all nodes"
    with pytest.raises(WeightsError, match=f"^{re.escape(message)}$"):
        embed_shard(replace(with_head, pooling="another"), embedder(), shard)


def test_forgotten_sentences_are_in_no_file(job: Job) -> None:
    embed_shard(replace(job, forget_sentences=True), embedder(), next(cut(job)))
    assert parquet.read_table(job.part).column_names == ["index", "shape", "values"]


def test_a_file_without_a_line_is_one_empty_shard(job: Job) -> None:
    Path(job.input).write_text("")
    (shard,) = cut(job)
    embed_shard(job, embedder(), shard)
    assert parquet.read_table(job.part).num_rows == 0


def test_a_row_without_text_is_refused(job: Job, tmp_path: Path) -> None:
    parquet.write_table(pa.table({"text": ["a", None]}), tmp_path / "in.parquet")
    with pytest.raises(DataError, match=r"in\.parquet: row 2 has no text \(null\); remove the row, or give it text$"):
        list(cut(replace(job, input=str(tmp_path / "in.parquet"))))


def test_sentences_that_have_changed_are_refused(job: Job) -> None:
    embed_shard(job, embedder(), next(cut(job)))
    Path(job.input).write_text("the dog sat\n\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"in\.txt: sentences 1 to 2 have changed since the run to resume; restore"):
        is_done(job, next(cut(job)))


def test_the_order_of_names_is_the_order_of_shards() -> None:
    names = [shard_name(number) for number in (0, 9, 10, 99_999, 100_000, 99_999_999)]
    assert names == sorted(names)


def test_an_error_keeps_its_class() -> None:
    error = error_of("WeightsError", "m: damaged")
    assert isinstance(error, WeightsError)
    assert str(error) == "m: damaged"
