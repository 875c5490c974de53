"""Questions about paragraphs: exact offsets of any text, windows, what is read and refused, files of predictions."""

import io
import json
import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from elmo.errors import DataError
from elmo.tasks.examples import GroupedExamples, fraction
from elmo.tasks.squad import data, metric, paragraph, predictions
from elmo.tasks.squad.data import Answer, Questions
from elmo.tasks.squad.paragraph import Paragraph
from reference_files import needs_shared, unpacked
from tasks.small_squad import PARAGRAPHS, article, eight, write_squad

# Offsets


@given(st.text(max_size=60), st.data())
@example("e\u0301a\u200b \ud800 DOTMULTI.. \x00\u2028 ''", None)
@settings(deadline=None)
def test_any_piece_of_any_text_is_found_and_given_back(text: str, draw: st.DataObject | None) -> None:
    read = Paragraph(text)
    assert all(text[token.start : token.end] == token.text for token in read.tokens)
    pieces = [(0, len(text))]
    if draw is not None:
        start = draw.draw(st.integers(0, len(text)))
        pieces.append((start, draw.draw(st.integers(start, len(text)))))
    for start, end in pieces:
        span = read.span(start, text[start:end])
        inside = [n for n, token in enumerate(read.tokens) if token.start < end and token.end > start]
        assert span == ((inside[0], inside[-1]) if inside else None)
        if span is not None:
            first, last = read.characters(span)
            outside = text[min(start, first) : first] + text[last : max(end, last)]  # of the piece, beyond its tokens
            assert not re.sub(r"[\s\x00-\x1f]", "", outside)


def test_a_piece_is_all_tokens_that_it_touches() -> None:
    text = "The 14-story tower isn't old (1998)."
    read = Paragraph(text)
    for piece, shown in [
        ("tower", "tower"),
        ("14", "14-story"),
        ("1998", "1998"),
        ("n't old", "isn't old"),
        (" ", None),
    ]:
        span = read.span(text.index(piece), piece)
        assert (span and text[slice(*read.characters(span))]) == shown
    assert read.span(5, "tower") is None  # another text is there
    assert read.span(-6, "1998).") is None
    assert read.span(500, "tower") is None
    assert read.span(0, "") is None


@needs_shared
def test_offsets_of_the_real_paragraphs(tmp_path: Path) -> None:
    """Every token is a piece of its paragraph; what the tokens of an answer add to it is inside of a word."""
    splits = data.read(unpacked("squad", tmp_path))
    assert {part: len(examples) for part, examples in splits.items()} == {"train": 11089, "dev": 788, "test": 10570}
    assert isinstance(splits["train"], GroupedExamples) and len(splits["train"].groups) == 2207
    for read in {vars(question)["paragraph"] for part in splits.values() for question in part}:
        assert all(read.text[token.start : token.end] == token.text for token in read.tokens)
        assert len(read.windows) == 1 and len(read.tokens) <= 700
    exact = {}
    for part, examples in splits.items():
        found: list[bool] = []
        for question in examples:
            assert isinstance(question, Questions)
            read = question.paragraph
            pieces = [read.text[slice(*read.characters(span))] for span in question.gold.spans]
            assert all(any(wanted.strip() in piece for piece in pieces) for wanted in question.gold.texts)
            found.append(any(metric.exact_match(wanted, piece) for wanted in question.gold.texts for piece in pieces))
        exact[part] = 100 * sum(found) / len(found)
    # The best exact match that whole tokens can reach.
    assert exact["train"] > 98.5 and exact["dev"] > 98.5 and exact["test"] > 99.7


# Windows


@pytest.mark.parametrize("count", [0, 1, 9, 10, 11, 15, 16, 19, 20, 21, 100, 101])
def test_windows_overlap_by_half_and_cover_everything(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paragraph, "WINDOW", 10)
    monkeypatch.setattr(paragraph, "STRIDE", 5)
    words = [f"w{n}" for n in range(count)]
    read = Paragraph(" ".join(words))
    assert [window.start for window in read.windows] == list(range(0, 5 * len(read.windows), 5))
    assert sorted({n for window in read.windows for n in window}) == list(range(count))
    assert all(len(window) == 10 for window in read.windows[:-1])
    assert all(window.stop == count for window in read.windows[-1:])
    assert all(window.stop < count for window in read.windows[:-1])  # no window more than is needed
    assert read.texts == tuple(tuple(words[n] for n in window) for window in read.windows)
    for length in range(1, min(count, 5) + 1):  # the overlap
        for first in range(count - length + 1):
            piece = " ".join(words[first : first + length])
            assert read.span(read.tokens[first].start, piece) == (first, first + length - 1)
    if count > 10:
        assert read.span(0, " ".join(words[:11])) is None  # longer than a window


# Reading


def test_questions_are_read(tmp_path: Path) -> None:
    path = write_squad(tmp_path / "dev-v1.1.json", article(PARAGRAPHS, "all"))
    assert data.read_file(path) == eight()
    first = eight()[0]
    assert first.texts == (
        ("When", "was", "the", "mill", "built", "?"),
        (
            "The", "old", "mill", "(", "built", "in", "1712", ")", "stands", "on", "the", "River", "Wey", ";", "its",
            "owner", ",", "Mrs.", "Ada", "Flint", ",", "isn", "'t", "selling", "it", ".",
        ),
    )  # fmt: skip
    assert first.gold == (("1712", "in 1712"), ((6, 6), (5, 6)))
    assert (first.id, first.asked, first.n_questions) == ("all-0-0", "When was the mill built?", 1)


def test_parts_of_a_folder(tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=re.escape(f"{tmp_path}: contains no file of the task; expected some of train-v")
    ):
        data.read(tmp_path)
    write_squad(tmp_path / "dev-v1.1.json", article(PARAGRAPHS[:1], "official"))
    assert {part: len(questions) for part, questions in data.read(tmp_path).items()} == {"test": 3}
    many = [article(PARAGRAPHS[n % 3 : n % 3 + 1], f"n{n:02}") for n in range(21)]
    write_squad(tmp_path / "train.json", *many)
    splits = data.read(tmp_path)
    assert list(splits) == ["train", "dev", "test"]
    assert {vars(question)["id"][:3] for question in splits["dev"]} == {"n19", "n20"}  # the last tenth of the articles
    assert len({vars(question)["id"][:3] for question in splits["train"]}) == 19
    write_squad(tmp_path / "dev.json", article(PARAGRAPHS[2:], "own"))
    splits = data.read(tmp_path)
    assert {part: len(questions) for part, questions in splits.items()} == {"train": 56, "dev": 2, "test": 3}


@pytest.mark.parametrize(("count", "held"), [(1, 0), (2, 1), (10, 1), (19, 1), (44, 4), (442, 44)])
def test_the_number_of_articles_held_out(count: int, held: int) -> None:
    articles: list[data.Article] = [[] for _ in range(count)]
    assert list(map(len, data.hold_out(articles))) == [count - held, held]


def test_a_fraction_of_the_training_part_is_whole_paragraphs(tmp_path: Path) -> None:
    write_squad(tmp_path / "train.json", *[article(PARAGRAPHS, f"n{n}") for n in range(8)])
    train = data.read(tmp_path)["train"]
    assert isinstance(train, GroupedExamples) and len(train.groups) == 21
    some = fraction(train, 1 / 3, seed=0)
    ids = {vars(question)["id"].rpartition("-")[0] for question in some}
    assert len(ids) == 7
    assert len(some) == sum(vars(question)["id"].rpartition("-")[0] in ids for question in train)


def test_a_question_without_an_answer_in_range_is_scored_but_not_trained_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paragraph, "WINDOW", 10)
    monkeypatch.setattr(paragraph, "STRIDE", 5)
    lost = article(PARAGRAPHS[:1], "lost")
    questions = lost["paragraphs"][0]["qas"]
    questions[0]["answers"] = [{"text": "1712", "answer_start": 5000}]
    questions[1]["answers"] = [{"text": PARAGRAPHS[0][0], "answer_start": 0}]  # longer than a window
    path = write_squad(tmp_path / "train.json", lost, article(PARAGRAPHS[2:], "dev"))
    splits = data.read(tmp_path)
    assert [vars(question)["id"] for question in splits["train"]] == ["lost-0-2"]
    assert caplog.messages == [
        f"{path}: 2 questions not trained on: the answer is not at its answer_start, or longer than a window"
    ]
    found = data.read_file(path)
    assert [question.gold.spans for question in found[:3]] == [(), (), ((10, 12),)]
    assert metric.score([question.gold for question in found[:1]], [Answer("1712")]) == {"f1": 100.0, "em": 100.0}


def test_questions_without_any_answer_are_skipped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """As in SQuAD 2.0."""
    some = article(PARAGRAPHS[:1], "two")
    some["paragraphs"][0]["qas"][1]["answers"] = []
    path = write_squad(tmp_path / "dev.json", some)
    with caplog.at_level(logging.WARNING, "elmo"):
        assert [vars(question)["id"] for question in data.read_file(path)] == ["two-0-0", "two-0-2"]
    assert caplog.messages == [f"{path}: skipped 1 question without an answer, kept 2"]


def test_an_empty_paragraph_and_a_blank_question_are_read(tmp_path: Path) -> None:
    path = write_squad(tmp_path / "dev.json", article([("", [(" ", [""]), ("Why?", ["Because"])])], "none"))
    blank, why = data.read_file(path)
    assert (blank.texts, why.texts) == ((("?",),), (("Why", "?"),))
    assert blank.gold == (("",), ()) and why.gold == (("Because",), ())


def changed(change: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
    one = article(PARAGRAPHS[:1], "x")
    change(one)
    return one


def question_of(one: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = one["paragraphs"][0]["qas"][1]
    return found


EXPECTED = "expected SQuAD's format, with"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([1], f"found no 'data'; {EXPECTED} 'data', a list"),
        ({"version": "1.1"}, f"found no 'data'; {EXPECTED} 'data', a list"),
        ({"data": {}}, f"found data {{}}; {EXPECTED} 'data', a list"),
        ({"data": [{}]}, f"data[0]: found no 'paragraphs'; {EXPECTED} 'paragraphs', a list"),
        (changed(lambda one: one["paragraphs"].append("p")), f"data[0].paragraphs[1]: found no 'context'; {EXPECTED} "),
        (
            changed(lambda one: one["paragraphs"][0].update(context=["x"])),
            f"data[0].paragraphs[0]: found context ['x']; {EXPECTED} 'context', a string",
        ),
        (
            changed(lambda one: question_of(one).pop("answers")),
            f"data[0].paragraphs[0].qas[1]: found no 'answers'; {EXPECTED} 'answers', a list",
        ),
        (
            changed(lambda one: question_of(one)["answers"][1].update(answer_start=True)),
            f"data[0].paragraphs[0].qas[1].answers[1]: found answer_start True; {EXPECTED} 'answer_start', an integer",
        ),
        (
            changed(lambda one: question_of(one).update(id="x-0-0")),
            "data[0].paragraphs[0]: the id 'x-0-0' occurs twice; expected one question for each id",
        ),
    ],
)
def test_what_is_not_in_the_format_is_named(content: Any, message: str, tmp_path: Path) -> None:
    path = tmp_path / "dev.json"
    wrapped = {"data": [content]} if isinstance(content, dict) and "title" in content else content
    path.write_text(json.dumps(wrapped), encoding="utf-8")
    with pytest.raises(DataError) as error:
        data.read_file(path)
    assert str(error.value).startswith(f"{path}: {message}")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("text", ["", '{"data": [', "[" * 100_000])
def test_what_is_not_json_is_named(text: str, tmp_path: Path) -> None:
    path = tmp_path / "dev.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=re.escape(f"{path}: is not JSON (")):
        data.read_file(path)


# Items to predict from


def test_one_question_is_parsed_and_shown() -> None:
    text, question = "Rain fell.\u3000Again", "What fell?"
    wanted = Questions.of(Paragraph(text), question)
    for item in ({"context": text, "question": question}, {"paragraph": text, "question": question, "id": 7}):
        assert data.parse(item) == wanted
    assert data.parse(f"{text}\t{question}") == wanted
    assert data.to_json(wanted, Answer("Rain", 0, 4, 0.123456)) == {
        "answer": "Rain", "start": 0, "end": 4, "score": 0.1235,
    }  # fmt: skip


def test_several_questions_are_parsed_and_shown() -> None:
    asked = data.parse({"context": "Rain fell.", "questions": ["What fell?", "When?"]})
    assert asked.texts == (("What", "fell", "?"), ("When", "?"), ("Rain", "fell", "."))
    assert asked.n_questions == 2
    assert asked.n_tokens == (3 + 3) + (2 + 3)  # the paragraph is read for each question
    assert data.to_json(asked, (Answer("Rain", 0, 4, 0.5), Answer("fell", 5, 9, 0.25))) == {
        "answers": [
            {"question": "What fell?", "answer": "Rain", "start": 0, "end": 4, "score": 0.5},
            {"question": "When?", "answer": "fell", "start": 5, "end": 9, "score": 0.25},
        ]
    }


@pytest.mark.parametrize(
    "item",
    [
        "no tab", "a\tb\tc", "a\t ", 5, None, [], {}, {"context": "a"}, {"question": "a?"},
        {"context": 1, "question": "a"}, {"context": "a", "question": ""}, {"context": "a", "questions": []},
        {"context": "a", "questions": ["b", 1]},
        {"context": "a" * 5000, "questions": [" "]},
    ],
)  # fmt: skip
def test_what_asks_nothing_is_refused(item: Any) -> None:
    with pytest.raises(DataError) as error:
        data.parse(item)
    message = str(error.value)
    assert message.startswith(repr(item)[:100]) and len(message) < 300
    assert ": expected a paragraph and a question with a tab between them, or an object with 'context' or" in message


# Files of predictions


def test_predictions_are_written_as_the_official_script_reads_them_and_read_again(tmp_path: Path) -> None:
    questions = eight()
    answers = [Answer(question.gold.texts[0], 3, 5, 0.5) for question in questions]
    file = io.StringIO()
    predictions.write_predictions(file, questions, answers)
    assert json.loads(file.getvalue()) == {question.id: question.gold.texts[0] for question in questions}
    path = tmp_path / "predictions.json"
    path.write_text(file.getvalue(), encoding="utf-8")
    read = predictions.read_predictions(path, questions)
    assert [answer and answer.text for answer in read] == [answer.text for answer in answers]
    assert metric.score([question.gold for question in questions], read) == {"f1": 100.0, "em": 100.0}


def test_a_missing_prediction_counts_as_wrong_and_others_do_not_count(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "predictions.json"
    path.write_text(json.dumps({"all-2-0": "rain", "other": "x"}), encoding="utf-8")
    read = predictions.read_predictions(path, eight())
    assert read == [None] * 6 + [Answer("rain"), None]
    assert caplog.messages == [
        f"{path}: no answer to 7 of 8 questions, which count as wrong",
        f"{path}: ignored 1 answer to other questions",
    ]
    assert metric.score([question.gold for question in eight()], read) == {"f1": 12.5, "em": 12.5}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (["rain"], "found list; expected a JSON object with a text for each question id"),
        ({"all-0-0": None}, "found None for the question 'all-0-0'; expected a JSON object with a text for each"),
        ({"x": "y"}, "answers none of the 8 questions; are these the answers to another file?"),
    ],
)
def test_a_file_of_other_predictions_is_refused(content: Any, message: str, tmp_path: Path) -> None:
    path = tmp_path / "predictions.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(DataError, match=re.escape(f"{path}: {message}")):
        predictions.read_predictions(path, eight())


def test_a_file_that_is_too_large_for_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x.json").write_text('{"data":\n[]}')
    monkeypatch.setattr(data, "MAX_JSON", 11)
    assert data.read_json(tmp_path / "x.json") == {"data": []}
    monkeypatch.setattr(data, "MAX_JSON", 10)
    with pytest.raises(DataError, match=r"x.json: has more than 10 characters; expected a smaller file of questions"):
        data.read_json(tmp_path / "x.json")
