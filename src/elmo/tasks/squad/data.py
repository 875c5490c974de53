"""SQUAD'S JSON ─▶ QUESTIONS ABOUT PARAGRAPHS, with the answers that people gave.

    {"data": [{"paragraphs": [{"context": "…", "qas": [{"id": "…", "question": "…", "answers": [
        {"text": "…", "answer_start": 177}, …]}, …]}, …]}, …]}

There is no public test file. The official dev file is the part that is reported, `test`; to choose the epoch by it too
would report the best of many tries. So the last tenth of the training articles, whole articles, is held out as `dev`:
of the 44 articles of the subset, the last 4. If the folder has a dev.json, that is the dev part.
"""

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from elmo.errors import DataError
from elmo.messages import counted
from elmo.tasks.examples import Example, GroupedExamples, Splits
from elmo.tasks.reading import files_in
from elmo.tasks.squad.paragraph import Paragraph, Span
from elmo.text.reader import read_lines
from elmo.text.tokens import words

log = logging.getLogger("elmo")

PARTS = {
    "train": ("train-v1.1.json", "train-subset-du-v1.1.json", "train.json"),
    "dev": ("dev.json",),
    "test": ("dev-v1.1.json", "test.json"),
}
HELD_OUT = 10  # one in this many training articles is held out
MAX_JSON = 512 << 20  # characters of a file; compressed, it may be a thousand times smaller
_KINDS = {str: "a string", int: "an integer", list: "a list"}

_EXPECTED = (
    "a paragraph and a question with a tab between them, or an object with 'context' or 'paragraph', and 'question' "
    "or a list of 'questions'"
)


class Gold(NamedTuple):
    """The answers that people gave to a question."""

    texts: tuple[str, ...]
    spans: tuple[Span, ...]  # the tokens of each answer that is in the paragraph, at its place


class Answer(NamedTuple):
    """A predicted answer: the paragraph's `text[start:end]`, and its probability."""

    text: str
    start: int = 0
    end: int = 0
    score: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Questions(Example):
    """A question about a paragraph, or several: `texts` has the tokens of each, then those of each window.

    An answer has the form of `asked`: an `Answer`, or a tuple of them.
    """

    paragraph: Paragraph
    asked: str | tuple[str, ...]
    id: str = ""

    @classmethod
    def of(
        cls, paragraph: Paragraph, asked: str | tuple[str, ...], gold: Gold | None = None, id: str = ""
    ) -> "Questions":
        """Tokenize questions about a paragraph. One without a word is read as "?", since a model needs a token."""
        questions = (asked,) if isinstance(asked, str) else asked
        tokens = (tuple(words(question)) or ("?",) for question in questions)
        return cls((*tokens, *paragraph.texts), gold, paragraph=paragraph, asked=asked, id=id)

    @property
    def n_questions(self) -> int:
        """The number of questions."""
        return len(self.texts) - len(self.paragraph.windows)

    @property
    def n_tokens(self) -> int:
        """The number of tokens that a model reads: each question, and for each the paragraph again."""
        questions = sum(map(len, self.texts[: self.n_questions]))
        return questions + self.n_questions * sum(map(len, self.paragraph.windows))


Article = list[list[Questions]]  # the questions of each of its paragraphs


def read(folder: Path) -> Splits:
    """Read the parts of a folder; without a dev.json, the last tenth of the training articles is the dev part."""
    files = files_in(folder, PARTS)
    articles = {part: read_articles(path) for part, path in files.items()}
    if "train" in articles and "dev" not in articles:
        articles["train"], articles["dev"] = hold_out(articles["train"])
    splits: dict[str, list[Example]] = {part: _questions(articles[part]) for part in PARTS if articles.get(part)}
    if "train" in splits:
        splits["train"] = _learnable(articles["train"], files["train"])
    return splits


def hold_out(articles: list[Article]) -> tuple[list[Article], list[Article]]:
    """Divide training articles: those to learn from, and the last tenth, at least one, to choose the epoch by."""
    first = len(articles) - max(1, len(articles) // HELD_OUT)
    return articles[: max(1, first)], articles[max(1, first) :]


def read_file(path: Path) -> list[Example]:
    """Read the questions of one file that have an answer."""
    return _questions(read_articles(path))


def _questions(articles: list[Article]) -> list[Example]:
    return [question for article in articles for paragraph in article for question in paragraph]


def _learnable(articles: list[Article], path: Path) -> GroupedExamples:
    """The questions with an answer whose tokens are known, grouped by paragraph: `fraction` draws paragraphs."""
    paragraphs = [paragraph for article in articles for paragraph in article]
    learnable = [[question for question in some if question.gold.spans] for some in paragraphs]
    skipped = sum(map(len, paragraphs)) - sum(map(len, learnable))
    if skipped:
        why = "the answer is not at its answer_start, or longer than a window"
        log.warning("%s: %s not trained on: %s", path, counted(skipped, "question"), why)
    return GroupedExamples(some for some in learnable if some)


def read_articles(path: Path) -> list[Article]:
    """Read the articles of a file. Questions without an answer, as in SQuAD 2.0, are skipped with a warning."""
    content = read_json(path)
    ids: set[str] = set()
    skipped = 0
    articles: list[Article] = []
    for n, article in enumerate(_list(content, "data", str(path))):
        articles.append([])
        for m, item in enumerate(_list(article, "paragraphs", f"{path}: data[{n}]")):
            where = f"{path}: data[{n}].paragraphs[{m}]"
            paragraph = Paragraph(_value(item, "context", str, where))
            found = [_question(qa, paragraph, f"{where}.qas[{k}]") for k, qa in enumerate(_list(item, "qas", where))]
            for question in found:
                if question.id in ids:
                    raise DataError(f"{where}: the id {question.id!r} occurs twice; expected one question for each id")
                ids.add(question.id)
            answered = [question for question in found if question.gold.texts]
            skipped += len(found) - len(answered)
            articles[-1].append(answered)
    if skipped:
        kept = len(ids) - skipped
        log.warning("%s: skipped %s without an answer, kept %d", path, counted(skipped, "question"), kept)
    return articles


def _question(item: Any, paragraph: Paragraph, where: str) -> Questions:
    """Parse a question with its id and its answers."""
    id, question = (_value(item, name, str, where) for name in ("id", "question"))
    given = [
        (_value(answer, "answer_start", int, place), _value(answer, "text", str, place))
        for k, answer in enumerate(_list(item, "answers", where))
        for place in [f"{where}.answers[{k}]"]
    ]
    found = (paragraph.span(start, text) for start, text in given)
    spans = tuple(dict.fromkeys(span for span in found if span is not None))
    return Questions.of(paragraph, question, Gold(tuple(text for _, text in given), spans), id)


def read_json(path: Path) -> Any:
    """Read a JSON file, which may be compressed."""
    lines, size = [], 0
    for _, line in read_lines(path):
        lines.append(line)
        size += len(line)
        if size > MAX_JSON:
            raise DataError(f"{path}: has more than {MAX_JSON:,} characters; expected a smaller file of questions")
    try:
        return json.loads("\n".join(lines))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: is not JSON ({error})") from None


def _value(table: Any, name: str, kind: type, where: str) -> Any:
    """A field of a JSON object, of that type."""
    value = table.get(name) if isinstance(table, dict) else None
    if not isinstance(value, kind) or isinstance(value, bool):
        shown = f"{name} {value!r}"[:60] if isinstance(table, dict) and name in table else f"no {name!r}"
        raise DataError(f"{where}: found {shown}; expected SQuAD's format, with {name!r}, {_KINDS[kind]}")
    return value


def _list(table: Any, name: str, where: str) -> list[Any]:
    found: list[Any] = _value(table, name, list, where)
    return found


def labels(examples: Sequence[Example]) -> list[str]:
    """Return no labels: an answer is a piece of the paragraph."""
    return []


def parse(item: Any) -> Questions:
    """Parse a paragraph and a question, or several: an object, or a line of text with a tab between the two."""
    context, asked = _parts(item)
    asked = tuple(asked) if isinstance(asked, list) else asked
    questions = asked if isinstance(asked, tuple) else (asked,)
    asks = questions and all(isinstance(question, str) and question.strip() for question in questions)
    if isinstance(context, str) and asks:
        return Questions.of(Paragraph(context), asked)
    shown = repr(item)
    raise DataError(f"{shown if len(shown) <= 100 else f'{shown[:100]}…'}: expected {_EXPECTED}")


def _parts(item: Any) -> tuple[Any, Any]:
    """What an item has as its paragraph and as its questions; None where it has neither."""
    if isinstance(item, dict):
        return item.get("context", item.get("paragraph")), item.get("question", item.get("questions"))
    sides = item.split("\t") if isinstance(item, str) else []
    return (sides[0], sides[1]) if len(sides) == 2 else (None, None)


def to_json(example: Example, answer: Any) -> dict[str, Any]:
    """Return the answer with its place in the paragraph and its probability; of several questions, a list of them."""
    assert isinstance(example, Questions)
    if isinstance(answer, Answer):
        return _shown(answer)
    pairs = zip(example.asked, answer, strict=True)
    return {"answers": [{"question": question, **_shown(one)} for question, one in pairs]}


def _shown(answer: Answer) -> dict[str, Any]:
    return {"answer": answer.text, "start": answer.start, "end": answer.end, "score": round(answer.score, 4)}
