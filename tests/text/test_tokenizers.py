"""Tokenizers by name, and the user's own."""

from pathlib import Path

import pytest

from elmo.errors import ConfigError
from elmo.text.tokenizers import source, tokenizer
from elmo.text.tokens import words


def test_the_names() -> None:
    assert tokenizer("moses") is words
    assert tokenizer("whitespace")(" It's\there. \n") == ["It's", "here."]
    assert source("moses") is None


def test_a_function_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("import re\n\ndef letters(text):\n    return re.findall('[a-z]', text)\n\nNUMBER = 3\n")
    assert tokenizer(f"{path}:letters")("a b, cd") == ["a", "b", "c", "d"]
    assert source(f"{path}:letters") == path
    for name in ("words", "NUMBER", ""):
        with pytest.raises(ConfigError, match=rf"mine\.py: no function '{name}' in it; found letters"):
            tokenizer(f"{path}:{name}")


@pytest.mark.parametrize("name", ["spacy", "", "mine:words", "moses:words"])
def test_an_unknown_name_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"tokenizer is '{name}'; expected moses, whitespace, or PATH:FUNC"):
        tokenizer(name)


def test_a_file_that_cannot_be_imported_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.py: cannot be imported \(FileNotFoundError"):
        tokenizer(f"{tmp_path / 'none.py'}:words")
    (tmp_path / "wrong.py").write_text("import no_such_module_anywhere\n")
    with pytest.raises(ConfigError, match=r"wrong\.py: cannot be imported \(ModuleNotFoundError: No module"):
        tokenizer(f"{tmp_path / 'wrong.py'}:words")
