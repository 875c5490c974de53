"""Small documents for tests of coreference, written as sentences with brackets around mentions."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from elmo.tasks.coref.document import Document, Span, in_order
from elmo.tasks.coref.model import CorefConfig
from elmo.tasks.inputs import CharactersConfig, ElmoConfig, InputsConfig
from elmo.tasks.train_config import TrainConfig

_PIECE = re.compile(r"\[(\d+)|\]|[^\s\[\]]+")


def document(*sentences: str, name: str = "doc", genre: str = "", speakers: Sequence[str] = ()) -> Document:
    """A document of sentences such as "[1 Anna] saw [2 [1 her] dog]": the number is that of the entity."""
    texts: list[tuple[str, ...]] = []
    clusters: dict[str, list[Span]] = {}
    place = 0
    for sentence in sentences:
        tokens: list[str] = []
        begun: list[tuple[str, int]] = []
        for piece in _PIECE.finditer(sentence):
            if piece[1]:
                begun.append((piece[1], place))
            elif piece[0] == "]":
                entity, start = begun.pop()
                clusters.setdefault(entity, []).append(Span(start, place))
            else:
                tokens.append(piece[0])
                place += 1
        texts.append(tuple(tokens))
    by_token = (
        [speaker for speaker, text in zip(speakers, texts, strict=True) for _ in text] if speakers else [""] * place
    )
    return Document(tuple(texts), in_order(list(clusters.values())), name, "0", genre, tuple(by_token))


# Mentions of one token or of a whole sentence: no other span can cross them, so none is ever pruned for that.
EIGHT = [
    document("[1 Anna] saw [2 Rex] .", "[1 She] fed [2 it] .", name="a"),
    document("[1 The mayor of Lima]", "[1 He] left with [1 his] wife .", name="b"),
    document("[1 I] am here .", "No , I am .", "[1 I] said so .", name="c", speakers=["A", "B", "A"]),
    document("It rained all day .", name="d"),
    document("[1 Bela] met [2 Dora] .", "[1 He] greeted [2 her] .", name="e"),
    document("[1 A bank in [2 Oslo]]", "[1 It] failed .", "[2 Oslo] slept .", "Nobody cared .", name="f"),
    document("[1 Chris] sings , said [2 Dora] .", "[2 She] lies .", "[1 Chris] left .", name="g", genre="news"),
    document("[1 The cat that [1 itself] licked]", "[1 It] purred .", name="h", genre="talk"),
]


def small_config(placement: str = "input", **changes: Any) -> CorefConfig:
    """A small model that reads a small biLM and its own character CNN."""
    small = CorefConfig(
        hidden=12, n_layers=2, feedforward=16, feature=4, max_width=6, spans_per_token=0.6, max_antecedents=20,
        dropout=0.0,
        inputs=InputsConfig(
            elmo=ElmoConfig(placement=placement, mix_l2=0.0, dropout=0.0),  # type: ignore[arg-type]
            characters=CharactersConfig(dim=6, filters=8, width=2, n_widths=2, max_characters=14),
        ),
        train=TrainConfig(batch_size=1, learning_rate=5e-3, device="cpu", schedule="decay"),
    )  # fmt: skip
    return replace(small, **changes)
