"""Centring and principal components against NumPy's SVD, search against a sort of all cosines."""

from pathlib import Path

import numpy as np
import pytest

from elmo.analysis import context_index
from elmo.analysis.context_index import build_index
from elmo.analysis.vectors import StaticVectors, Whitening, principal_components, projected, shares, unit
from elmo.errors import DataError
from embedders import embedder, fresh

RNG = np.random.default_rng(5)
ROWS = (RNG.normal(size=(200, 6)) * [9, 5, 3, 1, 1, 0.5] + [4, 0, 0, 1, 0, 2]).astype(np.float32)


def test_principal_components_are_those_of_the_svd() -> None:
    _, values, directions = np.linalg.svd(ROWS - ROWS.mean(axis=0), full_matrices=False)
    found = principal_components(ROWS, 3)
    np.testing.assert_allclose(np.abs(found @ directions[:3].T), np.eye(3), atol=1e-3)
    np.testing.assert_allclose(shares(ROWS), values**2 / (values**2).sum(), atol=1e-5)
    np.testing.assert_allclose(
        np.abs(projected(ROWS)), np.abs((ROWS - ROWS.mean(axis=0)) @ directions[:2].T), atol=1e-3
    )


@pytest.mark.parametrize("removed", [0, 2])
def test_what_is_removed_is_gone_and_nothing_else(removed: int) -> None:
    changed = Whitening(ROWS, removed)(ROWS)
    np.testing.assert_allclose(changed.mean(axis=0), 0, atol=1e-4)
    before = np.linalg.svd(ROWS - ROWS.mean(axis=0), compute_uv=False)
    after = np.linalg.svd(changed, compute_uv=False)
    np.testing.assert_allclose(after[: 6 - removed], before[removed:], rtol=1e-3)
    assert (after[6 - removed :] < 1e-2).all()


def test_word_vectors_are_looked_up_in_lower_case(tmp_path: Path) -> None:
    (tmp_path / "vectors.txt").write_text("the 1 2\ncat 3 4\n")
    static = StaticVectors(tmp_path / "vectors.txt")
    np.testing.assert_array_equal(static(["The", "dog", "cat"]), [[1, 2], [0, 0], [3, 4]])
    assert "CAT" in static and "dog" not in static


SENTENCES = [["The", "cat", "sat"], [], ["Dogs", "bark", "at", "night", "."], ["Naïve"], ["A", "cat", "ran"]]


@pytest.mark.parametrize("part", [2, 5, 100])
def test_search_finds_the_largest_cosines(part: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context_index, "PART", part)
    monkeypatch.setattr(context_index, "BLOCK", 2)
    index = build_index(tmp_path / "index", embedder(), SENTENCES, layer=1)
    assert len(index) == 12
    places = [(number, place) for number, one in enumerate(SENTENCES) for place in range(len(one))]
    rows = unit(np.stack([fresh(SENTENCES[number])[1, place] for number, place in places]))
    queries = RNG.normal(size=(3, rows.shape[1])).astype(np.float32)
    for query, hits in zip(queries, index.search(queries, k=4), strict=True):
        cosines = rows @ unit(query)
        order = np.argsort(-cosines)[:4]
        assert [(hit.sentence, hit.place) for hit in hits] == [places[row] for row in order]
        np.testing.assert_allclose([hit.cosine for hit in hits], cosines[order], atol=2e-3)


def test_an_index_is_built_once_and_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context_index, "PART", 4)
    model = embedder()
    build_index(tmp_path, model, SENTENCES, layer=2)
    parts = sorted(tmp_path.glob("*.npy"))
    assert len(parts) == 3
    kept = [path.stat().st_mtime_ns for path in parts[:2]]
    content = parts[2].read_bytes()
    parts[2].unlink()  # as after an interruption
    build_index(tmp_path, model, SENTENCES, layer=2)
    assert [path.stat().st_mtime_ns for path in parts[:2]] == kept
    assert parts[2].read_bytes() == content
    with pytest.raises(DataError, match=r"an index of another model, layer or text\. Remove it"):
        build_index(tmp_path, model, SENTENCES, layer=1)
    parts[0].write_bytes(b"no array")
    with pytest.raises(DataError, match=r"00000\.npy: damaged .*Remove it, and it is computed again"):
        build_index(tmp_path, model, SENTENCES, layer=2)
