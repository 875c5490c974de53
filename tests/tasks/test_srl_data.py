"""Propositions: columns that are read, refused and written, items to predict from, answers as JSON."""

import io
from collections import Counter
from pathlib import Path

import pytest

from elmo.errors import DataError
from elmo.tasks.columns import bio_tags
from elmo.tasks.examples import GroupedExamples, fraction
from elmo.tasks.srl import conll, data, metric
from elmo.tasks.srl.data import Answer, Proposition, Sentence, Span
from elmo.tasks.srl.model import TASK
from reference_files import needs_shared, unpacked


def block(document: str, words: str, predicates: dict[int, str], *columns: str) -> str:
    """The lines of a sentence, as OntoNotes has them: with spaces between the columns."""
    lines = []
    for place, (word, *roles) in enumerate(zip(words.split(), *(column.split() for column in columns), strict=True)):
        lemma, sense = (predicates[place], "01") if place in predicates else ("-", "-")
        row = [document, "0", str(place), word, "NN", "(NP*)", lemma, sense, "-", "Speaker#1", "*", *roles, "(3)"]
        lines.append("   ".join(row))
    return "\n".join(lines) + "\n"


SOLD = block(
    "bc/x/1", "The baker sold what she had", {2: "sell", 5: "have"},
    "(ARG0* *) (V*) (ARG1* * *)", "* * * (R-ARG1*) (ARG0*) (V*)",
)  # fmt: skip
SILENT = block("bc/x/1", "Quite so .", {})
SPOKE = block("bc/x/2", "-LRB- She spoke up", {2: "speak"}, "* (ARG0*) (V*) (C-V*)")
TEXT = (
    f"#begin document (bc/x/1); part 000\n{SOLD}\n{SILENT}\n#end document\n"
    f"#begin document (bc/x/2); part 000\n{SPOKE}\n#end document\n"
)
FIRST = ("The", "baker", "sold", "what", "she", "had")


def write(path: Path, text: str = TEXT) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_propositions_are_read(tmp_path: Path) -> None:
    sold = Proposition(2, (Span(0, 2, "ARG0"), Span(2, 3, "V"), Span(3, 6, "ARG1")))
    had = Proposition(5, (Span(3, 4, "R-ARG1"), Span(4, 5, "ARG0"), Span(5, 6, "V")))
    spoke = Proposition(2, (Span(1, 2, "ARG0"), Span(2, 3, "V"), Span(3, 4, "C-V")))
    one, two = ("bc/x/1", "0"), ("bc/x/2", "0")
    examples = conll.read_file(write(tmp_path / "a.gold_conll"))
    assert examples == [
        Sentence((FIRST,), Answer((sold,), (2, 5)), (2,), ("sell",), one, 0),
        Sentence((FIRST,), Answer((had,), None), (5,), ("have",), one, 0),
        Sentence((("Quite", "so", "."),), Answer((), ()), (), (), one, 1),
        Sentence((("(", "She", "spoke", "up"),), Answer((spoke,), (2,)), (2,), ("speak",), two, 2),
    ]
    assert [len(group) for group in examples.groups] == [2, 1, 1]


def test_tabs_separate_columns_too(tmp_path: Path) -> None:
    tabbed = TEXT.replace("   ", "\t")
    assert conll.read_file(write(tmp_path / "b.conll", tabbed)) == conll.read_file(write(tmp_path / "a.conll"))


def test_the_same_sentence_twice_is_two_sentences(tmp_path: Path) -> None:
    examples = conll.read_file(write(tmp_path / "a.conll", f"{SOLD}\n{SOLD}"))
    assert len(examples) == 4 and [example.number for example in examples if isinstance(example, Sentence)] == [
        0, 0, 1, 1,
    ]  # fmt: skip


def test_the_parts_of_a_folder(tmp_path: Path) -> None:
    for name in ("train", "dev", "test"):
        write(tmp_path / f"{name}.gold_conll")
    assert {part: len(examples) for part, examples in conll.read(tmp_path).items()} == {"train": 4, "dev": 4, "test": 4}


@pytest.mark.parametrize("below", ["", "data"])
def test_folders_of_files_as_in_ontonotes(below: str, tmp_path: Path) -> None:
    annotations = tmp_path / below / "train" / "data" / "english" / "annotations"
    write(annotations / "bc" / "x" / "00" / "x_0001.v4_gold_conll")
    write(annotations / "nw" / "y_0002.v4_gold_conll", SPOKE)
    write(annotations / "nw" / "y_0002.v4_auto_conll", "not read")
    write(annotations / "nw" / "y_0002.parse", "not read")
    write(tmp_path / below / "train" / "data" / "chinese" / "z_0003.v4_gold_conll", SILENT)
    write(tmp_path / below / "development" / "z_0004.gold_conll", SILENT)
    splits = conll.read(tmp_path)
    assert {part: len(examples) for part, examples in splits.items()} == {"train": 5, "dev": 1}
    assert [example.number for example in splits["train"] if isinstance(example, Sentence)] == [0, 0, 1, 2, 3]
    assert len(conll.read_file(annotations)) == 5


def test_a_predicate_by_its_v_where_framesets_are_missing(tmp_path: Path) -> None:
    """OntoNotes has framesets without roles, and other collections have roles without framesets."""
    examples = conll.read_file(write(tmp_path / "a.conll", SOLD.replace("have   01", "have   -")))
    assert [example.predicates for example in examples if isinstance(example, Sentence)] == [(2,), (5,)]
    examples = conll.read_file(write(tmp_path / "b.conll", SOLD.replace("NN   (NP*)   -   -", "NN (NP*) be 03", 1)))
    assert [example.predicates for example in examples if isinstance(example, Sentence)] == [(2,), (5,)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("only words\n", r"a\.conll:1: 2 columns; expected the 12 of CoNLL-2012"),
        (TEXT.replace("(R-ARG1*)", ""), r"a\.conll:5: 13 columns; expected 14, as in line 2$"),
        (TEXT.replace("(ARG0*   *", "(ARG0   *", 1), r"a\.conll:2: roles '\(ARG0'; expected \*, \(ROLE\*, "),
        (TEXT.replace("(V*)", "(V*", 1), r"a\.conll:5: roles '\(ARG1\*' inside of V; expected \*, \(ROLE\*, "),
        (TEXT.replace("(ARG0*   *", "*   *", 1), r"a\.conll:3: roles '\*\)'; expected"),
        (SPOKE.replace("(C-V*)", "(C-V*"), r"a\.conll:4: C-V has no end in its sentence; expected \*\) in the same"),
        (SOLD.replace("(V*)", "*").replace("have   01", "have   -"), r"a\.conll:1: 1 tokens have a frameset \(colu"),
    ],
)
def test_what_is_not_a_proposition_is_refused(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=message):
        conll.read_file(write(tmp_path / "a.conll", text))


def test_a_folder_without_files_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "train" / "notes.txt", "no columns")
    with pytest.raises(DataError, match=r"contains no file of the task; expected train\.gold_conll, dev\.gold_conll"):
        conll.read(tmp_path)
    with pytest.raises(DataError, match="contains no file that ends in gold_conll"):
        conll.read_file(tmp_path / "train")


def test_a_fraction_draws_whole_sentences(tmp_path: Path) -> None:
    text = "\n".join(SOLD.replace("baker", f"baker{number}") for number in range(10))
    examples = conll.read_file(write(tmp_path / "a.conll", text))
    drawn = fraction(examples, 0.4, seed=1)
    assert isinstance(drawn, GroupedExamples) and len(drawn) == 8
    assert set(Counter(example.texts for example in drawn).values()) == {2}


# Files of predictions


def written(examples: GroupedExamples, answers: list[Answer], path: Path) -> Path:
    file = io.StringIO()
    conll.write_predictions(file, examples, answers)
    return write(path, file.getvalue())


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    gold = conll.read_file(write(tmp_path / "gold.conll"))
    answers = [Answer(example.gold.propositions, (0,)) for example in gold]
    path = written(gold, answers, tmp_path / "predicted.conll")
    again = conll.read_predictions(path, gold)
    assert [answer.propositions for answer in again] == [answer.propositions for answer in answers]
    assert TASK.score([example.gold for example in gold], again)["f1"] == 100.0
    lines = path.read_text(encoding="utf-8").splitlines()
    assert lines[0] == "#begin document (bc/x/1); part 000" and lines.count("#end document") == 2
    assert lines[3].split("\t") == [
        "bc/x/1", "0", "2", "sold", "-", "*", "sell", "XX", "-", "-", "*", "(V*)", "*", "-",
    ]  # fmt: skip
    assert all(len(line.split("\t")) == 14 for line in lines[1:7])
    assert conll.read_file(path) == gold


def test_predictions_of_another_system_are_aligned_by_predicate(tmp_path: Path) -> None:
    """It has no proposition of "had", one of "she" that nobody asked for, and a wrong ARG0 of "sold"."""
    gold = conll.read_file(write(tmp_path / "gold.conll"))
    other = block(
        "bc/x/1", "The baker sold what she had", {2: "sell", 4: "she"},
        "* (ARG0*) (V*) (ARG1* * *)", "(ARG0* * *) * (V*) *",
    )  # fmt: skip
    path = write(tmp_path / "other.conll", TEXT.replace(SOLD, other))
    found = conll.read_predictions(path, gold)
    sold = Proposition(2, (Span(1, 2, "ARG0"), Span(2, 3, "V"), Span(3, 6, "ARG1")))
    assert found[:2] == [Answer((sold,), (2, 4)), Answer((Proposition(5, ()),), (2, 4))]
    scores = metric.score([example.gold for example in gold], found)
    # Gold: ARG0 and ARG1 of sold, R-ARG1 and ARG0 of had, ARG0 of spoke. Found: two of sold, one of them right; spoke.
    assert (scores["precision"], scores["recall"]) == pytest.approx((100 * 2 / 3, 100 * 2 / 5))
    assert scores["predicates_f1"] == pytest.approx(200 * 2 / (3 + 3))


def test_predictions_of_other_sentences_are_refused(tmp_path: Path) -> None:
    gold = conll.read_file(write(tmp_path / "gold.conll"))
    path = write(tmp_path / "other.conll", TEXT.replace("baker", "cook"))
    with pytest.raises(DataError, match="item 1 is 'The cook sold what she had'; expected 'The baker sold what she"):
        conll.read_predictions(path, gold)
    path = write(tmp_path / "fewer.conll", SOLD)
    with pytest.raises(DataError, match="number of items: 1; expected 3, as in the gold file"):
        conll.read_predictions(path, gold)


# Items and answers


def test_items_to_predict_from() -> None:
    assert data.parse("She left.") == Sentence((("She", "left", "."),))
    assert data.parse({"text": "She left."}) == data.parse(["She", "left", "."])
    given = {"tokens": ["She", "left", "and", "sang"], "predicates": [3, 1]}
    assert data.parse(given) == Sentence((("She", "left", "and", "sang"),), predicates=(3, 1))
    assert data.parse({**given, "predicates": []}).predicates == ()
    assert data.parse({**given, "predicates": None}).predicates is None


def test_a_sentence_is_read_once_to_find_predicates_and_once_for_each_that_is_given() -> None:
    tokens = ["She", "left", "and", "sang"]
    assert data.parse(tokens).n_tokens == 4
    assert data.parse({"tokens": tokens, "predicates": [3, 1]}).n_tokens == 4 + 4 + 4


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ({"tokens": ["Go"], "predicates": [1]}, r"predicates are \[1\]; expected a list of numbers of tokens, 0 to 0"),
        ({"tokens": ["Go"], "predicates": [-1]}, r"predicates are \[-1\]; expected a list"),
        ({"tokens": ["Go"], "predicates": [True]}, r"predicates are \[True\]; expected a list"),
        ({"tokens": ["Go"], "predicates": "Go"}, r"predicates are 'Go'; expected a list"),
        ({"tokens": ["Go", "on"], "predicates": [0, 0]}, r"predicates are \[0, 0\]; expected each token once"),
        ({"text": "Go on", "predicates": [0]}, "has predicates, but no tokens for them to count"),
        ({"predicates": [0]}, "expected a sentence, a list of tokens"),
    ],
)
def test_items_that_are_refused(item: object, message: str) -> None:
    with pytest.raises(DataError, match=message):
        data.parse(item)


def test_answers_as_json() -> None:
    spans = Span(0, 2, "ARG0"), Span(2, 3, "V"), Span(3, 6, "ARG1")
    assert data.to_json(Sentence((FIRST,)), Answer((Proposition(2, spans),), (2, 5))) == {
        "tokens": list(FIRST),
        "propositions": [
            {
                "predicate": 2,
                "word": "sold",
                "arguments": [
                    {"role": "ARG0", "start": 0, "end": 2, "text": "The baker"},
                    {"role": "ARG1", "start": 3, "end": 6, "text": "what she had"},
                ],
                "tags": ["B-ARG0", "I-ARG0", "B-V", "B-ARG1", "I-ARG1", "I-ARG1"],
            }
        ],
    }


def test_tags_and_spans_are_each_others_inverse() -> None:
    spans = Span(0, 1, "ARG0"), Span(1, 3, "ARG0"), Span(4, 7, "V")
    tags = bio_tags(spans, 8)
    assert tags == ["B-ARG0", "B-ARG0", "I-ARG0", "O", "B-V", "I-V", "I-V", "O"]
    assert data.spans_of(tags) == spans


def test_the_labels_of_the_training_part(tmp_path: Path) -> None:
    roles = ["ARG0", "ARG1", "C-V", "R-ARG1", "V"]
    expected = ["O", *(f"B-{role}" for role in roles), *(f"I-{role}" for role in roles)]
    assert data.labels(conll.read_file(write(tmp_path / "a.conll"))) == expected


@needs_shared
def test_the_english_web_treebank(tmp_path: Path) -> None:
    """The numbers of its documentation; what is written of dev reads back as the same."""
    splits = conll.read(unpacked("propbank-ewt", tmp_path))
    found = {part: (sum(len(e.gold.propositions) for e in some), len(some.groups)) for part, some in splits.items()}
    assert found == {"train": (40_419, 12_519), "dev": (4_961, 1_967), "test": (4_795, 2_058)}
    gold = splits["dev"]
    assert isinstance(gold, GroupedExamples)
    path = written(gold, [example.gold for example in gold], tmp_path / "dev.conll")
    assert conll.read_file(path) == gold
