"""The bundled sentences: short, different, and with words that mean several things."""

from collections import Counter

import numpy as np

from elmo.serve.uses import Uses, cosine, sentences
from embedders import embedder


def test_the_sentences_are_short_and_all_different() -> None:
    found = sentences()
    assert len({tuple(tokens) for tokens in found}) == len(found) >= 200
    assert max(map(len, found)) <= 14 and all(tokens[-1] == "." for tokens in found)
    counts = Counter(word for tokens in found for word in set(tokens))
    for word in ("play", "bank", "bark", "spring", "bat", "light", "match", "plant", "ring", "crane"):
        assert counts[word] >= 3, word


def test_a_word_of_the_sentences_is_nearest_to_itself() -> None:
    model = embedder()
    tokens = sentences()[0]
    (array,) = model.embed([tokens])
    best, *others = Uses(model).nearest(array[:, 2], [0.2, 0.3, 0.5], n=4)
    assert (best.tokens, best.index) == (tokens, 2) and abs(best.similarity - 1) < 1e-5
    similarities = [one.similarity for one in others]
    assert similarities == sorted(similarities, reverse=True) and len(others) == 3


def test_the_cosine_of_nothing_is_zero() -> None:
    rows = np.array([[3.0, 4.0], [0.0, 0.0]])
    assert cosine(rows, np.array([4.0, 3.0])).tolist() == [24 / 25, 0.0]
    assert cosine(rows, np.zeros(2)).tolist() == [0.0, 0.0]
