"""Documents in CoNLL-2012 columns: marks of mentions, layouts of folders, refusals, predictions, raw text."""

import io
import re
from pathlib import Path
from typing import Any

import pytest

from elmo.errors import DataError
from elmo.tasks.coref import conll, data, metric
from elmo.tasks.coref.document import Clusters, Document, Span
from elmo.tasks.coref.model import TASK
from elmo.tasks.examples import fraction
from embedders import assert_refused, elmo
from reference_files import needs_shared, unpacked
from tasks.small_coref import EIGHT, document


def lines(*coreference: str, name: str = "x", words: str = "", end: bool = True) -> str:
    """A document of one sentence with these marks, in 12 columns."""
    tokens = words.split() or [f"w{number}" for number in range(len(coreference))]
    rows = [
        "\t".join([name, "0", str(number), token, *"-*---", "-", "*", mark])
        for number, (token, mark) in enumerate(zip(tokens, coreference, strict=True))
    ]
    return "\n".join([f"#begin document ({name}); part 000", *rows, ""]) + ("\n#end document\n" if end else "")


def clusters_of(path: Path, *coreference: str) -> list[list[tuple[int, int]]]:
    path.write_text(lines(*coreference), encoding="utf-8")
    (one,) = conll.read_file(path)
    return [[(start, end) for start, end in cluster] for cluster in one.gold]


@pytest.mark.parametrize(
    ("coreference", "expected"),
    [
        (["(12)", "-", "(12)"], [[(0, 1), (2, 3)]]),
        (["(12", "12)|(3", "3)"], [[(0, 2)], [(1, 3)]]),
        (["(3(4", "4)", "3)"], [[(0, 3)], [(0, 2)]]),  # without a bar between them
        (["(3|(4)", "3)", "(4)"], [[(0, 1), (2, 3)], [(0, 2)]]),  # mentions of one token are read first
        (["(1", "(1)", "1)"], [[(1, 2), (0, 3)]]),  # nested in a mention of the same entity
        (["(1|(1", "1)|1)"], [[(0, 2), (0, 2)]]),  # nested in itself
        (["(1)|(1)"], [[(0, 1), (0, 1)]]),
        (["(1", "(1", "1)", "1)"], [[(1, 3), (0, 4)]]),  # an end belongs to the latest beginning
        (["(a-b)", "_", "", "*", "-"], [[(0, 1)]]),
        (["-", "-"], []),
    ],
)
def test_marks(coreference: list[str], expected: list[list[tuple[int, int]]], tmp_path: Path) -> None:
    assert clusters_of(tmp_path / "x.conll", *coreference) == expected


def test_a_word_may_be_a_no_break_space(tmp_path: Path) -> None:
    (tmp_path / "x.conll").write_text(lines("-", "(0)", "-").replace("w1", "\u00a0"), encoding="utf-8")
    (one,) = conll.read_file(tmp_path / "x.conll")
    assert (one.texts, one.gold) == ((("w0", "\u00a0", "w2"),), ((Span(1, 2),),))


def test_columns_with_spaces_as_in_ontonotes(tmp_path: Path) -> None:
    """Predicate columns between the named entities and coreference; comments and blank lines are no sentences."""
    (tmp_path / "x.v4_gold_conll").write_text(
        "#begin document (bc/cctv/00/cctv_0005); part 001\n\n"
        "bc/cctv/00/cctv_0005   1   0     What     WP  (TOP(S*   -   -   -   Speaker#1   *   *   (ARG0*   -\n"
        "bc/cctv/00/cctv_0005   1   1     she    PRP   *)        -   -   -   Speaker#1   *   *    *)   (0)\n"
        "\n\n# a comment\n"
        "bc/cctv/00/cctv_0005   1   0      ?      .     *))      -   -   -   -   *    -\n"
        "#end document\n",
        encoding="utf-8",
    )
    (one,) = conll.read_file(tmp_path / "x.v4_gold_conll")
    speakers = ("Speaker#1", "Speaker#1", "")
    texts = (("What", "she"), ("?",))
    assert one == Document(texts, ((Span(1, 2),),), "bc/cctv/00/cctv_0005", "001", "bc", speakers)


@pytest.mark.parametrize(
    ("name", "genre"),
    [
        ("bc/cctv/00/cctv_0000", "bc"),
        ("GUM_academic_art", "academic"),
        ("1342_pride_brat", ""),
        ("GUM_x", ""),
        ("", ""),
    ],
)
def test_the_genre_is_in_the_name(name: str, genre: str) -> None:
    assert conll.genre_of(name) == genre


BEGIN = "expected a line such as '#begin document (name); part 000'"
COLUMNS = "expected 5 or more: document, part, number, word, …, and coreference in the last one"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (lines("(1", "-"), ":2: '(1' is never closed; expected '1)' in the document"),
        (lines("-", "1)"), ":3: '1)' without a beginning; expected '(1' before it"),
        (lines("(1", "2)", "1)"), ":3: '2)' without a beginning; expected '(2' before it"),
        (lines("12"), ":2: coreference '12'; expected '-', or marks such as (3|(4) or 3)"),
        (lines("(1)x"), ":2: coreference '(1)x'; expected '-', or marks such as (3|(4) or 3)"),
        (lines("()"), ":2: coreference '()'; expected '-', or marks such as (3|(4) or 3)"),
        (lines("||"), ":2: coreference '||'; expected '-', or marks such as (3|(4) or 3)"),
        (lines("-", end=False), ": ends inside document 'x'; expected '#end document' at its end"),
        (lines("-", end=False) * 2, ":3: a document begins inside another; expected '#end document' before it"),
        ("#end document\n", f":1: '#end document' without a beginning; {BEGIN} before it"),
        ("a\t0\t0\tb\t-\n", f":1: 'a\\t0\\t0\\tb\\t-' is outside of a document; {BEGIN} before it"),
        ("#begin document (a; part 1\n", f":1: '#begin document (a; part 1'; {BEGIN}"),
        ("#begin document (a); part 0\na b c\n", f":2: 3 columns in 'a b c'; {COLUMNS}"),
        ("#begin document (a); part 0\na\t0\t0\t\t-\n", f":2: 5 columns in 'a\\t0\\t0\\t\\t-'; {COLUMNS}"),
    ],
)
def test_what_is_wrong_is_refused_with_its_line(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "train.conll"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=f"^{re.escape(f'{path}{message}')}$"):
        data.read(tmp_path)


# Folders


def write(path: Path, *documents: Document) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as file:
        conll.write_documents(file, documents, [one.gold for one in documents])


def test_three_layouts_of_folders(tmp_path: Path) -> None:
    a, b, c = EIGHT[:3]
    for part, one in (("train", a), ("dev", b), ("test", c)):
        write(tmp_path / "files" / f"{part}.conll", one)
        write(tmp_path / "flat" / f"{part}.english.v4_gold_conll", one)
        folder = {"dev": "development"}.get(part, part)
        below = tmp_path / "tree" / "v4" / "data" / folder / "data"
        write(below / "english" / "annotations" / "bc" / "x.v4_gold_conll", one)
        write(below / "english" / "annotations" / "bc" / "x.v4_auto_conll", document("Not read ."))
        write(below / "chinese" / "annotations" / "bc" / "x.v4_gold_conll", document("Not read ."))
    expected = {"train": [a], "dev": [b], "test": [c]}
    for layout in ("files", "flat", "tree"):
        splits = data.read(tmp_path / layout)
        assert list(splits) == list(expected)
        for part, (one,) in expected.items():
            assert [(two.texts, set(two.gold), two.speakers) for two in splits[part]] == [
                (one.texts, set(one.gold), one.speakers)
            ]


def test_documents_without_parts_are_divided_by_name(tmp_path: Path) -> None:
    names = [f"{number}_a_novel" for number in range(1, 21)]
    for name in names:
        write(tmp_path / f"{name}.conll", document("[1 He] said [1 he] .", name=name))
    splits = data.read(tmp_path)
    found = {part: [one.name for one in documents if isinstance(one, Document)] for part, documents in splits.items()}
    ordered = sorted(names)
    assert found["dev"] == [ordered[8], ordered[18]] and found["test"] == [ordered[9], ordered[19]]
    assert sorted(name for part in found.values() for name in part) == ordered and len(found["train"]) == 16
    assert len(fraction(splits["train"], 0.25, seed=0)) == 4  # whole documents


def test_a_folder_without_files_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=r": contains no file of the task; expected some of train\.conll, .* or folders"
    ):
        data.read(tmp_path)


@needs_shared
def test_ontogum(tmp_path: Path) -> None:
    splits = data.read(unpacked("ontogum", tmp_path))
    assert {part: len(documents) for part, documents in splits.items()} == {"train": 177, "dev": 30, "test": 30}
    every = [one for documents in splits.values() for one in documents if isinstance(one, Document)]
    assert sum(len(one.tokens) for one in every) == 233_926 and sum(len(one.texts) for one in every) == 13_263
    assert sum(len(cluster) for one in every for cluster in one.gold) == 30_719
    assert {one.genre for one in every} >= {"academic", "news", "whow"}
    assert {"Alan", "MaeLynne", ""} < {speaker for one in every for speaker in one.speakers}


@needs_shared
def test_litbank(tmp_path: Path) -> None:
    splits = data.read(unpacked("litbank", tmp_path))
    assert {part: len(documents) for part, documents in splits.items()} == {"train": 80, "dev": 10, "test": 10}
    every = [one for documents in splits.values() for one in documents if isinstance(one, Document)]
    clusters = [cluster for one in every for cluster in one.gold]
    assert (sum(len(one.tokens) for one in every), len(clusters), sum(map(len, clusters))) == (210_532, 7927, 29_103)
    assert sum(len(cluster) == 1 for cluster in clusters) == 5763
    of_test = {one.name.split("_")[0] for one in splits["test"] if isinstance(one, Document)}
    assert of_test == {"120", "158", "208", "24", "32", "4217", "521", "6593", "805", "9830"}


# Predictions


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    nested = document("[1 The [2 [1 dog] of [3 Anna]]] , [3 she] said , [1 [1 barks]] .", name="n")
    gold = [*EIGHT, nested, Document((), (), "empty", "0")]
    with (tmp_path / "found.conll").open("w", encoding="utf-8") as file:
        data.write_predictions(file, gold, [one.gold for one in gold])
    read = data.read_predictions(tmp_path / "found.conll", gold)
    assert [sorted(sorted(c) for c in one) for one in read] == [sorted(sorted(c) for c in one.gold) for one in gold]
    assert conll.read_file(tmp_path / "found.conll")[0].texts == EIGHT[0].texts
    assert TASK.score([one.gold for one in EIGHT], read[:8])["f1"] == pytest.approx(100)


def test_the_columns_that_are_written() -> None:
    file = io.StringIO()
    conll.write_documents(file, [document("[1 Anna] saw [2 [1 her] dog] .", speakers=["A"])], [(
        (Span(0, 1), Span(2, 3)), (Span(2, 4), Span(2, 4)),
    )])  # fmt: skip
    rows = [line.split("\t") for line in file.getvalue().splitlines()]
    assert rows[0] == ["#begin document (doc); part 0"] and rows[-2:] == [[""], ["#end document"]]
    assert rows[1] == ["doc", "0", "0", "Anna", "-", "*", "-", "-", "-", "A", "*", "(0)"]
    assert [row[-1] for row in rows[1:-2]] == ["(0)", "-", "(1|(1|(0)", "1)|1)", "-"]


@pytest.mark.parametrize(
    ("written", "message"),
    [
        (["a"], "1 of 2 documents are missing, such as (b); part 0"),
        (["a", "b", "c"], "document (c); part 0 is not among the gold documents"),
        (["a", "b", "a"], "document (a); part 0 occurs twice"),
    ],
)
def test_predictions_for_other_documents_are_refused(written: list[str], message: str, tmp_path: Path) -> None:
    by_name = {one.name: one for one in EIGHT}
    write(tmp_path / "found.conll", *(by_name[name] for name in written))
    with pytest.raises(DataError, match=re.escape(f"found.conll: {message}")):
        data.read_predictions(tmp_path / "found.conll", EIGHT[:2])


def test_predictions_for_other_tokens_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "found.conll", document("Anna left .", name="a"))
    with pytest.raises(DataError, match=r"document \(a\); part 0 has 3 tokens; expected 8"):
        data.read_predictions(tmp_path / "found.conll", EIGHT[:1])


def test_the_command_scores_a_prediction_file(tmp_path: Path) -> None:
    gold, found = tmp_path / "gold.conll", tmp_path / "found.conll"
    write(gold, *EIGHT)
    write(found, *EIGHT)
    ended = elmo("evaluate", "coref", gold, "--predictions", found)
    assert ended.code == 0 and ended.out.splitlines()[0].split() == ["f1", "100.00"]
    found.write_text(lines("(1"), encoding="utf-8")
    assert_refused(elmo("evaluate", "coref", gold, "--predictions", found), "found.conll:2: '(1' is never closed")


# What is asked and answered


def test_raw_text_is_divided_into_sentences_and_tokens() -> None:
    text = "A title\n\nAnna left. She didn't say\nwhy!\n"
    one = data.parse(text)
    texts = (("A", "title"), ("Anna", "left", "."), ("She", "didn", "'t", "say", "why", "!"))
    assert one == Document(texts, speakers=("",) * 11)
    assert data.parse({"text": text, "genre": "nw", "name": "n"}) == Document(texts, None, "n", "", "nw", ("",) * 11)


def test_sentences_with_speakers() -> None:
    item = {"sentences": [["I", "know"], [], "Do you?"], "speakers": ["A", "B", ["B", "B", "C"]]}
    assert data.parse(item) == Document((("I", "know"), ("Do", "you", "?")), speakers=("A", "A", "B", "B", "C"))
    assert data.parse([["I", "know"]]) == Document((("I", "know"),), speakers=("", ""))
    assert data.parse({"sentences": [["I"]], "speakers": [None]}).speakers == ("",)


@pytest.mark.parametrize("item", ["", " \n\n ", [], {"text": ""}, {"sentences": []}, {"sentences": [[]]}])
def test_an_empty_document(item: Any) -> None:
    assert data.parse(item) == Document(())


@pytest.mark.parametrize(
    "item",
    [
        3, None, {}, {"sentences": 3}, {"sentences": [3]}, {"sentences": [["a", ""]]}, {"sentences": [["a", 1]]},
        {"sentences": [["a"]], "speakers": []}, {"sentences": [["a"]], "speakers": ["A", "B"]},
        {"sentences": [["a"]], "speakers": [["A", "B"]]}, {"sentences": [["a"]], "speakers": [3]},
        {"sentences": [["a"]], "genre": 3}, {"text": "a", "name": ["b"]},
    ],
)  # fmt: skip
def test_items_of_another_form_are_refused(item: Any) -> None:
    with pytest.raises(
        DataError, match=f"^{re.escape(repr(item))}: expected a text, a list of sentences, or an object"
    ):
        data.parse(item)


def test_an_answer_is_readable() -> None:
    one = EIGHT[0]
    answer = data.to_json(one, one.gold)
    assert answer == {
        "name": "a",
        "sentences": [["Anna", "saw", "Rex", "."], ["She", "fed", "it", "."]],
        "clusters": [
            [{"start": 0, "end": 1, "text": "Anna"}, {"start": 4, "end": 5, "text": "She"}],
            [{"start": 2, "end": 3, "text": "Rex"}, {"start": 6, "end": 7, "text": "it"}],
        ],
    }
    assert data.to_json(Document(()), ()) == {"sentences": [], "clusters": []}


def test_a_document_is_cut_with_its_mentions() -> None:
    one = document("[1 A] b .", "[1 She] [2 c d] .", "[2 e] [1 f] g .", "h .", speakers=["p", "q", "r", "s"])
    piece = one.cut(1, 2)
    assert piece.texts == (("She", "c", "d", "."), ("e", "f", "g", "."))
    assert {frozenset(cluster) for cluster in piece.gold} == {
        frozenset({Span(0, 1), Span(5, 6)}), frozenset({Span(1, 3), Span(4, 5)})
    }  # fmt: skip
    assert piece.speakers == ("q",) * 4 + ("r",) * 4
    assert one.cut(0, 99) == one and one.cut(3, 1).gold == ()


def test_the_scores_of_a_document_that_lacks_mentions() -> None:
    none: Clusters = ()
    assert set(metric.score([none], [none]).values()) == {0.0}
