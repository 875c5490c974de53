"""PROPOSITIONS: a sentence, one of its predicates, and the spans that play a role for it.

The roles are PropBank's: ARG0 to ARG5, ARGM-TMP and so on. V is the predicate itself; R-ARG0 is a word that refers to
ARG0; C-ARG0 is a further piece of an ARG0 that is not in one piece. Spans of a proposition do not overlap, so BIO tags
describe them. `conll` reads and writes them as files.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from elmo.errors import DataError
from elmo.tasks.columns import bio_tags
from elmo.tasks.examples import Example
from elmo.tasks.reading import parse_sentence
from elmo.text.tokens import Tokens

PREDICATE = "V"  # the role of the predicate's own span


class Span(NamedTuple):
    """A piece of an argument: the tokens from `start` up to and without `end`."""

    start: int
    end: int
    role: str


class Proposition(NamedTuple):
    """The spans of one predicate, in the order of the text; `predicate` is the number of its token."""

    predicate: int
    spans: tuple[Span, ...]


class Answer(NamedTuple):
    """What is asked of a sentence: the propositions of given predicates, and which tokens are predicates."""

    propositions: tuple[Proposition, ...]
    predicates: tuple[int, ...] | None  # all of the sentence; None in a gold answer: another example has them


@dataclass(frozen=True)
class Sentence(Example):
    """A sentence, and the predicates whose arguments are wanted. Its gold answer is an `Answer`.

    An example of a file has one predicate, or none if the sentence has none. The first example of each sentence also
    has the sentence's predicates in its gold answer.
    """

    predicates: tuple[int, ...] | None = None  # None: those that the model finds
    lemmas: tuple[str, ...] = ()  # of these predicates, as in the file
    document: tuple[str, str] = ("-", "0")  # its name, and the number of its part
    number: int = 0  # of the sentence in its file: examples of one sentence have the same

    @property
    def tokens(self) -> Tokens:
        """The tokens."""
        return self.texts[0]

    @property
    def n_tokens(self) -> int:
        """The number of tokens that a model reads: the sentence once, and again for each predicate that is given."""
        return len(self.tokens) * (1 + len(self.predicates or ()))


def labels(examples: Sequence[Example]) -> list[str]:
    """Return O, then B- and then I- of every role."""
    spans = (span for example in examples for one in example.gold.propositions for span in one.spans)
    roles = sorted({span.role for span in spans} | {PREDICATE})
    return ["O", *(f"B-{role}" for role in roles), *(f"I-{role}" for role in roles)]


def spans_of(tags: Sequence[str]) -> tuple[Span, ...]:
    """Return the spans of a legal sequence of BIO tags."""
    begins = [place for place, tag in enumerate(tags) if tag.startswith("B-")]
    spans = []
    for start in begins:
        end = start + 1
        while end < len(tags) and tags[end].startswith("I-"):
            end += 1
        spans.append(Span(start, end, tags[start][2:]))
    return tuple(spans)


def parse(item: Any) -> Sentence:
    """Parse a sentence to predict from: a text, a list of tokens, or an object with one of them.

    An object with "tokens" may have "predicates", the numbers of tokens from 0. Without them the model finds them.
    """
    tokens = parse_sentence(item).texts[0]
    given = item.get("predicates") if isinstance(item, dict) else None
    if given is None:
        return Sentence((tokens,))
    if not item.get("tokens"):
        raise DataError(f"{item!r}: has predicates, but no tokens for them to count; expected 'tokens', a list")
    places = range(len(tokens))
    if not isinstance(given, list | tuple) or not all(type(one) is int and one in places for one in given):
        raise DataError(f"predicates are {given!r}; expected a list of numbers of tokens, 0 to {len(tokens) - 1}")
    if len(set(given)) < len(given):
        raise DataError(f"predicates are {given!r}; expected each token once")
    return Sentence((tokens,), predicates=tuple(given))


def to_json(example: Example, answer: Answer) -> dict[str, Any]:
    """Return the tokens and, for each predicate, its arguments and the BIO tags of all tokens."""
    (tokens,) = example.texts
    propositions = [
        {
            "predicate": predicate,
            "word": tokens[predicate],
            "arguments": [
                {"role": role, "start": start, "end": end, "text": " ".join(tokens[start:end])}
                for start, end, role in spans
                if role != PREDICATE
            ],
            "tags": bio_tags(spans, len(tokens)),
        }
        for predicate, spans in answer.propositions
    ]
    return {"tokens": list(tokens), "propositions": propositions}
