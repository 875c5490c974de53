"""A path as a corpus: a prepared folder or plain text; and how a resumed run finds its options."""

import os
from pathlib import Path
from typing import Any

import pytest

from corpora import write_corpus
from elmo.errors import ConfigError, DataError
from elmo.pretrain.corpus import Corpus
from elmo.pretrain.corpus_source import TextOptions, is_prepared, open_or_prepare

LINES = ["the cat sat.", "a dog isn't here", "the cat sat.", "who knows ?"]


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text("".join(f"{line}\n" for line in LINES))
    return path


@pytest.fixture
def prepared(tmp_path: Path) -> Path:
    sentences = [["a", "b"], ["b", "c"]]
    return write_corpus(tmp_path / "prepared", [sentences], [], 5)


def words_of(corpus: Corpus) -> list[str]:
    """The training text without the boundaries."""
    rows = [row for shard in corpus.train for row in corpus.rows(shard).tolist()]
    return [corpus.words[row] for row in rows if row > 1]


def test_a_prepared_folder_is_opened_as_it_is(prepared: Path, tmp_path: Path) -> None:
    assert is_prepared(prepared)
    assert open_or_prepare(prepared, tmp_path / "cache").folder == prepared
    assert not (tmp_path / "cache").exists()


def test_the_manifest_is_no_text(prepared: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as error:
        open_or_prepare(prepared / "corpus.json", tmp_path / "cache")
    assert str(error.value) == (
        f"{prepared / 'corpus.json'}: is a file of a prepared corpus; expected its folder, {prepared}"
    )


@pytest.mark.parametrize("name", ["tokenizer", "vocabulary"])
def test_options_of_a_text_are_refused_for_a_prepared_folder(name: str, prepared: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {name: "moses" if name == "tokenizer" else tmp_path / "words.txt"}
    with pytest.raises(ConfigError, match=rf"is a prepared corpus and has its own {name}; --{name} .* only for text"):
        open_or_prepare(prepared, tmp_path / "cache", TextOptions(**options))


def test_a_text_keeps_its_order_and_its_duplicates(text: Path, tmp_path: Path) -> None:
    assert not is_prepared(text)
    corpus = open_or_prepare(text, tmp_path / "cache", TextOptions("whitespace"))
    assert words_of(corpus) == " ".join(LINES).split()
    assert corpus.heldout == ()
    moses = open_or_prepare(text, tmp_path / "cache")
    assert words_of(moses)[3:8] == [".", "a", "dog", "isn", "'t"]


def test_a_share_is_held_out(tmp_path: Path) -> None:
    lines = [f"line {k}" for k in range(200)]
    (tmp_path / "text.txt").write_text("".join(f"{line}\n" for line in lines))
    corpus = open_or_prepare(tmp_path / "text.txt", tmp_path / "cache", heldout="5%")
    held = sum(shard.sentences for shard in corpus.heldout)
    assert 0 < held < 40
    assert held + sum(shard.sentences for shard in corpus.train) == 200


def test_it_is_prepared_once_for_each_text_and_each_way_to_read_it(text: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"

    def folder(options: TextOptions | None = None) -> Path:
        return open_or_prepare(text, cache, options).folder

    first = folder()
    stamp = (first / "corpus.json").stat().st_mtime_ns
    assert folder() == folder(TextOptions("moses")) == first
    assert (first / "corpus.json").stat().st_mtime_ns == stamp
    words = tmp_path / "words.txt"
    words.write_text("<S>\n</S>\n<UNK>\nthe\ncat\n")
    others = [folder(TextOptions("whitespace")), folder(TextOptions(vocabulary=words))]
    os.utime(text, ns=(1, 1))
    others.append(folder())
    assert len({first, *others}) == 4
    assert Corpus.open(others[1]).vocabulary.words == ["<S>", "</S>", "<UNK>", "the", "cat"]


def test_a_run_records_how_its_text_is_read(text: Path, prepared: Path) -> None:
    assert TextOptions().record(text) == {"text": {"tokenizer": "moses", "vocabulary": None}}
    options = TextOptions("whitespace", Path("words.txt"))
    assert options.record(text) == {"text": {"tokenizer": "whitespace", "vocabulary": "words.txt"}}
    assert TextOptions().record(prepared) == {}


def test_a_resumed_run_reads_its_text_as_before(text: Path, prepared: Path) -> None:
    began = TextOptions("whitespace", Path("words.txt"))
    record = began.record(text)
    assert TextOptions().resumed(text, record) == began
    assert TextOptions("whitespace").resumed(text, record) == began
    other = TextOptions(vocabulary=Path("other.txt")).resumed(text, record)
    assert other == TextOptions("whitespace", Path("other.txt"))
    with pytest.raises(ConfigError, match=r"^--tokenizer is moses, but the run was started with whitespace\. Leave"):
        TextOptions("moses").resumed(text, record)
    for path, facts in ((prepared, record), (text, {})):  # another corpus, which is refused later; a record without it
        assert TextOptions("moses").resumed(path, facts) == TextOptions("moses")


def test_a_hidden_file_makes_no_other_corpus(tmp_path: Path) -> None:
    """It is not read: a file that an editor or the system puts there changes nothing."""
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "a.txt").write_text("one two\n")
    first = open_or_prepare(folder, tmp_path / "cache").folder
    (folder / ".DS_Store").write_bytes(b"\0")
    assert open_or_prepare(folder, tmp_path / "cache").folder == first


def test_a_name_that_no_file_can_have_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r": cannot be read \(File name too long\); expected a text file$"):
        open_or_prepare(tmp_path / ("x" * 300), tmp_path / "cache")
