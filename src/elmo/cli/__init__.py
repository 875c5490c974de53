"""The command `elmo`: one file per verb. Heavy imports wait inside the verbs, so that `--help` is quick."""

import os
import sys
from typing import Annotated

import typer

from elmo import __version__
from elmo.cli.check import check
from elmo.cli.convert import convert
from elmo.cli.embed import embed
from elmo.cli.evaluate import evaluate
from elmo.cli.finetune import finetune
from elmo.cli.info import info
from elmo.cli.perplexity import perplexity
from elmo.cli.plot import plot
from elmo.cli.predict import predict
from elmo.cli.prepare import prepare
from elmo.cli.pretrain import pretrain
from elmo.cli.score import score
from elmo.cli.train import train
from elmo.errors import ElmoError

app = typer.Typer(
    help="ELMo: deep contextualized word representations.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    add_completion=False,
)
for verb in (
    embed, info, convert, prepare, pretrain, perplexity, finetune, plot, score, train, evaluate, predict, check,
):  # fmt: skip
    app.command()(verb)


def _print_version(asked: bool) -> None:
    if asked:
        print(f"elmo-torch {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command; a user's mistake is one line and exit code 2."""
    try:
        try:
            app()
        except ElmoError as error:
            print(f"elmo: {error}", file=sys.stderr)
            sys.exit(2)
    except SystemExit as end:
        if os.environ.get("WORLD_SIZE", "1") != "1" and isinstance(end.code, int):
            # One of several processes, all work done and the group left: some hundredth of them would be aborted while
            # PyTorch takes its threads down ("terminate called without an active exception"), and fail the whole run.
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(end.code)
        raise
