"""RAW TEXT ─▶ SENTENCES, by the rules of Moses' splitter, with its English list of abbreviations.

A sentence ends at `.` `?` `!` or `…` with closing quotes and brackets, before white space and a character that is not
in lower case. A full stop does not end it after an initial (J. Smith), an abbreviation (Mr. Smith, No. 5), capitals
with full stops between them (the U.S. Army), or a number at its beginning (2. Results). If in doubt, the text is not
split: joining two sentences does less harm than cutting one in half.
"""

import re
from functools import lru_cache

from sacremoses.corpus import NonbreakingPrefixes

_OPENING = "\"'`“‘„«([¿¡"
# Possessive (++), and only from the first of several marks: a line of a million dots takes no longer than others.
_STOP = re.compile(
    r"""(?<![.?!…]) (?P<mark>[.?!…]++) ["'”’»)\]]*+ \s++ (?= ["'`“‘„«(\[¿¡]*+ (?P<following>\w) )""",
    re.VERBOSE,
)
_NUMERIC_ONLY = " #NUMERIC_ONLY#"
# Missing in Moses' list.
_ALWAYS = frozenset({"cf", "Mt", "Sept"})
_BEFORE_NUMBERS = frozenset({"al", "Ch", "ch", "Fig", "fig", "Figs", "figs", "Sec", "sec", "Vol", "vol"})
_LONGEST = 40  # no abbreviation is longer
_CAPITALS = re.compile(r".*\.[^\W\d_a-z]+")  # U.S, Ph.D
_NUMBER = re.compile(r"[0-9.]+|[IVXLC]+")


def split(text: str) -> list[str]:
    """Split a text into sentences, without the white space between them."""
    text = text.strip()
    sentences = []
    start = 0
    for stop in _STOP.finditer(text):
        if _ends(text, start, stop):
            sentences.append(text[start : stop.end()].rstrip())
            start = stop.end()
    return [*sentences, text[start:]] if text else []


def _ends(text: str, start: int, stop: re.Match[str]) -> bool:
    """Whether the sentence that begins at `start` ends at `stop`."""
    if stop["following"].islower():
        return False
    if stop["mark"] != ".":
        return True
    before = text[max(start, stop.start() - _LONGEST) : stop.start()]
    word = (before.split() or [""])[-1].lstrip(_OPENING)
    opens = stop.start() - start == len(word)
    always, numeric = _abbreviations()
    return not (
        (len(word) <= 1 and not word.isdigit())
        or word in always
        or (word in numeric and stop["following"].isdigit())
        or _CAPITALS.fullmatch(word)
        or (opens and _NUMBER.fullmatch(word))
    )


@lru_cache(maxsize=1)
def _abbreviations() -> tuple[frozenset[str], frozenset[str]]:
    """Return the abbreviations that never end a sentence, and those that do not before a number."""
    listed = list(NonbreakingPrefixes().words("en"))
    numeric = {entry.removesuffix(_NUMERIC_ONLY) for entry in listed if entry.endswith(_NUMERIC_ONLY)}
    return _ALWAYS | frozenset(listed), _BEFORE_NUMBERS | numeric
