"""WORDS ─▶ CHARACTER IDS: a word is its UTF-8 bytes between two marks.

    "hi"  ─▶  258+1, 'h'+1, 'i'+1, 259+1, 260+1, 260+1, …        (C ids)

Every id is shifted by one, so that 0 is left to mean "no token here": the ids bilm-tf's Batcher and AllenNLP's
`batch_to_ids` give. Bytes are 1–256; the five marks follow.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

BEGIN_SENTENCE, END_SENTENCE = "<S>", "</S>"

NO_TOKEN = 0
BEGIN_SENTENCE_ID, END_SENTENCE_ID = 257, 258
BEGIN_WORD_ID, END_WORD_ID = 259, 260
PADDING_ID = 261


def word_ids(words: Sequence[str], max_characters: int) -> npt.NDArray[np.int64]:
    """Character ids of each word, (N, C). A longer word is cut at the byte, even inside a character."""
    ids = np.full((len(words), max_characters), PADDING_ID, dtype=np.int64)
    for row, word in zip(ids, words, strict=True):
        row[0] = BEGIN_WORD_ID
        if word == BEGIN_SENTENCE:
            end = 2
            row[1] = BEGIN_SENTENCE_ID
        elif word == END_SENTENCE:
            end = 2
            row[1] = END_SENTENCE_ID
        else:
            # A lone surrogate has no bytes; bilm-tf leaves it out.
            spelled = word.encode("utf-8", "ignore")[: max_characters - 2]
            end = 1 + len(spelled)
            row[1:end] = np.frombuffer(spelled, dtype=np.uint8)
            row[1:end] += 1
        row[end] = END_WORD_ID
    return ids


def word_ids_from_bytes(
    text: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64], max_characters: int
) -> npt.NDArray[np.int16]:
    """`word_ids` of words that lie in one long text of UTF-8 bytes, without looking at them one by one."""
    ids = np.full((len(starts), max_characters), PADDING_ID, dtype=np.int16)
    ends = np.minimum(lengths, max_characters - 2)
    places = np.arange(int(ends.max(initial=0)))
    spelled = places < ends[:, None]
    at = np.where(spelled, starts[:, None] + places, 0)
    ids[:, 1 : len(places) + 1][spelled] = text[at[spelled]] + np.int16(1)
    ids[:, 0] = BEGIN_WORD_ID
    ids[np.arange(len(ids)), ends + 1] = END_WORD_ID
    return ids


def sentence_ids(sentences: Sequence[Sequence[str]], max_characters: int) -> npt.NDArray[np.int64]:
    """Character ids of sentences with their boundaries, (B, T, C); rows of zeros where there is no token."""
    longest = max((len(sentence) for sentence in sentences), default=0) + 2
    ids = np.full((len(sentences), longest, max_characters), NO_TOKEN, dtype=np.int64)
    for row, sentence in zip(ids, sentences, strict=True):
        row[: len(sentence) + 2] = word_ids([BEGIN_SENTENCE, *sentence, END_SENTENCE], max_characters)
    return ids
