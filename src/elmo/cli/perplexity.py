"""`elmo perplexity`: a model and a text ─▶ how well the model predicts it."""

import dataclasses
import json
from typing import Annotated

import typer

from elmo.cli.arguments import DeviceOption, ModelArgument, ThreadsOption, use_threads
from elmo.cli.training import CorpusArgument, TokenizerOption


def perplexity(
    model: ModelArgument,
    corpus: CorpusArgument,
    part: Annotated[str, typer.Option(help="Part of a prepared corpus: heldout or train.")] = "heldout",
    tokenizer: TokenizerOption = None,
    tokens: Annotated[int | None, typer.Option(help="Score only about this many tokens.", min=1)] = None,
    state: Annotated[
        str,
        typer.Option(
            help="LSTM state at the start of each sentence: carried (from the sentence before, as in training) or "
            "fresh (zeros)."
        ),
    ] = "carried",
    device: DeviceOption = "auto",
    threads: ThreadsOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Print a model's perplexity on a text.

    Computed with the full softmax, in both directions. A sentence of n words has n + 1 predictions in each direction:
    its words and its end. bilm-tf also counts the start of the next sentence, which is always predicted correctly; the
    perplexity in its way of counting is printed as well.

    \b
    Examples:
      $ elmo perplexity model corpus
      $ elmo perplexity model sentences.txt --tokenizer whitespace --json
    """
    from elmo.pretrain import from_paths

    use_threads(threads)
    found = from_paths.perplexity(
        model, corpus, part=part, tokenizer=tokenizer, tokens=tokens, state=state, device=device
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
