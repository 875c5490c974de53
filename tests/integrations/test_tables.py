"""Columns of pandas, polars, pyarrow and datasets: the vectors are those of lists, and missing values are refused."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import elmo
from elmo.embed.embedder import Embedder
from elmo.errors import DataError
from embedders import DIM, assert_close, fresh, write_model

datasets = pytest.importorskip("datasets", reason="needs datasets: pip install datasets")
pandas = pytest.importorskip("pandas", reason="needs pandas: pip install pandas")
polars = pytest.importorskip("polars", reason="needs polars: pip install polars")
pyarrow = pytest.importorskip("pyarrow", reason="needs pyarrow: pip install pyarrow")

TEXTS = ["The cat sat", "on the mat", "naïve", "x"]
EXPECTED = np.stack([fresh(text.split()).mean(axis=0).mean(axis=0) for text in TEXTS])

COLUMNS: dict[str, Callable[[list[Any]], Any]] = {
    "pandas": pandas.Series,
    "pandas string": lambda values: pandas.Series(values, dtype="string"),
    "polars": polars.Series,
    "pyarrow": pyarrow.array,
    "pyarrow chunks": lambda values: pyarrow.chunked_array([values[:1], values[1:]]),
    "datasets": lambda values: datasets.Dataset.from_dict({"text": values})["text"],
}
TABLES: list[Callable[[dict[str, Any]], Any]] = [
    pandas.DataFrame,
    polars.DataFrame,
    pyarrow.table,
    datasets.Dataset.from_dict,
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("tables") / "model")


@pytest.fixture(scope="module")
def model(folder: Path) -> Embedder:
    return elmo.load(folder, device="cpu")


@pytest.mark.parametrize("kind", COLUMNS)
def test_a_column_of_texts(kind: str, model: Embedder) -> None:
    assert_close(model.encode(COLUMNS[kind](TEXTS)), EXPECTED)
    with pytest.raises(DataError, match=r"sentence 1 is (None|<NA>|nan).*; expected a string .* Drop missing values"):
        model.encode(COLUMNS[kind](["The cat", None]))


@pytest.mark.parametrize("kind", ["pandas", "polars", "pyarrow", "datasets"])
def test_a_column_of_tokens(kind: str, model: Embedder) -> None:
    assert_close(model.encode(COLUMNS[kind]([text.split() for text in TEXTS])), EXPECTED)
    with pytest.raises(DataError, match=r"token 1 of sentence 0 is None; expected a string\. Drop missing values"):
        model.encode(COLUMNS[kind]([["The", None]]))


@pytest.mark.parametrize("kind", TABLES, ids=["pandas", "polars", "pyarrow", "datasets"])
def test_a_whole_table_is_refused(kind: Callable[[dict[str, Any]], Any], model: Embedder) -> None:
    message = r"found a (DataFrame|Table|Dataset); choose one of its columns, e\.g\. table\['text'\]"
    with pytest.raises(DataError, match=message):
        model.encode(kind({"text": TEXTS}))


def test_a_column_of_vectors_in_polars(model: Embedder) -> None:
    table = polars.DataFrame({"text": [*TEXTS, None]}).drop_nulls("text")
    vectors = polars.Series("vector", model.encode(table["text"]), dtype=polars.Array(polars.Float32, DIM))
    assert_close(table.with_columns(vectors)["vector"].to_numpy(), EXPECTED)


def test_datasets_in_two_processes(model: Embedder) -> None:
    rows = datasets.Dataset.from_dict({"text": TEXTS * 2})
    model.encode(TEXTS)  # with threads that a forked process does not have
    kept = datasets.Features(
        {"text": datasets.Value("string"), "vector": datasets.List(datasets.Value("float32"), length=DIM)}
    )
    embedded = rows.map(
        lambda batch: {"vector": model.encode(batch["text"])}, batched=True, num_proc=2, features=kept
    )
    assert_close(np.array(embedded["vector"]), np.concatenate([EXPECTED, EXPECTED]))


def test_the_cache_of_datasets_knows_the_model_again(folder: Path) -> None:
    rows = datasets.Dataset.from_dict({"text": TEXTS})

    def fingerprint(model: Embedder) -> str:
        mapped = rows.map(lambda batch: {"vector": model.encode(batch["text"])}, batched=True)
        return str(mapped._fingerprint)

    model = elmo.load(folder, device="cpu")
    first = fingerprint(model)
    assert fingerprint(model) == first  # after use
    assert fingerprint(elmo.load(folder, device="cpu")) == first  # read again
    model.bilm.weight.data.add_(0.1)
    assert fingerprint(model) != first
