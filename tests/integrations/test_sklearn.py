"""ElmoVectorizer is a step like any other, in scikit-learn itself, and gives the vectors of `encode`."""

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elmo.errors import ConfigError, DataError
from embedders import DIM, LINES, assert_close, fresh, write_model

pytest.importorskip("sklearn", reason="needs scikit-learn: pip install 'elmo-torch[sklearn]'")

import pandas
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import OneHotEncoder
from sklearn.utils import estimator_checks, get_tags
from sklearn.utils.estimator_checks import check_estimator

from elmo.integrations import loaded
from elmo.integrations.sklearn import ElmoVectorizer

TEXTS = ["The cat sat", "naïve", "", "on the mat"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("sklearn") / "model")


def averages(texts: list[str]) -> Any:
    return np.stack([fresh(text.split()).mean(axis=0).mean(axis=0) if text else np.zeros(DIM) for text in texts])


def test_vectors_are_the_references_with_and_without_fit(folder: Path) -> None:
    vectorizer = ElmoVectorizer(folder)
    for found in (vectorizer.transform(TEXTS), vectorizer.fit(TEXTS).transform(TEXTS), vectorizer.fit_transform(TEXTS)):
        assert found.dtype == np.float32
        assert_close(found, averages(TEXTS))
    top = ElmoVectorizer(str(folder), layers="top", pooling="max", normalize=True).transform([["The", "cat"], "naïve"])
    expected = fresh(["The", "cat"])[-1].max(axis=0)
    assert_close(top[0], expected / np.linalg.norm(expected))


@pytest.mark.filterwarnings("ignore:Can't test estimator")  # those that need arrays of numbers
def test_scikit_learns_own_checks(folder: Path) -> None:
    # What it runs for an estimator of texts ...
    done = check_estimator(ElmoVectorizer(folder), on_skip=None)
    assert {check["status"] for check in done} == {"passed"}
    # ... and the checks of the interface, which need no numbers as input.
    for name in (
        "check_no_attributes_set_in_init",
        "check_parameters_default_constructible",
        "check_estimator_cloneable",
        "check_estimator_repr",
        "check_estimator_tags_renamed",
        "check_valid_tag_types",
        "check_do_not_raise_errors_in_init_or_set_params",
        "check_get_params_invariance",
        "check_set_params",
        "check_mixin_order",
    ):
        getattr(estimator_checks, name)("ElmoVectorizer", ElmoVectorizer(folder))


def test_its_tags(folder: Path) -> None:
    tags = get_tags(ElmoVectorizer(folder))
    assert (tags.input_tags.string, tags.input_tags.two_d_array, tags.requires_fit) == (True, False, False)
    assert tags.transformer_tags.preserves_dtype == ["float32"]


def test_a_pipeline_learns(folder: Path) -> None:
    texts = [f"{word} {noun}" for word in ("the", "a", "my", "one") for noun in ("cat", "table", "dog", "chair")]
    labels = ["animal", "thing"] * 8
    pipeline = make_pipeline(ElmoVectorizer(), LogisticRegression(max_iter=1000)).fit(texts, labels)
    assert list(pipeline.predict(["their horse", "their sofa"])) == ["animal", "thing"]
    twin = pickle.loads(pickle.dumps(pipeline))
    assert list(twin.predict(texts)) == labels
    both = make_union(ElmoVectorizer(folder), ElmoVectorizer(folder, layers="top")).fit_transform(texts)
    assert both.shape == (16, 2 * DIM)


def test_a_column_of_a_table(folder: Path) -> None:
    table = pandas.DataFrame({"text": TEXTS, "kind": ["a", "b", "a", "b"]})
    columns = ColumnTransformer([("elmo", ElmoVectorizer(folder), "text"), ("kind", OneHotEncoder(), ["kind"])])
    found = columns.fit_transform(table)
    assert_close(found[:, :DIM], averages(TEXTS))
    assert columns.get_feature_names_out()[0] == "elmo__elmovectorizer0"
    with pytest.raises(DataError, match=r"found a DataFrame; choose one of its columns, e\.g\. table\['text'\]"):
        ElmoVectorizer(folder).fit_transform(table[["text"]])
    array = table.to_numpy()
    assert_close(ColumnTransformer([("elmo", ElmoVectorizer(folder), 0)]).fit_transform(array), averages(TEXTS))
    with pytest.raises(DataError, match=r"X is a column of texts, \(4, 1\); expected the texts themselves, \(4,\)"):
        ColumnTransformer([("elmo", ElmoVectorizer(folder), [0])]).fit_transform(array)
    with pytest.raises(DataError, match="sentence 1 is"):
        ElmoVectorizer(folder).transform(pandas.Series(["a", None]))


def test_output_as_a_table(folder: Path) -> None:
    texts = pandas.Series(TEXTS, index=list("wxyz"))
    found = ElmoVectorizer(folder).set_output(transform="pandas").fit_transform(texts)
    assert isinstance(found, pandas.DataFrame)
    assert list(found.columns) == [f"elmovectorizer{k}" for k in range(DIM)]
    assert list(found.index) == list("wxyz")
    assert_close(found.to_numpy(), averages(TEXTS))


def test_a_grid_search_loads_the_model_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded.loaded.cache_clear()
    names: list[str] = []
    load = loaded.load

    def counted(model: str, **options: Any) -> Any:
        names.append(model)
        return load(model, **options)

    monkeypatch.setattr(loaded, "load", counted)
    pipeline = make_pipeline(ElmoVectorizer(folder), LogisticRegression(C=1e4, max_iter=5000))
    texts = [f"{word} {animal}" for word in ("the", "a", "one", "my") for animal in ("cat", "mat")]
    labels = ["animal", "thing"] * 4
    search = GridSearchCV(pipeline, {"elmovectorizer__layers": ["average", 0, [0.5, 0.25, 0.25]]}, cv=2)
    found = search.fit(texts, labels).cv_results_["mean_test_score"]
    for score, layer_weights in zip(found, ([1 / 3] * 3, [1, 0, 0], [0.5, 0.25, 0.25]), strict=True):
        vectors = np.stack([np.tensordot(layer_weights, fresh(text.split()), 1).mean(axis=0) for text in texts])
        alone = cross_val_score(LogisticRegression(C=1e4, max_iter=5000), vectors, labels, cv=2)
        assert score == alone.mean()
    assert names == [str(folder)]


@pytest.mark.parametrize("copied", [clone, lambda one: pickle.loads(pickle.dumps(one))])
def test_copies_have_the_settings_and_not_the_model(folder: Path, copied: Callable[[Any], Any]) -> None:
    vectorizer = ElmoVectorizer(folder, layers=[0.5, 0.25, 0.25], normalize=True)
    before = pickle.dumps(vectorizer)
    expected = vectorizer.fit_transform(TEXTS)
    assert pickle.dumps(vectorizer) == before
    assert len(before) < 1000
    assert copied(vectorizer).get_params() == vectorizer.get_params()
    assert_close(copied(vectorizer).transform(TEXTS), expected)


def test_wrong_settings_are_refused_by_fit(folder: Path) -> None:
    for settings, message in [
        ({"pooling": "sum"}, "pooling is 'sum'"),
        ({"layers": "all"}, "layers='all' gives several"),
        ({"layers": 7}, "layers is 7; this model has 3"),
        ({"state": "carried"}, "state is 'carried', but a vector must not depend on other texts"),
        ({"batch_tokens": 0}, "batch_tokens is 0"),
    ]:
        with pytest.raises(ConfigError, match=message):
            ElmoVectorizer(folder, **settings).fit(TEXTS)
    with pytest.raises(DataError, match="found one string"):
        ElmoVectorizer(folder).transform(LINES[0])
