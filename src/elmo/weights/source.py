"""A NAME ─▶ A MODEL: a folder, an archive of one, an HDF5 or a TensorFlow checkpoint beside its options, a hub id, an
installed or a published name.

Installed names come first, so that they mean the same everywhere (write `./name` for a folder of that name), then files
and folders, then models to download. A name that looks like a path is never looked up on the Hugging Face Hub, where a
stranger's model could have that name; `hf:owner/name` always is. Pickles are refused, but for the tensors of
ELMoForManyLangs, which PyTorch's restricted reader reads.
"""

import logging
from dataclasses import replace
from pathlib import Path

from elmo.errors import WeightsError
from elmo.text.vocabulary import Vocabulary
from elmo.weights import archive, bilm_tf, folder, installed, many_langs, published, tf_checkpoint
from elmo.weights.folder import Pretrained

log = logging.getLogger("elmo")

HUB_PREFIX = "hf:"
FILE_ENDINGS = (
    *(".hdf5", ".h5", ".zip", ".safetensors", ".json", ".txt", ".bin", ".pt", ".pth", ".th", ".pkl", ".ckpt", ".gz"),
    *(".xz", ".tar", ".tgz"),
)


def read(
    source: str | Path,
    *,
    options: str | Path | None = None,
    vocabulary: str | Path | None = None,
    token_embeddings: str | Path | None = None,
    softmax: bool = False,
) -> Pretrained:
    """Read a model wherever it is; the keywords name files that are not beside the weights."""
    path = locate(source)
    options, vocabulary, token_embeddings = map(_path, (options, vocabulary, token_embeddings))
    with archive.unpacked(path) as place:
        return _read(place, options, vocabulary, token_embeddings, softmax)


def _path(name: str | Path | None) -> Path | None:
    return None if name is None else Path(name).expanduser()


def _read(
    path: Path, options: Path | None, vocabulary: Path | None, token_embeddings: Path | None, softmax: bool
) -> Pretrained:
    words = Vocabulary.read(vocabulary) if vocabulary is not None else None
    if many_langs.is_folder(path):
        if any(name is not None for name in (options, vocabulary, token_embeddings)):
            raise WeightsError(f"{path}: is a folder of ELMoForManyLangs, which has its own options and words")
        return many_langs.read(path)
    if path.is_dir() and (path / folder.CONFIG).exists():
        if options is not None or token_embeddings is not None:
            raise WeightsError(f"{path}: has its own {folder.CONFIG}; options= and token_embeddings= are for an .hdf5")
        model = folder.read(path, softmax)
        model = model if words is None else replace(model, vocabulary=words)
        if model.bilm.config.n_words is not None:  # words enter by their row
            words = _words_of(model.vocabulary, model.bilm.config.n_words, path / folder.CONFIG)
            return replace(model, vocabulary=words)
        return model
    # An .hdf5 has no softmax.
    checkpoint = tf_checkpoint.find(path) if softmax or not has_hdf5(path) else None
    if checkpoint is not None:
        if token_embeddings is not None:
            raise WeightsError(f"{path}: is a checkpoint of TensorFlow; token_embeddings= is for an .hdf5")
        return _read_checkpoint(checkpoint, options, words, softmax)
    weights = published_weights(path)
    _refuse_pickle(weights)
    bilm = bilm_tf.read(options or options_beside(weights), weights, token_embeddings)
    if bilm.config.n_words is not None:
        words = _words_of(words, bilm.config.n_words, token_embeddings or weights)
    return Pretrained(bilm, words)


def _read_checkpoint(prefix: Path, options: Path | None, words: Vocabulary | None, softmax: bool) -> Pretrained:
    """Read a checkpoint of bilm-tf, whose vocabulary is often elsewhere."""
    bilm = tf_checkpoint.read(prefix, options or options_beside(prefix), softmax)
    size = bilm.config.n_words if bilm.config.n_words is not None else bilm.config.n_softmax
    if size is not None and words is None and bilm.config.n_words is None and _words_beside(prefix) is None:
        log.warning("%s: no %s beside it; without it the softmax cannot be used", prefix, folder.VOCABULARY)
        return Pretrained(bilm)
    return Pretrained(bilm, words if size is None else _words_of(words, size, prefix))


def locate(source: str | Path) -> Path:
    """Find the files of a model; download them first if necessary."""
    path, name = Path(source).expanduser(), str(source)
    if not name.strip():
        raise WeightsError(f"the name of the model is empty; {_expected()}")
    if (found := installed.find(installed.MODELS, name)) is not None:
        return found
    if name.startswith(HUB_PREFIX):
        return published.fetch_hub(*_hub_id(name))
    if _exists(path):
        _refuse_run(path)
        return path
    if tf_checkpoint.find(path) is not None:  # the name of a checkpoint is that of its files, without an ending
        return path
    if name in published.PUBLISHED:
        return published.fetch(name)[1]
    if published.archive_url(name) is not None:
        return published.fetch_archive(name)
    if published.HUB_ID.fullmatch(name) and not isinstance(source, Path) and not _looks_like_a_path(name):
        log.warning("%s: not found here, asking the Hugging Face Hub; write %s%s to say so", name, HUB_PREFIX, name)
        return published.fetch_hub(name)
    raise WeightsError(f"{name}: no such file or folder, and no model of that name; {_expected()}")


def _expected() -> str:
    names = [*installed.names(installed.MODELS), *published.PUBLISHED, *published.ARCHIVES]
    return (
        "expected a model folder, a zip of one, an .hdf5 with its options beside it, hf:owner/name on the Hugging Face "
        f"Hub, nlpl:VERSION/ID of the NLPL repository, or one of {', '.join(dict.fromkeys(names))}"
    )


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError as error:
        raise WeightsError(f"{path}: cannot be read ({error.strerror})") from None


def _looks_like_a_path(name: str) -> bool:
    """Whether `owner/name` means a missing file or folder: its parent exists, or it has the suffix of a file."""
    return name.startswith((".", "/", "~")) or Path(name).parent.exists() or Path(name).suffix in FILE_ENDINGS


def _hub_id(name: str) -> tuple[str, str | None]:
    """Parse `hf:owner/name` or `hf:owner/name@revision`."""
    repo_id, _, revision = name.removeprefix(HUB_PREFIX).partition("@")
    return repo_id, revision or None


def _refuse_run(path: Path) -> None:
    """Refuse the folder of a run, which is easily confused with its model."""
    if (path / "run.json").exists() and (path / "model").is_dir() and not (path / folder.CONFIG).exists():
        raise WeightsError(f"{path}: is the folder of a training run; its model is {path / 'model'}")


def options_names(weights: Path) -> list[Path]:
    """Return possible paths of the options of a weights file: `x_options.json` for `x_weights.hdf5`, `options.json`."""
    before, found, _ = weights.name.partition("weights")
    named = [weights.name.replace("weights", "options"), f"{before}options.json"] if found else []
    return [weights.with_name(name).with_suffix(".json") for name in [*named, "options.json"]]


def options_beside(weights: Path) -> Path:
    """Find the options beside a weights file."""
    names = dict.fromkeys(options_names(weights))
    for path in names:
        if path.exists():
            return path
    raise WeightsError(f"{weights}: no options beside it; looked for {' and '.join(path.name for path in names)}")


def has_hdf5(path: Path) -> bool:
    """Whether a folder has a file in the published format."""
    return path.is_dir() and any([*path.glob("*.hdf5"), *path.glob("*.h5")])


def published_weights(path: Path) -> Path:
    """Return the HDF5 file of a model in the published format: the path itself, or the file in this folder."""
    if not path.is_dir():
        return path
    found = sorted([*path.glob("*.hdf5"), *path.glob("*.h5")])
    for candidates in (found, [file for file in found if "weights" in file.name]):
        if len(candidates) == 1:
            return candidates[0]
    for pickle in sorted([*path.glob("*.bin"), *path.glob("*.pt"), *path.glob("*.th"), *path.glob("*.pkl")]):
        _refuse_pickle(pickle)
    what = f"{len(found)} .hdf5 files" if found else f"neither {folder.CONFIG} nor an .hdf5 file"
    raise WeightsError(f"{path}: contains {what}; expected {folder.CONFIG} with {folder.WEIGHTS}, or one .hdf5")


def _refuse_pickle(path: Path) -> None:
    with path.open("rb") as file:
        head = file.read(1)
    if head == b"\x80" or path.suffix in (".pt", ".th", ".bin", ".pkl"):
        raise archive.pickled(path)


def _words_of(words: Vocabulary | None, n_words: int, where: Path) -> Vocabulary:
    if words is None:
        beside = _words_beside(where)
        if beside is None:
            raise WeightsError(f"{where}: this model reads word ids; give the file of its words with vocabulary=")
        words = Vocabulary.read(beside)
    if len(words) != n_words:
        raise WeightsError(f"{where}: has rows for {n_words} words, the vocabulary {len(words)} words")
    return words


def _words_beside(weights: Path) -> Path | None:
    """Find the vocabulary beside a weights file: our name, or the only file of a name like `vocab-2016-09-10.txt`."""
    named = weights.with_name(folder.VOCABULARY)
    if named.exists():
        return named
    found = sorted(weights.parent.glob("vocab*.txt*"))
    return found[0] if len(found) == 1 else None
