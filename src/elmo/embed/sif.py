"""A MODEL AND A TEXT ─▶ THE STATISTICS OF `pooling="sif"`: what `elmo sif` does, as one call.

Every word of the text is counted. The mean and the principal components are those of the weighted means of some of its
sentences, which are drawn at random: see `elmo.embed.pooling.sif`.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from elmo.embed.embedder import Embedder, load
from elmo.embed.lines import tokens_of_lines
from elmo.embed.pooling import weighted_mean
from elmo.embed.selection import LayersArgument, Selection
from elmo.embed.sentences import MAX_SENTENCE_TOKENS
from elmo.errors import ConfigError, DataError, WeightsError
from elmo.files import locked, refuse_existing
from elmo.text.reader import Lines
from elmo.weights import folder as model_folder
from elmo.weights import sif
from elmo.weights.sif import Array, Sif

# Chosen on the dev part of the STS Benchmark, for the English model of this package: see experiments/RESULTS.md.
A, LAYERS, COMPONENTS = 1e-4, 0, 35
WORDS, SENTENCES = 20_000, 10_000

Report = Callable[[str, int, int], None]
"""Called with a stage, and how much of it is done: bytes of the text for "words", sentences for "components"."""


def add_sif(
    model: str | Path,
    text: str | Path,
    *,
    tokenized: bool = False,
    a: float = A,
    layers: LayersArgument = LAYERS,
    components: int = COMPONENTS,
    words: int = WORDS,
    sentences: int = SENTENCES,
    device: str = "auto",
    report: Report | None = None,
) -> Sif:
    """Compute the statistics from a text, one sentence per line, and write them into a model folder.

    The folder keeps the counts of the `words` most frequent words; `sentences` is how many sentences are drawn. A
    folder that has statistics already is refused.
    """
    place = Path(model).expanduser()
    if not (place / model_folder.CONFIG).is_file():
        raise WeightsError(f"{place}: not a model folder; `elmo convert` makes one of any model")
    refuse_existing(place / sif.STATISTICS)
    lines = Lines(text)
    with locked(place / sif.STATISTICS):
        refuse_existing(place / sif.STATISTICS)  # another process may have written it just before it was locked
        embedder = load(place, device=device)
        counts, drawn = _read(lines, tokenized, sentences, report)
        found = statistics(
            embedder, counts, drawn, a=a, layers=layers, components=components, words=words, report=report
        )
        sif.write(place, found)
    return found


def statistics(
    embedder: Embedder,
    counts: Counter[str],
    sentences: Sequence[Sequence[str]],
    *,
    a: float = A,
    layers: LayersArgument = LAYERS,
    components: int = COMPONENTS,
    words: int = WORDS,
    report: Report | None = None,
) -> Sif:
    """Compute the statistics of a model: `counts` are those of words in lower case, in any text."""
    weights = Selection.parse(layers, embedder.n_layers).weights
    if weights is None:
        raise ConfigError("layers is 'all'; a sentence has one vector: expected a layer, top, average, or weights")
    if not 0 < a < float("inf"):
        raise ConfigError(f"a is {a:g}; expected more than 0, and a finite number")
    if not 0 <= components < min(embedder.dim, len(sentences)):
        raise ConfigError(
            f"components is {components}; expected at least 0, and less than the {embedder.dim} dimensions and the "
            f"{len(sentences):,} sentences of the text"
        )
    kept = dict(sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:words])
    empty = np.zeros(embedder.dim, dtype=np.float32)
    before = Sif(a, weights, kept, counts.total(), empty, empty[None, :][:0])
    rows = np.empty((len(sentences), embedder.dim), dtype=np.float32)
    for number, (tokens, array) in enumerate(zip(sentences, embedder.embed(sentences, weights), strict=True)):
        rows[number] = weighted_mean(array, tokens, before)
        if report is not None:
            report("components", number + 1, len(sentences))
    mean: Array = rows.mean(axis=0, dtype=np.float64).astype(np.float32)
    directions = np.linalg.svd((rows - mean).astype(np.float64), full_matrices=False)[2]
    return Sif(a, weights, kept, counts.total(), mean, directions[:components].astype(np.float32))


def _read(
    lines: Lines, tokenized: bool, sentences: int, report: Report | None
) -> tuple[Counter[str], list[list[str]]]:
    """Count the words of a text, in lower case, and draw sentences: each with the same chance, in one pass."""
    counts: Counter[str] = Counter()
    drawn: list[list[str]] = []
    random, seen = np.random.default_rng(0), 0
    for _, tokens in tokens_of_lines(lines, tokenized, MAX_SENTENCE_TOKENS):
        if not tokens:
            continue
        counts.update(token.lower() for token in tokens)
        seen += 1
        row = len(drawn) if len(drawn) < sentences else int(random.integers(seen))
        if row < sentences:
            drawn[row : row + 1] = [tokens]
        if report is not None:
            report("words", lines.position, lines.size or 0)
    if not drawn:
        raise DataError(f"{lines.shown}: contains no words; expected a text, one sentence per line")
    return counts, drawn
