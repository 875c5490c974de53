"""WORDS ─▶ CHARACTER IDS: the UTF-8 bytes of a word between two marks.

    "hi"  ─▶  258+1, 'h'+1, 'i'+1, 259+1, 260+1, 260+1, …        (C ids)

Every id is shifted by one, so that 0 means "no token", as in bilm-tf's Batcher and AllenNLP's `batch_to_ids`. Bytes are
1–256; the five marks follow.

A token `<S>` or `</S>` in the text of a user has the ids of the boundary, as in both of them. Otherwise it is a token
like any other: it does not end the sentence, and it has a vector. `elmo prepare` counts it as `<UNK>`.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

BEGIN_SENTENCE, END_SENTENCE = "<S>", "</S>"

NO_TOKEN = 0
BEGIN_SENTENCE_ID, END_SENTENCE_ID = 257, 258
BEGIN_WORD_ID, END_WORD_ID = 259, 260
PADDING_ID = 261
_BOUNDARIES = {BEGIN_SENTENCE: BEGIN_SENTENCE_ID, END_SENTENCE: END_SENTENCE_ID}


def word_ids(words: Sequence[str], max_characters: int) -> npt.NDArray[np.int64]:
    """Return the character ids of each word, (N, C). A longer word is cut after C − 2 bytes."""
    encoded = [word.encode("utf-8", "ignore") for word in words]  # a lone surrogate has no bytes; bilm-tf leaves it out
    text = np.frombuffer(b"".join(encoded), dtype=np.uint8)
    lengths = np.fromiter(map(len, encoded), np.int64, len(encoded))
    ids = word_ids_from_bytes(text, lengths.cumsum() - lengths, lengths, max_characters).astype(np.int64)
    for row, word in enumerate(words):
        if word in _BOUNDARIES:
            ids[row, :3] = BEGIN_WORD_ID, _BOUNDARIES[word], END_WORD_ID
            ids[row, 3:] = PADDING_ID
    return ids


def word_ids_from_bytes(
    text: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64], max_characters: int
) -> npt.NDArray[np.int16]:
    """Compute `word_ids` of words in one long array of UTF-8 bytes, all at once; no word is a boundary here."""
    ids = np.full((len(starts), max_characters), PADDING_ID, dtype=np.int16)
    ends = np.minimum(lengths, max_characters - 2)
    places = np.arange(int(ends.max(initial=0)))
    inside = places < ends[:, None]
    at = np.where(inside, starts[:, None] + places, 0)
    ids[:, 1 : len(places) + 1][inside] = text[at[inside]].astype(np.int16) + 1  # in uint8, 255 + 1 is 0
    ids[:, 0] = BEGIN_WORD_ID
    ids[np.arange(len(ids)), ends + 1] = END_WORD_ID
    return ids


def sentence_ids(sentences: Sequence[Sequence[str]], max_characters: int) -> npt.NDArray[np.int64]:
    """Return the character ids of sentences with boundaries, (B, T, C); rows of zeros where there is no token."""
    longest = max((len(sentence) for sentence in sentences), default=0) + 2
    ids = np.full((len(sentences), longest, max_characters), NO_TOKEN, dtype=np.int64)
    for row, sentence in zip(ids, sentences, strict=True):
        row[: len(sentence) + 2] = word_ids([BEGIN_SENTENCE, *sentence, END_SENTENCE], max_characters)
    return ids
