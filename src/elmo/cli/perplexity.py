"""`elmo perplexity`: a model and a text ─▶ how well the model predicts it."""

import dataclasses
import json
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from elmo.cli.arguments import DeviceOption, ModelArgument, ThreadsOption, no_softmax, use_threads
from elmo.cli.training import CorpusArgument, TokenizerOption
from elmo.errors import ConfigError, DataError


def perplexity(
    model: ModelArgument,
    corpus: CorpusArgument,
    part: Annotated[str, typer.Option(help="The part of a prepared corpus: heldout or train.")] = "heldout",
    tokenizer: TokenizerOption = None,
    tokens: Annotated[int | None, typer.Option(help="Score only about this many tokens.", min=1)] = None,
    state: Annotated[
        str, typer.Option(help="carried: from sentence to sentence, as in training; fresh: from zeros in each.")
    ] = "carried",
    device: DeviceOption = "auto",
    threads: ThreadsOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Print a model's perplexity on a text: the full softmax, in both directions.

    A sentence of n words has n + 1 predictions in each direction: its words and its end. bilm-tf also counts the
    certain step to the next sentence; that figure is printed as well.

    \b
    Examples:
      $ elmo perplexity model corpus
      $ elmo perplexity model sentences.txt --tokenizer whitespace --json
    """
    from elmo.model.device import device_named
    from elmo.pretrain.corpus_source import open_or_prepare
    from elmo.pretrain.evaluate import perplexity as score
    from elmo.weights import source

    use_threads(threads)
    if part not in ("heldout", "train"):
        raise ConfigError(f"--part is {part!r}; expected heldout or train")
    if state not in ("carried", "fresh"):
        raise ConfigError(f"--state is {state!r}; expected carried or fresh")
    read = source.read(model, softmax=True)
    if read.bilm.softmax is None or read.vocabulary is None:
        raise no_softmax(model)
    with tempfile.TemporaryDirectory() as temporary:
        text = open_or_prepare(corpus, Path(temporary), tokenizer=tokenizer)
        shards = text.heldout if part == "heldout" and text.folder == corpus else text.train
        if not shards:
            raise DataError(f"{corpus}: nothing is held out; --part train scores the training text")
        found = score(
            read.bilm.to(device_named(device)), read.vocabulary, text, shards, tokens=tokens, carried=state == "carried"
        )
    if as_json:
        print(json.dumps({**dataclasses.asdict(found), "mean": found.mean, "geometric_mean": found.geometric_mean}))
        return
    rows: list[tuple[str, str]] = [("forward", f"{found.forward:.2f}")]
    if found.backward is not None:
        rows += [
            ("backward", f"{found.backward:.2f}"),
            ("mean", f"{found.mean:.2f}"),
            ("geometric mean", f"{found.geometric_mean:.2f}"),
        ]
    rows += [
        ("as bilm-tf", f"{found.as_bilm_tf:.2f}"),
        ("tokens", f"{found.tokens:,}"),
        ("unknown", f"{found.unknown:.2%}"),
    ]
    for name, value in rows:
        print(f"{name:<16}{value:>12}")
