"""Windows against the text they were cut from: laid end to end they are its sentences, each once, in a new order.

Every word of these corpora names its shard, its sentence and its place, so that a stream can be read back.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from corpora import write_corpus
from elmo.errors import DataError
from elmo.pretrain.corpus import Corpus
from elmo.pretrain.streams import Streams

Sentence = tuple[str, ...]
LENGTHS = [[3, 0, 7, 1, 12, 5, 2, 4, 6, 3], [9, 2, 2, 8, 5, 30], [1, 1, 1, 4, 0, 0, 6, 3, 11]]


def write(folder: Path, lengths: Sequence[Sequence[int]]) -> Corpus:
    """A corpus of shards with sentences of these lengths."""
    train = [
        [[f"{shard}.{sentence}.{word}" for word in range(n)] for sentence, n in enumerate(some)]
        for shard, some in enumerate(lengths)
    ]
    return Corpus.open(write_corpus(folder, train, [], 3))


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return write(tmp_path_factory.mktemp("streams") / "corpus", LENGTHS)


def laid_out(streams: Streams, columns: int) -> NDArray[np.uint32]:
    """The first columns of every row, (S, B, columns), from consecutive windows."""
    windows = [streams.window(k) for k in range(-(-columns // streams.steps))]
    return np.concatenate([window[:, :, :-1] for window in windows], axis=2)[:, :, :columns]


def texts(shard: int, lengths: Sequence[int], reverse: bool) -> list[Sentence]:
    """A shard's sentences as a direction reads them."""
    found = [("<S>", *(f"{shard}.{k}.{word}" for word in range(n)), "</S>") for k, n in enumerate(lengths)]
    return [sentence[::-1] for sentence in found] if reverse else found


def cut(words: Sequence[str], reverse: bool) -> list[Sentence]:
    """Words ─▶ sentences; the last may be cut short."""
    first = "</S>" if reverse else "<S>"
    ends = [k for k in range(1, len(words)) if words[k] == first] + [len(words)]
    return [tuple(words[a:b]) for a, b in zip([0, *ends], ends, strict=False) if a < b]


def read_shard(text: list[str], shard: int, lengths: Sequence[int], batch: int, reverse: bool) -> list[Sentence] | None:
    """The sentences of a text, if it is a shard's: each once, but for fewer than B tokens at the end."""
    sentences, wanted = cut(text, reverse), Counter(texts(shard, lengths, reverse))
    whole = sentences if Counter(sentences) <= wanted else sentences[:-1]
    last = sentences[-1] if len(whole) < len(sentences) else ()
    missing = wanted - Counter(whole)
    if not Counter(whole) <= wanted or (last and not any(sentence[: len(last)] == last for sentence in missing)):
        return None
    remainder = sum(len(sentence) * n for sentence, n in missing.items()) - len(last)
    return sentences if 0 <= remainder < batch else None


def read_epoch(
    part: NDArray[np.uint32], corpus: Corpus, lengths: Sequence[Sequence[int]], reverse: bool
) -> list[tuple[int, list[Sentence]]]:
    """One epoch of one direction, (B, columns) ─▶ its shards in the one order that explains it, and their sentences."""
    words = [[corpus.words[row] for row in line] for line in part]
    for order in permutations(range(len(lengths))):
        found: list[tuple[int, list[Sentence]]] = []
        column = 0
        for shard in order:
            size = sum(n + 2 for n in lengths[shard]) // len(words)
            text = [word for line in words for word in line[column : column + size]]  # rows lie end to end
            sentences = read_shard(text, shard, lengths[shard], len(words), reverse)
            if sentences is None:
                break
            found.append((shard, sentences))
            column += size
        else:
            assert column == part.shape[1]
            return found
    raise AssertionError(f"no order of the shards explains {words}")


@pytest.mark.parametrize("same_text", [False, True])
@pytest.mark.parametrize(("batch", "steps"), [(1, 7), (2, 20), (3, 5), (4, 1), (7, 3), (5, 27)])
def test_an_epoch_is_every_sentence_once(corpus: Corpus, batch: int, steps: int, same_text: bool) -> None:
    streams = Streams(corpus, batch, steps, seed=3, same_text=same_text)
    columns = sum(sum(n + 2 for n in some) // batch for some in LENGTHS)
    assert streams.columns_per_epoch == columns
    assert streams.windows_per_epoch == columns / steps
    stream = laid_out(streams, 3 * columns)
    assert stream.shape == (2, batch, 3 * columns)
    for epoch in range(3):
        part = stream[:, :, epoch * columns : (epoch + 1) * columns]
        forward = read_epoch(part[0], corpus, LENGTHS, reverse=False)
        backward = read_epoch(part[1], corpus, LENGTHS, reverse=True)
        assert [shard for shard, _ in forward] == [shard for shard, _ in backward]
        assert sorted(shard for shard, _ in forward) == [0, 1, 2]
        if same_text:
            for (_, one), (_, other) in zip(forward, backward, strict=True):
                assert [sentence[::-1] for sentence in one[:-1]] == other[:-1]


@given(
    st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=8), min_size=1, max_size=4),
    st.integers(1, 5),
    st.integers(1, 12),
    st.integers(0, 5),
    st.booleans(),
)
@settings(deadline=None, max_examples=60)
def test_any_text_in_any_batch(
    tmp_path_factory: pytest.TempPathFactory,
    lengths: list[list[int]],
    batch: int,
    steps: int,
    seed: int,
    same_text: bool,
) -> None:
    corpus = write(tmp_path_factory.mktemp("any") / "corpus", lengths)
    columns = sum(sum(n + 2 for n in some) // batch for some in lengths)
    if columns <= steps:
        with pytest.raises(DataError, match="training tokens"):
            Streams(corpus, batch, steps)
        return
    streams = Streams(corpus, batch, steps, seed=seed, same_text=same_text)
    stream = laid_out(streams, 2 * columns)
    for epoch in range(2):
        part = stream[:, :, epoch * columns : (epoch + 1) * columns]
        for direction in range(2):
            read_epoch(part[direction], corpus, lengths, reverse=direction == 1)


@pytest.mark.parametrize("steps", [1, 4, 13])
def test_consecutive_windows_overlap_by_the_token_between_them(corpus: Corpus, steps: int) -> None:
    streams = Streams(corpus, 3, steps)
    for k in range(3 * int(streams.windows_per_epoch) + 3):
        window, following = streams.window(k), streams.window(k + 1)
        assert window.shape == (2, 3, steps + 1)
        assert window.dtype == np.uint32
        np.testing.assert_array_equal(window[:, :, -1], following[:, :, 0])


def test_windows_cross_shards_and_epochs(corpus: Corpus) -> None:
    """Windows nearly as long as an epoch: each holds words of several shards, and of two epochs."""
    batch = 2
    columns = sum(sum(n + 2 for n in some) // batch for some in LENGTHS)
    streams = Streams(corpus, batch, columns - 1)
    short = Streams(corpus, batch, 1)
    for k in range(4):
        window = streams.window(k)
        shards = {corpus.words[row].split(".")[0] for row in window.ravel() if row > 2}
        assert shards == {"0", "1", "2"}
        every = [short.window(j) for j in range(k * (columns - 1), (k + 1) * (columns - 1))]
        np.testing.assert_array_equal(window[:, :, :-1], np.concatenate([one[:, :, :1] for one in every], axis=2))
        np.testing.assert_array_equal(window[:, :, 1:], np.concatenate([one[:, :, 1:] for one in every], axis=2))


@pytest.mark.parametrize("parts", [2, 3, 6])
def test_several_processes_read_the_rows_of_one(corpus: Corpus, parts: int) -> None:
    one = Streams(corpus, 6, 5, seed=1)
    each = 6 // parts
    others = [Streams(corpus, 6, 5, seed=1, rows=range(k * each, (k + 1) * each)) for k in range(parts)]
    for k in (0, 3, 4, 1, 17):
        windows = [other.window(k) for other in others]
        assert all(window.shape == (2, each, 6) for window in windows)
        np.testing.assert_array_equal(np.concatenate(windows, axis=1), one.window(k))


def test_a_window_is_the_same_whatever_was_asked_for_before(corpus: Corpus) -> None:
    in_order = Streams(corpus, 3, 6, seed=9)
    windows = [in_order.window(k) for k in range(40)]
    for k in (39, 0, 20, 20, 7, 39):
        np.testing.assert_array_equal(Streams(corpus, 3, 6, seed=9).window(k), windows[k])
        np.testing.assert_array_equal(in_order.window(k), windows[k])


def test_what_is_done_with_a_window_does_not_reach_the_next(corpus: Corpus) -> None:
    streams = Streams(corpus, 3, 6)
    before = streams.window(1).copy()
    streams.window(0)[:] = 0
    streams.window(1)[:] = 0
    np.testing.assert_array_equal(streams.window(1), before)


def test_seeds_epochs_and_directions_have_orders_of_their_own(corpus: Corpus) -> None:
    columns = sum(sum(n + 2 for n in some) for some in LENGTHS)

    def orders(seed: int, direction: int, epoch: int, same_text: bool = False) -> tuple[Sentence, ...]:
        streams = Streams(corpus, 1, 10, seed=seed, same_text=same_text)
        part = laid_out(streams, (epoch + 1) * columns)[direction, :, epoch * columns :]
        sentences = [s for _, some in read_epoch(part, corpus, LENGTHS, direction == 1) for s in some]
        return tuple(sentence[::-1] if direction == 1 else sentence for sentence in sentences)

    every = [orders(seed, direction, epoch) for seed in (0, 1) for direction in (0, 1) for epoch in (0, 1)]
    assert len(set(every)) == 8
    assert orders(0, 0, 1) == every[1]
    assert orders(0, 0, 1, same_text=True) == orders(0, 1, 1, same_text=True)
    assert orders(0, 0, 1, same_text=True) != orders(0, 0, 0, same_text=True)


def test_every_order_is_as_likely(tmp_path: Path) -> None:
    """Three sentences over 480 epochs, and three shards: each of the six orders about 80 times (± 4 deviations)."""
    three = write(tmp_path / "sentences", [[1, 1, 1]])
    streams = Streams(three, 1, 8)
    stream = laid_out(streams, 9 * 480)
    for direction in range(2):
        middle = stream[direction, 0].reshape(480, 9)[:, 1::3]
        counts = Counter(map(tuple, middle.tolist()))
        assert len(counts) == 6
        assert all(abs(n - 80) < 4 * (480 * 1 / 6 * 5 / 6) ** 0.5 for n in counts.values())
    shards = write(tmp_path / "shards", [[1], [1], [1]])
    counts = Counter(map(tuple, laid_out(Streams(shards, 1, 8), 9 * 480)[0, 0].reshape(480, 9)[:, 1::3].tolist()))
    assert len(counts) == 6
    assert all(abs(n - 80) < 4 * (480 * 1 / 6 * 5 / 6) ** 0.5 for n in counts.values())


def test_one_direction_is_the_forward_one_of_two(corpus: Corpus) -> None:
    one, two = Streams(corpus, 3, 6, directions=1), Streams(corpus, 3, 6)
    for k in range(12):
        assert one.window(k).shape == (1, 3, 7)
        np.testing.assert_array_equal(one.window(k)[0], two.window(k)[0])


def test_a_shard_smaller_than_a_batch_is_left_out(tmp_path: Path) -> None:
    lengths = [[1], [20, 5, 9, 3], [0, 0]]  # 3, 45 and 4 tokens in rows of 5
    corpus = write(tmp_path / "corpus", lengths)
    streams = Streams(corpus, 5, 4)
    assert streams.columns_per_epoch == 9
    stream = laid_out(streams, 90)
    assert {corpus.words[row].split(".")[0] for row in stream.ravel() if row > 2} == {"1"}


def test_text_for_less_than_one_batch_is_refused(tmp_path: Path) -> None:
    corpus = write(tmp_path / "corpus", [[8, 8], [8]])  # 30 tokens: 7 columns of 4
    with pytest.raises(DataError) as refused:
        Streams(corpus, 4, 7)
    assert str(refused.value) == (
        f"{tmp_path / 'corpus'}: 30 training tokens in 2 shards do not fill one batch of 4 rows × 8 "
        "tokens; expected more text, a smaller batch.size or fewer shards"
    )
    assert Streams(corpus, 4, 6).window(0).shape == (2, 4, 7)
    with pytest.raises(DataError, match=r"30 training tokens"):
        Streams(corpus, 31, 1)


def test_a_shard_that_changed_is_refused_when_it_is_read(tmp_path: Path) -> None:
    corpus = write(tmp_path / "corpus", [[8, 8]])
    np.save(tmp_path / "corpus" / "train-00000.npy", np.zeros(20, dtype=np.uint32))
    with pytest.raises(DataError, match=r"train-00000\.npy: has changed"):
        Streams(corpus, 2, 3).window(0)
