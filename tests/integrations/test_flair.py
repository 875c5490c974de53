"""The class for flair that the documentation shows, in flair itself, where it is installed."""

import contextlib
import io
from pathlib import Path
from typing import Any

import pytest

import elmo
from embedders import assert_close
from test_documents import ROOT, section

pytest.importorskip("flair", reason="needs flair, which needs transformers below 5: pip install flair")


def test_the_class_in_the_documentation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from flair.data import Sentence
    from flair.embeddings.base import load_embeddings

    monkeypatch.chdir(tmp_path)
    (block,) = [each for each in section(ROOT / "docs" / "integrations.md", "flair") if each[0] == "py"]
    names: dict[str, Any] = {}
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(block[1], "integrations.md", "exec"), names)
    assert printed.getvalue() == block[2]

    expected = next(elmo.load(device="cpu").embed([["The", "bank", "of"]], layers="top"))
    embeddings = names["ElmoEmbeddings"](layers="top")
    saved = embeddings.save_embeddings()
    assert not saved["state_dict"]
    for each in (embeddings, load_embeddings(saved)):
        sentence, other = Sentence(["The", "bank", "of"]), Sentence("A longer sentence beside it")
        each.embed([sentence, other])
        for token, vector in zip(sentence, expected, strict=True):
            assert_close(token.embedding.numpy(), vector)
