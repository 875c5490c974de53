"""A TEXT FILE ─▶ A FILE OF ARRAYS: `elmo embed` as one call."""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from elmo.embed.arrays import embed_sentences
from elmo.embed.embedder import load
from elmo.embed.lines import tokens_of_lines
from elmo.embed.selection import Selection
from elmo.embed.sentence_vectors import refuse_unknown
from elmo.embed.sentences import MAX_SENTENCE_TOKENS
from elmo.embed.store import Store, format_of
from elmo.errors import ConfigError, DataError, ElmoError
from elmo.files import locked, refuse_existing, remove_leftovers
from elmo.messages import counted
from elmo.packaged import DEFAULT
from elmo.text.reader import STDIN, Lines

EmbedProgress = Callable[[int, int], None]
"""Called with the number of tokens embedded by this call so far, and the bytes of the input read for them."""


@dataclass(frozen=True)
class Embedded:
    """Size of an output file."""

    sentences: int
    tokens: int


def embed_file(
    input: str | Path,
    output: str | Path,
    model: str | Path = DEFAULT,
    *,
    layers: str | None = None,
    pool: str | None = None,
    format: str | None = None,
    dtype: str = "float32",
    tokenized: bool = False,
    state: str = "fresh",
    batch_tokens: int | None = None,
    batch_size: int = 64,
    max_sentence_tokens: int | None = MAX_SENTENCE_TOKENS,
    device: str = "auto",
    precision: str = "float32",
    word_cache: str | Path | None = None,
    forget_sentences: bool = False,
    resume: bool = False,
    progress: EmbedProgress | None = None,
) -> Embedded:
    """Embed a text file, one sentence per line, and write an HDF5, Parquet or npz file.

    `input` may be compressed; "-" is standard input. A blank line is an empty sentence. `tokenized` splits lines at
    white space instead of tokenizing them. `pool` ("mean", "max", "first-last", "sif", or a sentence head) gives one
    vector per sentence. `layers` is by default "all"; "sif" and heads have their own. A longer line than
    `max_sentence_tokens` is refused; None sets no limit. `word_cache` is a folder that keeps word vectors for later
    calls (docs/cpu.md).

    The output is locked against other processes and must not exist. Until it is complete, finished sentences are in
    `OUTPUT.part`: whatever ends the run, `resume=True` continues it and gives the same file.
    """
    if str(output) == STDIN:
        raise ConfigError("embed cannot write arrays to standard output; give the name of a file, e.g. vectors.hdf5")
    output = Path(output).expanduser()
    form = format_of(output, format)
    if pool:
        refuse_unknown(pool)  # before anything is read
    lines = Lines(input)
    with locked(output):  # also checks that the output can be written
        refuse_existing(output)
        remove_leftovers(output)
        embedder = load(model, device=device, precision=precision, word_cache=word_cache)
        pooling = embedder.pooling(pool, layers, default="all") if pool else None
        chosen = pooling.layers if pooling else layers or "all"
        Selection.parse(chosen, embedder.n_layers, dtype)
        settings = {
            "layers": chosen if isinstance(chosen, str | int) else list(chosen),
            "pool": pooling.identity if pooling else None,
            "dtype": dtype,
            "tokenized": tokenized,
            "state": state,
            "batch_size": batch_size if state == "carried" else None,
            "batch_tokens": batch_tokens,
            "precision": precision,
            "model": embedder.fingerprint(),
        }
        store = Store(output, settings, resume)
        before = store.n_tokens
        sentences = _Sentences(lines, tokens_of_lines(lines, tokenized, max_sentence_tokens), store)
        try:
            arrays = embed_sentences(
                embedder.runner,
                sentences,
                chosen,
                dtype=dtype,
                state=state,
                batch_tokens=batch_tokens,
                batch_size=batch_size,
                skip=store.sentences,
                max_sentence_tokens=max_sentence_tokens,
            )
            for array in arrays:
                tokens, position = sentences.waiting.popleft()
                store.add(tokens, pooling.pool(array, tokens) if pooling else array)
                if progress is not None:
                    progress(store.n_tokens - before, position)
            if sentences.error is not None:
                raise sentences.error
            store.finish(form, sentences=not forget_sentences)
        except BaseException as error:
            saved = store.save()
            if not saved:
                raise
            same = " and the same input" if lines.name == STDIN else ""
            are = "is" if saved == 1 else "are"
            how = f"{counted(saved, 'sentence')} {are} saved in {store.part}; use --resume{same} to continue"
            if isinstance(error, ElmoError):
                raise type(error)(f"{error}. {how}") from error
            error.add_note(how)
            raise
    return Embedded(store.sentences, store.n_tokens)


class _Sentences:
    """Yields the tokens of each line, and checks that the lines which the run to resume has read are unchanged.

    A line that cannot be read ends the stream; its error is raised when the sentences before it are saved.
    """

    def __init__(self, lines: Lines, tokens: Iterator[tuple[int, list[str]]], store: Store) -> None:
        self._lines = lines
        self._tokens = tokens
        self._store = store
        self._skip = store.sentences
        self.waiting: deque[tuple[list[str], int]] = deque()  # tokens, position: read, but not embedded yet
        self.error: DataError | None = None

    def __iter__(self) -> Iterator[list[str]]:
        part = self._store.part
        before = self._store.tokens()
        number = 0
        for number, tokens in self._until_an_error():
            # The embedder reads on when it has returned all sentences read before: save them now.
            self._store.flush_if_due()
            if number > self._skip:
                self.waiting.append((tokens, self._lines.position))
            elif tokens != next(before):
                raise DataError(
                    f"{self._lines.shown}: line {number} has changed since the run to resume; restore it, or remove "
                    f"{part} to start over"
                )
            yield tokens
        if number < self._skip and self.error is None:
            raise DataError(
                f"{self._lines.shown}: has {number} lines, but the run to resume has read {self._skip}; "
                f"restore it, or remove {part} to start over"
            )

    def _until_an_error(self) -> Iterator[tuple[int, list[str]]]:
        try:
            yield from self._tokens
        except DataError as error:
            self.error = error
