"""Files of columns: sentences and their line numbers, columns and BIO tags, by hand."""

from pathlib import Path

from elmo.tasks.columns import bio_tags, columns_of, sentences_of


def test_sentences_and_the_numbers_of_their_first_lines(tmp_path: Path) -> None:
    path = tmp_path / "columns.txt"
    path.write_text("-DOCSTART- O\n\na X\nb Y\n \t\n\nc X\n-DOCSTART- O\nd Y", encoding="utf-8")
    found = list(sentences_of(path, "-DOCSTART-"))
    assert found == [(3, ["a X", "b Y"]), (7, ["c X"]), (9, ["d Y"])]


def test_columns_are_divided_by_tabs_or_else_by_blanks() -> None:
    assert columns_of("a b\tB-X") == ["a b", "B-X"]
    assert columns_of(" a   b B-X ") == ["a", "b", "B-X"]
    for space in "\u00a0\u3000":  # spaces that are no ASCII are part of a token, and may be all of it
        assert columns_of(f"10{space}000 O") == [f"10{space}000", "O"]
        assert columns_of(f"{space} O") == columns_of(f" {space} \tO ") == [space, "O"]


def test_bio_tags() -> None:
    assert bio_tags([(1, 3, "X"), (3, 4, "X")], 5) == ["O", "B-X", "I-X", "B-X", "O"]
    assert bio_tags([], 2) == ["O", "O"]
