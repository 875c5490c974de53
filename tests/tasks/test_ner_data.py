"""CoNLL columns, spans and their F1, against seqeval and by hand. All text here is invented."""

import io
import re
from collections.abc import Callable, Sequence
from itertools import pairwise, product
from pathlib import Path

import numpy as np
import pytest
from seqeval.metrics import classification_report, f1_score, precision_score, recall_score
from seqeval.metrics.sequence_labeling import get_entities

from elmo.errors import DataError
from elmo.tasks.examples import Example
from elmo.tasks.ner.data import (
    Span,
    labels,
    legal,
    read,
    read_file,
    read_predictions,
    spans_of,
    tags_of,
    to_json,
    write_predictions,
)
from elmo.tasks.ner.metric import score

TYPES = ["LOC", "PER", "creative-work"]
SIMPLE = b"Zorb B-PER\nsleeps O\n"
IN_IT = (
    "contains no file of the task; expected some of train.txt, eng.train, train.conll, wnut17train.conll, dev.txt, "
    "valid.txt, eng.testa, dev.conll, "
    "emerging.dev.conll, test.txt, eng.testb, test.conll, emerging.test.annotated"
)


def written(place: Path, content: str | bytes) -> Path:
    path = place / "some.conll"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def refusal(path: Path) -> str:
    with pytest.raises(DataError) as error:
        read_file(path)
    return str(error.value)


def draw_spans(rng: np.random.Generator, length: int) -> list[Span]:
    """Entities from left to right, often side by side, also of the same type."""
    spans, place = [], 0
    while place < length:
        size = int(rng.integers(1, 5))
        if rng.random() < 0.6 and place + size <= length:
            spans.append(Span(place, place + size, str(rng.choice(TYPES))))
        else:
            size = 1
        place += size
    return spans


def draw_tags(rng: np.random.Generator, marks: str, length: int) -> list[str]:
    """Tags one independent of the other: few sequences are legal."""
    drawn = [(str(rng.choice(list(f"OO{marks}"))), str(rng.choice(TYPES))) for _ in range(length)]
    return ["O" if mark == "O" else f"{mark}-{kind}" for mark, kind in drawn]


def by_seqeval(tags: list[str]) -> list[Span]:
    return [Span(first, last + 1, kind) for kind, first, last in get_entities(tags)]


# The schemes, each written as its definition says


def iob2(spans: Sequence[Span], length: int) -> list[str]:
    """B at an entity's first token, I at the others."""
    owner = {place: span for span in spans for place in range(span.start, span.end)}
    return [
        f"{'B' if owner[place].start == place else 'I'}-{owner[place].type}" if place in owner else "O"
        for place in range(length)
    ]


def iob1(spans: Sequence[Span], length: int) -> list[str]:
    """I at all tokens, save that of two entities of a type side by side the second begins with B."""
    touched = {(span.end, span.type) for span in spans}
    return [
        tag if tag[0] != "B" or (place, tag[2:]) in touched else f"I-{tag[2:]}"
        for place, tag in enumerate(iob2(spans, length))
    ]


def bioes(spans: Sequence[Span], length: int) -> list[str]:
    """IOB2 with E at an entity's last token, and S where that is the first one."""
    tags = iob2(spans, length)
    for span in spans:
        tags[span.end - 1] = f"{'S' if span.end - span.start == 1 else 'E'}-{span.type}"
    return tags


def bioul(spans: Sequence[Span], length: int) -> list[str]:
    """BIOES with U for S (unit) and L for E (last)."""
    return [{"S": "U", "E": "L"}.get(tag[0], tag[0]) + tag[1:] for tag in bioes(spans, length)]


SCHEMES: dict[str, Callable[[Sequence[Span], int], list[str]]] = {
    "IOB1": iob1, "IOB2": iob2, "BIOES": bioes, "BIOUL": bioul,
}  # fmt: skip
COLUMNS = {
    "spaces": "{token} NN B-NP {tag}\n",
    "two columns": "{token} {tag}\n",
    "tabs": "{token}\t{tag}\n",
    "tabs in four columns": "{token}\t_\tNN\t{tag}\n",
    "more spaces": "{token}   NN  {tag} \n",
    "tabs and spaces": "{token} \t{tag} \n",
}


def test_the_schemes_here_are_what_they_should_be() -> None:
    spans = [Span(0, 2, "PER"), Span(2, 3, "PER"), Span(3, 4, "LOC"), Span(5, 8, "LOC")]
    assert iob1(spans, 9) == ["I-PER", "I-PER", "B-PER", "I-LOC", "O", "I-LOC", "I-LOC", "I-LOC", "O"]
    assert iob2(spans, 9) == ["B-PER", "I-PER", "B-PER", "B-LOC", "O", "B-LOC", "I-LOC", "I-LOC", "O"]
    assert bioes(spans, 9) == ["B-PER", "E-PER", "S-PER", "S-LOC", "O", "B-LOC", "I-LOC", "E-LOC", "O"]
    assert bioul(spans, 9) == ["B-PER", "L-PER", "U-PER", "U-LOC", "O", "B-LOC", "I-LOC", "L-LOC", "O"]


# Files


@pytest.mark.parametrize("columns", COLUMNS.values(), ids=COLUMNS)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_all_schemes_and_columns_give_the_same_sentences(tmp_path: Path, scheme: str, columns: str) -> None:
    rng = np.random.default_rng(0)
    wanted, text = [], ""
    for number in range(60):
        length = int(rng.integers(1, 12))
        tokens = tuple(f"{rng.choice(['zorb', 'blim', 'Qua', 'ñé', '-', '#5', '日本'])}{number}" for _ in range(length))
        spans = draw_spans(rng, length)
        wanted.append(Example((tokens,), tuple(spans)))
        tags = SCHEMES[scheme](spans, length)
        text += "".join(columns.format(token=token, tag=tag) for token, tag in zip(tokens, tags, strict=True)) + "\n"
    assert read_file(written(tmp_path, text)) == wanted


def test_a_file_by_hand(tmp_path: Path) -> None:
    text = "Zorb NNP I-NP I-PER\nBlim NNP I-NP I-PER\nsaw VBD I-VP O\nQua NNP I-NP I-LOC\n. . O O\n"
    tokens = ("Zorb", "Blim", "saw", "Qua", ".")
    gold = (Span(0, 2, "PER"), Span(3, 4, "LOC"))
    assert read_file(written(tmp_path, text)) == [Example((tokens,), gold)]


@pytest.mark.parametrize(
    "text",
    [
        "a O\nb B-LOC\n\nc O\n",
        "a O\nb B-LOC\n\nc O\n\n",
        "a O\nb B-LOC\n\n\n\n\nc O\n\n\n",
        "\n\n\na O\nb B-LOC\n\nc O",
        "a O\nb B-LOC\n \t \nc O",
        "a O\r\nb B-LOC\r\n\r\nc O\r\n",
        "a O\r\nb B-LOC\r\n\r\n\r\nc O",
        "a\tO\r\nb\tB-LOC\r\n\t\r\nc\tO\r\n",
        "-DOCSTART- -X- O O\n\na O\nb B-LOC\n\n-DOCSTART- -X- O O\n\nc O\n",
        "-DOCSTART- O\r\n\r\na O\r\nb B-LOC\r\n\r\nc O\r\n",
        "-DOCSTART-\tO\n\n\n-DOCSTART-\tO\n\na\tO\nb\tB-LOC\n\nc\tO\n\n-DOCSTART-\tO",
    ],
)
def test_blank_lines_line_ends_and_document_starts(tmp_path: Path, text: str) -> None:
    wanted = [Example((("a", "b"),), (Span(1, 2, "LOC"),)), Example((("c",),), ())]
    assert read_file(written(tmp_path, text)) == wanted


@pytest.mark.parametrize("text", ["", "\n", "\r\n\r\n \n", "-DOCSTART- -X- -X- O\n", "-DOCSTART- -X- -X- O\n\n"])
def test_a_file_without_sentences(tmp_path: Path, text: str) -> None:
    assert read_file(written(tmp_path, text)) == []


def test_an_entity_ends_with_its_sentence(tmp_path: Path) -> None:
    text = "a I-PER\nb I-PER\n\nc I-PER\n\nd B-LOC\n\ne I-LOC\n"
    assert [example.gold for example in read_file(written(tmp_path, text))] == [
        (Span(0, 2, "PER"),), (Span(0, 1, "PER"),), (Span(0, 1, "LOC"),), (Span(0, 1, "LOC"),),
    ]  # fmt: skip


def test_a_byte_order_mark_is_no_part_of_the_first_token(tmp_path: Path) -> None:
    assert read_file(written(tmp_path, b"\xef\xbb\xbf" + SIMPLE)) == read_file(written(tmp_path, SIMPLE))


@pytest.mark.parametrize("inside", ["\xa0", "\u2009", "\u3000", "\u202f"])
def test_a_token_with_a_space_that_is_no_ascii_stays_whole(tmp_path: Path, inside: str) -> None:
    """As in 10 000 with a no-break space."""
    for gap in " \t":
        (example,) = read_file(written(tmp_path, f"10{inside}000{gap}CD{gap}O\n"))
        assert example.texts == ((f"10{inside}000",),)


@pytest.mark.parametrize("inside", ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c"])
def test_only_line_ends_end_a_line(tmp_path: Path, inside: str) -> None:
    """Not what Unicode says of paragraphs, pages and the like; else numbers of lines are not those of an editor."""
    (example,) = read_file(written(tmp_path, f"zorb{inside}blim\tB-PER\nsleeps\tO\n"))
    assert example == Example(((f"zorb{inside}blim", "sleeps"),), (Span(0, 1, "PER"),))


# Files that are refused


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a O\nb\n", ":2: 'b'; expected a token and, in the last column, its tag"),
        ("a O\n\n\nb O\nc   \n\n", ":5: 'c   '; expected a token and, in the last column, its tag"),
        ("a O\r\n\r\nb\r\n", ":3: 'b'; expected a token and, in the last column, its tag"),
        ("a B\n", ":1: tag 'B'; expected O, or B-, I-, … and a type"),
        ("a O\nb PER\n", ":2: tag 'PER'; expected O, or B-, I-, … and a type"),
        ("a O\n\nb o\n", ":3: tag 'o'; expected O, or B-, I-, … and a type"),
        ("\n\na NN X-PER\n", ":3: tag 'X-PER'; expected O, or B-, I-, … and a type"),
        ("a\tO\nb\t\n", ":2: tag ''; expected O, or B-, I-, … and a type"),
        ("a\tO\nb\tO\t\n", ":2: tag ''; expected O, or B-, I-, … and a type"),
        ("-DOCSTART- -X- O O\n\na O\nb -X-", ":4: tag '-X-'; expected O, or B-, I-, … and a type"),
        ("a O\nb b-PER\n", ":2: tag 'b-PER'; expected O, or B-, I-, … and a type"),
    ],
)
def test_a_line_that_is_wrong_is_named(tmp_path: Path, text: str, message: str) -> None:
    path = written(tmp_path, text)
    assert refusal(path) == f"{path}{message}"


@pytest.mark.parametrize("tag", ["B-", "I-", "E-", "S-", "L-", "U-"])
def test_a_tag_without_a_type_is_refused(tmp_path: Path, tag: str) -> None:
    path = written(tmp_path, f"a O\nb {tag}\n")
    assert refusal(path) == f"{path}:2: tag '{tag}'; expected O, or B-, I-, … and a type"


@pytest.mark.parametrize("line", ["\tO", " \tB-PER", "\tNN\tO"])
def test_a_line_without_a_token_is_refused(tmp_path: Path, line: str) -> None:
    path = written(tmp_path, f"a\tO\n{line}\n")
    assert refusal(path) == f"{path}:2: {line!r}; expected a token and, in the last column, its tag"


def test_a_file_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, SIMPLE * 1000 + b"caf\xe9 O\n")
    line = SIMPLE.count(b"\n") * 1000 + 1
    message = f"{path}: line {line} is not UTF-8 (byte 4 is 0xe9); convert the file first, e.g. with iconv"
    assert refusal(path) == message


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "nowhere.conll"
    assert refusal(path) == f"{path}: cannot be read (No such file or directory); expected a text file"
    assert refusal(tmp_path) == f"{tmp_path}: cannot be read (Is a directory); expected a text file"


# Predictions


@pytest.mark.parametrize(
    ("columns", "wanted"),
    [
        ("Qua\tB-LOC\nQua\tI-LOC\n", "Qua B-LOC B-LOC\nQua I-LOC O\n\n"),
        ("Qua Zorb\tB-LOC\nblim\tO\n", "Qua Zorb\tB-LOC\tB-LOC\nblim\tO\tO\n\n"),
        ("Qua\tB-big place\n\nblim\tO\n", "Qua\tB-big place\tB-big place\n\nblim\tO\tO\n\n"),
    ],
)
def test_predictions_are_read_back_also_with_spaces_in_a_column(columns: str, wanted: str, tmp_path: Path) -> None:
    gold = read_file(written(tmp_path, columns))
    answers = [[span._replace(end=span.start + 1) for span in example.gold] for example in gold]
    file = io.StringIO()
    write_predictions(file, gold, answers)
    assert file.getvalue() == wanted
    assert [list(spans) for spans in read_predictions(written(tmp_path, wanted), gold)] == answers


# Folders

LAYOUTS = {
    "CoNLL-2003": ("eng.train", "eng.testa", "eng.testb"),
    "CoNLL-2003 as text": ("train.txt", "valid.txt", "test.txt"),
    "WNUT-17": ("wnut17train.conll", "emerging.dev.conll", "emerging.test.annotated"),
    "text": ("train.txt", "dev.txt", "test.txt"),
    "conll": ("train.conll", "dev.conll", "test.conll"),
}


@pytest.mark.parametrize("names", LAYOUTS.values(), ids=LAYOUTS)
def test_a_folder_is_read_by_its_names(tmp_path: Path, names: tuple[str, str, str]) -> None:
    for name in names:
        (tmp_path / name).write_text(f"{name} B-LOC\n\nsleeps O\n")
    (tmp_path / "README").write_text("no columns here")
    found = read(tmp_path)
    assert list(found) == ["train", "dev", "test"]
    for part, name in zip(found, names, strict=True):
        assert found[part] == [Example(((name,),), (Span(0, 1, "LOC"),)), Example((("sleeps",),), ())]


@pytest.mark.parametrize("parts", [["train"], ["test"], ["train", "dev"], ["dev", "test"], ["train", "test"]])
def test_a_folder_may_have_some_parts_alone(tmp_path: Path, parts: list[str]) -> None:
    for part in parts:
        (tmp_path / f"{part}.txt").write_bytes(SIMPLE)
    wanted = [Example((("Zorb", "sleeps"),), (Span(0, 1, "PER"),))]
    assert read(tmp_path) == {part: wanted for part in parts}  # noqa: C420


@pytest.mark.parametrize("names", [[], ["train.csv", "readme.md"]])
def test_a_folder_with_nothing_to_read_is_refused(tmp_path: Path, names: list[str]) -> None:
    for name in names:
        (tmp_path / name).write_bytes(SIMPLE)
    with pytest.raises(DataError) as error:
        read(tmp_path)
    assert str(error.value) == f"{tmp_path}: {IN_IT}"


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=re.escape(f"{tmp_path / 'nowhere'}: contains no file of the task; ")):
        read(tmp_path / "nowhere")


def test_a_folders_file_that_is_wrong_is_named(tmp_path: Path) -> None:
    (tmp_path / "eng.train").write_bytes(SIMPLE)
    (tmp_path / "eng.testb").write_text("Zorb\n")
    with pytest.raises(DataError, match=re.escape(f"{tmp_path / 'eng.testb'}:1: 'Zorb'; expected a token and")):
        read(tmp_path)


# Tags and spans


def test_spans_are_those_of_seqeval_for_any_sequence_of_tags() -> None:
    rng = np.random.default_rng(1)
    n_spans = 0
    for _ in range(4000):
        tags = draw_tags(rng, "BIES", int(rng.integers(0, 12)))
        found = spans_of(tags)
        assert found == by_seqeval(tags), tags
        n_spans += len(found)
    assert n_spans > 10_000


def test_spans_are_those_of_seqeval_for_all_short_sequences_of_two_types() -> None:
    every = ["O", *(f"{mark}-{kind}" for mark in "BIES" for kind in "XY")]
    for length in range(5):
        for tags in product(every, repeat=length):
            assert spans_of(tags) == by_seqeval(list(tags)), tags


def test_u_and_l_are_s_and_e() -> None:
    rng = np.random.default_rng(2)
    for _ in range(1000):
        tags = draw_tags(rng, "BIES", int(rng.integers(1, 12)))
        renamed = [{"S": "U", "E": "L"}.get(tag[0], tag[0]) + tag[1:] for tag in tags]
        assert spans_of(renamed) == by_seqeval(tags), tags


@pytest.mark.parametrize(
    ("tags", "wanted"),
    [
        ("", []),
        ("O O", []),
        ("I-A", [(0, 1, "A")]),
        ("I-A I-A B-A", [(0, 2, "A"), (2, 3, "A")]),
        ("I-A I-B O I-A", [(0, 1, "A"), (1, 2, "B"), (3, 4, "A")]),
        ("B-A L-A L-A", [(0, 2, "A"), (2, 3, "A")]),
        ("B-A L-B O", [(0, 1, "A"), (1, 2, "B")]),
        ("U-A I-A", [(0, 1, "A"), (1, 2, "A")]),
        ("B-a-b I-a-b I-a-c", [(0, 2, "a-b"), (2, 3, "a-c")]),
    ],
)
def test_spans_by_hand(tags: str, wanted: list[tuple[int, int, str]]) -> None:
    assert spans_of(tags.split()) == wanted


def test_tags_are_those_of_the_scheme_and_give_the_same_spans_again() -> None:
    rng = np.random.default_rng(3)
    for _ in range(2000):
        length = int(rng.integers(0, 15))
        spans = draw_spans(rng, length)
        tags = tags_of(spans, length)
        assert tags == bioul(spans, length)
        assert spans_of(tags) == spans


def test_tags_of_a_padded_sentence_are_o_behind_it() -> None:
    assert tags_of([Span(1, 4, "LOC")], 7) == ["O", "B-LOC", "I-LOC", "L-LOC", "O", "O", "O"]
    assert tags_of([Span(0, 1, "LOC"), Span(1, 3, "PER")], 3) == ["U-LOC", "B-PER", "L-PER"]


def test_two_tags_are_legal_together_if_some_sentence_has_them() -> None:
    """The definition itself: all ways to lay entities into sentences of up to four tokens, and what stands together."""

    def layouts(place: int, length: int) -> list[list[Span]]:
        if place == length:
            return [[]]
        first: list[list[Span]] = [[], *([Span(place, end, kind)] for end in range(place + 1, length + 1)
                                         for kind in TYPES)]  # fmt: skip
        return [head + rest for head in first for rest in layouts(head[0].end if head else place + 1, length)]

    together = set()
    for length in range(5):
        for spans in layouts(0, length):
            together |= set(pairwise([None, *bioul(spans, length), None]))
    tags = [None, "O", *(f"{mark}-{kind}" for mark in "BIUL" for kind in TYPES)]
    assert {(before, after) for before in tags for after in tags if legal(before, after)} == together


def test_legal_pairs_by_hand() -> None:
    """Rows: before; columns: after."""
    table = {
        #         None   O  B-X I-X U-X L-X B-Y I-Y U-Y L-Y
        None:    [1,     1,  1,  0,  1,  0,  1,  0,  1,  0],
        "O":     [1,     1,  1,  0,  1,  0,  1,  0,  1,  0],
        "B-X":   [0,     0,  0,  1,  0,  1,  0,  0,  0,  0],
        "I-X":   [0,     0,  0,  1,  0,  1,  0,  0,  0,  0],
        "U-X":   [1,     1,  1,  0,  1,  0,  1,  0,  1,  0],
        "L-X":   [1,     1,  1,  0,  1,  0,  1,  0,  1,  0],
        "B-Y":   [0,     0,  0,  0,  0,  0,  0,  1,  0,  1],
        "I-Y":   [0,     0,  0,  0,  0,  0,  0,  1,  0,  1],
        "U-Y":   [1,     1,  1,  0,  1,  0,  1,  0,  1,  0],
        "L-Y":   [1,     1,  1,  0,  1,  0,  1,  0,  1,  0],
    }  # fmt: skip
    assert {before: [int(legal(before, after)) for after in table] for before in table} == table


def test_labels_are_o_and_four_of_each_type_in_order() -> None:
    examples = [
        Example((("a", "b"),), (Span(0, 1, "PER"), Span(1, 2, "LOC"))),
        Example((("a",),), ()),
        Example((("a",),), (Span(0, 1, "LOC"),)),
    ]
    wanted = ["O", "B-LOC", "I-LOC", "U-LOC", "L-LOC", "B-PER", "I-PER", "U-PER", "L-PER"]
    assert labels(examples) == wanted
    assert labels(examples[::-1]) == wanted
    assert labels([]) == labels(examples[1:2]) == ["O"]
    many = [Example((("a",),), (Span(0, 1, kind),)) for kind in "gbfhadce"]
    assert [label[2:] for label in labels(many)[1::4]] == list("abcdefgh")


# Scores


def draw_answers(rng: np.random.Generator, n: int) -> tuple[list[list[Span]], list[list[Span]], list[int]]:
    """Gold entities, and answers that keep some of them, change the type or the end of others, and invent some."""
    gold, found, lengths = [], [], []
    for _ in range(n):
        length = int(rng.integers(1, 15))
        spans = draw_spans(rng, length)
        answer: list[Span] = []
        for span in spans:
            kind, draw = str(rng.choice(TYPES)), rng.random()
            if draw < 0.5:
                answer.append(span)
            elif draw < 0.7:
                answer.append(span._replace(type=kind))
            elif draw < 0.8 and span.end - span.start > 1:
                answer.append(span._replace(end=span.end - 1))
        gold.append(spans)
        found.append(answer if rng.random() < 0.8 else draw_spans(rng, length))
        lengths.append(length)
    return gold, found, lengths


@pytest.mark.parametrize("seed", range(10))
def test_scores_are_those_of_seqeval(seed: int) -> None:
    rng = np.random.default_rng(seed)
    gold, found, lengths = draw_answers(rng, int(rng.integers(20, 200)))
    tags = [[iob2(spans, length) for spans, length in zip(side, lengths, strict=True)] for side in (gold, found)]
    each = classification_report(*tags, output_dict=True, zero_division=0)
    wanted = {
        "f1": f1_score(*tags),
        "precision": precision_score(*tags),
        "recall": recall_score(*tags),
        **{f"f1_{kind}": each[kind]["f1-score"] for kind in TYPES},
    }
    assert 0.2 < wanted["f1"] < 0.9
    ours = score(gold, found)
    assert list(ours) == list(wanted)
    assert ours == pytest.approx({name: 100 * value for name, value in wanted.items()}, rel=1e-12)


def test_scores_by_hand() -> None:
    """Four to find, three found, two of them right; LOC: 1 of 1 found, 2 there; PER: 1 of 2 found, 2 there."""
    gold = [[Span(0, 2, "LOC"), Span(3, 4, "PER")], [], [Span(0, 1, "PER"), Span(1, 2, "LOC")]]
    found = [[Span(0, 2, "LOC"), Span(2, 4, "PER")], [], [Span(0, 1, "PER")]]
    assert score(gold, found) == pytest.approx({
        "f1": 400 / 7, "precision": 200 / 3, "recall": 50, "f1_LOC": 200 / 3, "f1_PER": 50,
    })  # fmt: skip


def test_the_same_place_in_another_sentence_or_of_another_type_is_not_right() -> None:
    one, other = [Span(0, 1, "LOC")], [Span(0, 1, "PER")]
    nothing = {"f1": 0, "precision": 0, "recall": 0}
    assert score([one, []], [[], one]) == {**nothing, "f1_LOC": 0}
    assert score([one], [other]) == {**nothing, "f1_LOC": 0}
    assert score([one, other], [one, other]) == {
        "f1": 100, "precision": 100, "recall": 100, "f1_LOC": 100, "f1_PER": 100,
    }  # fmt: skip


def test_where_nothing_is_found_or_nothing_is_there_the_score_is_zero() -> None:
    one = [Span(0, 1, "LOC")]
    assert score([one], [[]]) == {"f1": 0, "precision": 0, "recall": 0, "f1_LOC": 0}
    assert score([[]], [one]) == {"f1": 0, "precision": 0, "recall": 0}
    assert score([[]], [[]]) == score([], []) == {"f1": 0, "precision": 0, "recall": 0}


def test_as_many_answers_as_gold_ones_are_needed() -> None:
    with pytest.raises(ValueError, match="argument 2 is shorter"):
        score([[], []], [[]])


# Answers


def test_an_answer_by_hand() -> None:
    example = Example((("Zorb", "Blim", "saw", "Qua", "Qua", "."),))
    assert to_json(example, [Span(0, 2, "PER"), Span(3, 4, "LOC"), Span(4, 5, "LOC")]) == {
        "tokens": ["Zorb", "Blim", "saw", "Qua", "Qua", "."],
        "tags": ["B-PER", "I-PER", "O", "B-LOC", "B-LOC", "O"],
        "entities": [
            {"type": "PER", "start": 0, "end": 2, "text": "Zorb Blim"},
            {"type": "LOC", "start": 3, "end": 4, "text": "Qua"},
            {"type": "LOC", "start": 4, "end": 5, "text": "Qua"},
        ],
    }
    assert to_json(Example((("a",),)), []) == {"tokens": ["a"], "tags": ["O"], "entities": []}


def test_an_answers_tags_are_iob2_and_its_texts_the_tokens_inside() -> None:
    rng = np.random.default_rng(4)
    for _ in range(300):
        tokens = tuple(f"t{place}" for place in range(int(rng.integers(1, 12))))
        spans = draw_spans(rng, len(tokens))
        shown = to_json(Example((tokens,)), spans)
        assert shown["tags"] == iob2(spans, len(tokens))
        assert by_seqeval(shown["tags"]) == spans
        assert [entity["text"].split() for entity in shown["entities"]] == [
            [f"t{place}" for place in range(*span[:2])] for span in spans
        ]
