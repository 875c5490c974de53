"""Command lines as help screens and documents show them, with `elmo` run in this process."""

import shlex
import subprocess
from pathlib import Path

from embedders import Finished, elmo
from serving import stopping_when_started


def run_line(line: str) -> Finished:
    """Run a line in the current folder; it may have a comment, `A && B`, `A | elmo …` and `elmo … > FILE`.

    `elmo serve` stops as soon as it answers.
    """
    ended = Finished(0, "", "")
    for part in line.split(" && "):
        words = shlex.split(part, comments=True)
        if "elmo" not in words:
            subprocess.run(["bash", "-c", part], check=True)
            continue
        before, words = words[: words.index("elmo")], words[words.index("elmo") + 1 :]
        piped = b""
        if before:
            assert before.pop() == "|"
            piped = subprocess.run(before, capture_output=True, check=True).stdout
        target = None
        if ">" in words:
            *words, redirection, target = words
            assert redirection == ">"
        if words[0] == "serve":
            with stopping_when_started():
                ended = elmo(*words, "--port", "0")  # any port: several tests may run at once
            continue
        ended = elmo(*words, stdin=piped.splitlines(keepends=True))
        if target is not None:
            Path(target).write_text(ended.out, encoding="utf-8")
        if ended.code != 0:
            break
    return ended
