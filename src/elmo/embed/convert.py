"""A MODEL ─▶ A MODEL IN ANOTHER FORMAT: what `elmo convert` does, as one call."""

from dataclasses import dataclass
from pathlib import Path

import torch

from elmo.embed.embedder import Embedder
from elmo.errors import ConfigError
from elmo.files import locked, refuse_existing, replacing
from elmo.text.vocabulary import Vocabulary
from elmo.weights import bilm_tf, source


@dataclass(frozen=True)
class Converted:
    """The result of a conversion."""

    files: tuple[Path, ...]  # a model folder counts as one
    n_parameters: int


def convert(model: str | Path, output: str | Path, *, dtype: torch.dtype | None = None) -> Converted:
    """Write a model, named as for `elmo.load`, as a folder, or if `output` ends in .hdf5 in the published format.

    The published format cannot store a softmax and the statistics of `pooling="sif"`: they are left out. With a
    `dtype`, a folder stores the weights rounded: `torch.float16` in half the size of float32, `torch.int8` in a
    quarter. Computations stay in float32.
    """
    output = Path(output).expanduser()
    if not _is_hdf5(output):
        return _to_folder(model, output, dtype)
    if dtype not in (None, torch.float32):
        name = str(dtype).removeprefix("torch.")
        raise ConfigError(f"{output}: the published format is float32; {name} is for a folder")
    return _to_published(model, output)


def convert_tokens(model: str | Path, output: str | Path, vocabulary: str | Path) -> tuple[int, int]:
    """Write the token embeddings of the words in a vocabulary file, as .hdf5; return their shape (words, D)."""
    output = Path(output).expanduser()
    if not _is_hdf5(output):
        raise ConfigError(f"{output}: token embeddings are an .hdf5 file; give a name that ends in .hdf5")
    refuse_existing(output)
    with locked(output):
        refuse_existing(output)  # another process may have written it just before it was locked
        words = Vocabulary.read(Path(vocabulary))
        vectors = Embedder(source.read(model), cache_bytes=0).token_vectors(words.words)
        bilm_tf.write_token_embeddings(vectors, output)
    return len(words), vectors.shape[1]


def _to_folder(model: str | Path, output: Path, dtype: torch.dtype | None) -> Converted:
    refuse_existing(output)
    with locked(output):
        refuse_existing(output)
        read = source.read(model, softmax=True)
        Embedder(read).save(output, dtype)
    return Converted((output,), read.bilm.n_parameters())


def _to_published(model: str | Path, output: Path) -> Converted:
    options, vocabulary = source.options_names(output)[0], output.with_name("vocabulary.txt")
    for path in (output, options):
        refuse_existing(path)
    with locked(output):
        for path in (output, options):
            refuse_existing(path)
        read = source.read(model)
        written = [output, options]
        try:
            if read.bilm.config.n_words is not None and read.vocabulary is not None:  # words enter by their row
                refuse_existing(vocabulary)
                written.append(vocabulary)
                with replacing(vocabulary) as path:
                    read.vocabulary.write(path)
            bilm_tf.write(read.bilm, options, output)
        except BaseException:  # all of them or none; none was there before
            for path in written:
                path.unlink(missing_ok=True)
            raise
    return Converted((output, options), read.bilm.n_parameters())


def _is_hdf5(path: Path) -> bool:
    return path.suffix in (".hdf5", ".h5")
