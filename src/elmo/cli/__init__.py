"""The command line, `elmo`: one file per command. Heavy imports are inside the functions, so that `--help` is fast."""

import errno
import io
import os
import sys
from contextlib import suppress
from typing import Annotated

import typer

from elmo import __version__
from elmo.cli.analyse import analyse
from elmo.cli.check import check
from elmo.cli.convert import convert
from elmo.cli.embed import embed
from elmo.cli.evaluate import evaluate
from elmo.cli.export import export
from elmo.cli.finetune import finetune
from elmo.cli.help import Command
from elmo.cli.info import info
from elmo.cli.package import package
from elmo.cli.perplexity import perplexity
from elmo.cli.plot import plot
from elmo.cli.predict import predict
from elmo.cli.prepare import prepare
from elmo.cli.pretrain import pretrain
from elmo.cli.reproduce import reproduce
from elmo.cli.score import score
from elmo.cli.serve import serve
from elmo.cli.sif import sif
from elmo.cli.train import train
from elmo.errors import ElmoError

# Errors of the system that say what is wrong with the name of a file, or with its folder.
UNUSABLE = (errno.EACCES, errno.EPERM, errno.ENAMETOOLONG, errno.ELOOP, errno.EROFS)

app = typer.Typer(
    help="ELMo: deep contextualized word representations.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (
    embed, sif, info, convert, export, prepare, pretrain, perplexity, finetune, plot, score, train, evaluate, predict,
    package, check, analyse, reproduce, serve,
):  # fmt: skip
    app.command(cls=Command)(command)


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
    _prepare_streams()
    code = _run([_with_home(argument) for argument in sys.argv[1:]])
    if os.environ.get("WORLD_SIZE", "1") != "1":
        # One of several processes, when all work is done: about one in a hundred aborts while PyTorch ends its threads
        # ("terminate called without an active exception"), and the run would fail.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def _run(arguments: list[str]) -> int:
    """Run the command and return its exit code."""
    try:
        try:
            app(args=arguments)
        except SystemExit as end:
            sys.stdout.flush()  # here, where errors are caught
            if isinstance(end.code, str):
                raise
            return end.code or 0
    except ElmoError as error:
        print(f"elmo: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader has closed the pipe, as `head` does
        _discard_output()
        return 1
    except OSError as error:
        if error.filename is not None and error.errno in UNUSABLE:
            print(f"elmo: {error.filename}: cannot be used ({error.strerror})", file=sys.stderr)
            return 2
        if error.filename is not None or error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EBADF):
            raise
        print(f"elmo: standard output: cannot be written ({error.strerror})", file=sys.stderr)
        _discard_output()
        return 2
    return 0


def _prepare_streams() -> None:
    """Open the standard streams that the caller has closed (`<&-`, `>&-`), for which Python has None.

    Input and output are opened the wrong way round: to read or write them is then an error of the system, as in other
    programs, and no other file gets their numbers, 0 and 1. What is printed may have characters that the encoding of
    the locale lacks: they are escaped, as Python does on standard error.
    """
    if sys.stdin is None:
        sys.stdin = os.fdopen(os.open(os.devnull, os.O_WRONLY))
    if sys.stdout is None:
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_RDONLY), "w")
    if sys.stderr is None:
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _discard_output() -> None:
    """Discard what is still buffered for standard output: Python would try to write it on exit, and fail again."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _with_home(argument: str) -> str:
    """Expand a ~ that the shell does not expand, as in --output=~/scores.jsonl."""
    name, equals, value = argument.partition("=")
    if equals and value.startswith("~"):
        return f"{name}={os.path.expanduser(value)}"  # noqa: PTH111 (pathlib would change other parts of the text)
    return os.path.expanduser(argument) if argument.startswith("~") else argument  # noqa: PTH111
