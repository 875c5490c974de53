"""N-GRAM MODELS (beyond the paper): the perplexity of a text by counts alone, in both directions.

In: a corpus folder, or text that is turned into one. `corpus.json` names the train and held-out files and the size V of
the vocabulary; the files are uint32 rows of `words.txt`. Rows from V on are unknown words and count as `<UNK>`.
Out: perplexities of the held-out tokens (every word and the end of each sentence), given the words before them. `both`
is exp of the mean of the two mean negative log-likelihoods, as bilm-tf averages its two losses. See kneser_ney.py.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from elmo.analysis.analysis import Analysis, Results, Workspace
from elmo.analysis.figures import bars, legend_above, new_figure
from elmo.analysis.kneser_ney import BITS, END, START, UNKNOWN, Tokens, perplexities
from elmo.analysis.tables import markdown
from elmo.config import CheckedConfig, PositiveInt
from elmo.errors import DataError
from elmo.pretrain.corpus import MANIFEST
from elmo.pretrain.prepare import prepare
from elmo.training.processes import cores

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class TrigramConfig(CheckedConfig):
    """A text that is small enough for a minute, as `elmo prepare --lines` takes it."""

    corpus: str = "english-small/train.txt"  # inside the data folder: text, one sentence per line, or a corpus folder
    heldout: str = "english-small/valid.txt"  # for text
    vocab_size: PositiveInt = 30_000  # for text
    discount_fallback: bool = False  # discounts 0.5, 1, 1.5 if the counts give none


def run(config: TrigramConfig, workspace: Workspace) -> Results:
    """Estimate the models and score the held-out text."""
    corpus = workspace.find(config.corpus)
    if not (corpus / MANIFEST).exists():
        folder = workspace.out / "corpus"
        if not (folder / MANIFEST).exists():
            heldout = workspace.find(config.heldout)
            workspace.report("corpus", 0, 1)
            prepare(
                corpus, folder, sentences="lines", heldout=heldout, vocab_size=config.vocab_size, jobs=cores()
            )  # fmt: skip
        corpus = folder
    workspace.report("n-gram models", 0, 1)
    return measure(corpus, config.discount_fallback)


def read(folder: Path) -> tuple[int, Tokens, Tokens]:
    """Return V, the training tokens and the held-out tokens; the files of each part are joined."""
    path = folder / "corpus.json"
    try:
        description = json.loads(path.read_text(encoding="utf-8"))
        size = description["vocabulary"]
        parts = [[np.load(folder / part["file"]) for part in description[name]] for name in ("train", "heldout")]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path}: not a corpus that can be read ({type(error).__name__}: {error})") from error
    if not UNKNOWN < size <= 1 << BITS:
        raise DataError(f"{path}: a vocabulary of {size:,} words; expected {UNKNOWN + 1} to {1 << BITS:,}")
    for name, arrays in zip(("train", "heldout"), parts, strict=True):
        if not arrays or not all(map(is_sentences, arrays)):
            raise DataError(f"{path}: a {name} file is missing, or is not sentences of the form 0, words…, 1")
    train, heldout = (np.concatenate(arrays) for arrays in parts)
    for tokens in (train, heldout):
        tokens[tokens >= size] = UNKNOWN
    return size, train, heldout


def is_sentences(tokens: Tokens) -> bool:
    """Return whether every sentence starts where the one before it ends."""
    if tokens.ndim != 1 or tokens.size == 0 or tokens.dtype != np.uint32:
        return False
    joined = np.array_equal(tokens[:-1] == END, tokens[1:] == START)
    return joined and tokens[0] == START and tokens[-1] == END


def measure(folder: Path, fallback: bool = False) -> Results:
    """Return everything that the table shows."""
    size, train, heldout = read(folder)
    scored = int(np.count_nonzero(heldout != START))
    unknown = int(np.count_nonzero(heldout == UNKNOWN))
    (found,), replaced = perplexities(size, train, [heldout], fallback)
    return {
        "corpus": folder.resolve().name,
        "vocabulary": size,
        "train_tokens": int(np.count_nonzero(train != START)),
        "tokens": scored,
        "sentences": len(heldout) - scored,
        "unknown": unknown,
        "unknown_rate": unknown / scored,
        "perplexity": found,
        "discount_fallback": replaced,
    }


def table(results: Results) -> str:
    """One row per model."""
    rows = []
    for name, row in results["perplexity"].items():
        mean = (row["forward"] + row["backward"]) / 2
        rows.append([name, f"{row['forward']:.1f}", f"{row['backward']:.1f}", f"{mean:.1f}"])
    facts = f"{results['tokens']:,} held-out tokens, {results['unknown_rate']:.2%} unknown; trained on "
    replaced = results["discount_fallback"]
    note = f"\nDiscounts 0.5, 1, 1.5 for: {', '.join(replaced)}\n" if replaced else ""
    head = markdown(["perplexity", "forward", "backward", "mean"], rows)
    return f"{head}\n{facts}{results['train_tokens']:,} tokens, {results['vocabulary']:,} words.\n{note}"


def figure(results: Results) -> "Figure":
    """Bars: perplexity by model and direction."""
    drawn = new_figure(5.5, 3.4)
    axes = drawn.subplots()
    found = results["perplexity"]
    bars(axes, list(found), {name: [(row[name], 0.0) for row in found.values()] for name in ("forward", "backward")})
    axes.set_ylabel("held-out perplexity")
    legend_above(axes, 2)
    return drawn


ANALYSIS = Analysis(
    "trigram",
    "N-gram models",
    "beyond the paper",
    "The perplexity of modified Kneser–Ney models: what a language model must beat on the same text and vocabulary.",
    TrigramConfig,
    run,
    table,
    figure,
)
