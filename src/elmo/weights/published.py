"""NAME ─▶ LOCAL FILES: the published models, and models on the Hugging Face Hub. Files are downloaded, but not opened.

The addresses are those of the authors' page.
"""

import difflib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from elmo.errors import ElmoError, WeightsError
from elmo.progress import progress_bars
from elmo.weights.download import DownloadProgress, cache_folder, download, offline

# Files of a model folder. No *.bin, *.pt or *.ckpt: a pickle can run code when it is read.
HUB_FILES = [
    *("config.json", "*.safetensors", "*.safetensors.index.json", "vocabulary.txt", "*.dic", "options.json", "*.hdf5"),
    "README.md",
]
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)


@dataclass(frozen=True)
class PublishedModel:
    """The addresses of a published model's two files."""

    name: str
    options_url: str
    weights_url: str


def _published(name: str, options: str, weights: str) -> PublishedModel:
    site = "https://s3-us-west-2.amazonaws.com/allennlp/models/elmo"
    return PublishedModel(name, f"{site}/{options}", f"{site}/{weights}")


def _authors(name: str, size: str) -> PublishedModel:
    stem = f"{size}/elmo_{size}"
    return _published(name, f"{stem}_options.json", f"{stem}_weights.hdf5")


PUBLISHED: dict[str, PublishedModel] = {
    model.name: model
    for model in (
        _authors("small", "2x1024_128_2048cnn_1xhighway"),
        _authors("medium", "2x2048_256_2048cnn_1xhighway"),
        _authors("original", "2x4096_512_2048cnn_2xhighway"),
        _authors("original-5.5b", "2x4096_512_2048cnn_2xhighway_5.5B"),
        # Contributed by others: trained on PubMed, on the Portuguese Wikipedia, on the web corpus brWaC.
        _published(
            "pubmed",
            "contributed/pubmed/elmo_2x4096_512_2048cnn_2xhighway_options.json",
            "contributed/pubmed/elmo_2x4096_512_2048cnn_2xhighway_weights_PubMed_only.hdf5",
        ),
        _published(
            "portuguese", "contributed/pt/wikipedia/options.json", "contributed/pt/wikipedia/elmo_pt_weights.hdf5"
        ),
        _published(
            "portuguese-brwac", "contributed/pt/brwac/options.json", "contributed/pt/brwac/elmo_pt_weights_dgx1.hdf5"
        ),
    )
}


# Zips that have everything in them. SeqVec reads proteins, one residue a token, and was trained on UniRef50.
ARCHIVES: dict[str, str] = {"seqvec": "https://rostlab.org/~deepppi/seqvec.zip"}
# The repository of the Nordic Language Processing Laboratory: `nlpl:11/144` is the English model of ELMoForManyLangs.
NLPL = re.compile(r"nlpl:(\d{1,3})/(\d{1,5})", re.ASCII)
NLPL_URL = "http://vectors.nlpl.eu/repository/{}/{}.zip"


def archive_url(name: str) -> str | None:
    """Return the address of the zip of this name; None if there is none."""
    parts = NLPL.fullmatch(name)
    return NLPL_URL.format(*parts.groups()) if parts else ARCHIVES.get(name)


def fetch_archive(name: str, progress: DownloadProgress | None = None) -> Path:
    """Return the zip of a published model, downloaded if it is not in the cache."""
    url = archive_url(name)
    assert url is not None
    target = cache_folder() / "published" / name.replace(":", "-").replace("/", "-") / "model.zip"
    if offline() and not target.exists():
        raise WeightsError(
            f"{name}: not in the cache, and ELMO_OFFLINE or HF_HUB_OFFLINE forbids downloading it; unset them, or put "
            f"{url} there as {target}"
        )
    if progress is not None or target.exists():
        return download(url, target, progress=progress)
    with _bar(name) as shown:
        return download(url, target, progress=shown)


def fetch(name: str, progress: DownloadProgress | None = None) -> tuple[Path, Path]:
    """Return the options and the weights file of a published model, downloaded if they are not in the cache.

    `progress` is called for the weights only: the options are a few hundred bytes. Without it, a terminal shows a bar.
    """
    if name not in PUBLISHED:
        nearest = difflib.get_close_matches(name.lower(), PUBLISHED, n=1, cutoff=0.5)
        meant = f" Did you mean {nearest[0]!r}?" if nearest else ""
        raise WeightsError(f"{name!r}: not the name of a published model.{meant} The names are {', '.join(PUBLISHED)}")
    model = PUBLISHED[name]
    folder = cache_folder() / "published" / name
    options, weights = folder / "options.json", folder / "weights.hdf5"
    if offline() and not (options.exists() and weights.exists()):
        raise WeightsError(
            f"{name}: not in the cache, and ELMO_OFFLINE or HF_HUB_OFFLINE forbids downloading it; unset them, or put"
            f" {model.options_url} as {options.name} and {model.weights_url} as {weights.name} into the folder {folder}"
        )
    download(model.options_url, options)
    if progress is not None or weights.exists():
        return options, download(model.weights_url, weights, progress=progress)
    with _bar(name) as shown:
        return options, download(model.weights_url, weights, progress=shown)


@contextmanager
def _bar(name: str) -> Iterator[DownloadProgress]:
    """Show the download on a terminal; yield the callback that moves the bar."""
    from rich.progress import DownloadColumn, TransferSpeedColumn

    with progress_bars(DownloadColumn(), TransferSpeedColumn()) as bars:
        task = bars.add_task(name, total=None)
        yield lambda done, total: bars.update(task, completed=done, total=total)


def fetch_hub(repo_id: str, revision: str | None = None) -> Path:
    """Return the local folder of a model on the Hugging Face Hub, such as `owner/name`; needs the extra `hub`.

    Only the files of `HUB_FILES` are downloaded, into the Hub's own cache; pickled weights never are.
    """
    if not HUB_ID.fullmatch(repo_id):
        raise WeightsError(f"{repo_id!r}: not the name of a model on the Hugging Face Hub; one looks like owner/name")
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        raise ElmoError(
            f"{repo_id}: the Hugging Face Hub needs huggingface_hub: pip install 'elmo-torch[hub]'"
        ) from error
    try:
        folder = Path(
            snapshot_download(repo_id, revision=revision, allow_patterns=HUB_FILES, local_files_only=offline())
        )
    # Its versions use requests, httpx or httpx2, whose errors have no common base class.
    except Exception as error:
        raise WeightsError(f"{repo_id} on the Hugging Face Hub: {_hub_error(error, repo_id, revision)}") from error
    if not any(folder.glob("*.safetensors")) and not any(folder.glob("*.hdf5")):
        raise WeightsError(
            f"{repo_id} on the Hugging Face Hub: has no *.safetensors and no *.hdf5 file;"
            " pickled weights are not read here, so it must be converted first"
        )
    return folder


def _hub_error(error: Exception, repo_id: str, revision: str | None) -> str:
    """Summarize the error of the Hub's client in one line, and say what to do."""
    from huggingface_hub.errors import (
        GatedRepoError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    if isinstance(error, GatedRepoError):  # a kind of RepositoryNotFoundError, so before it
        return f"access is restricted; ask for it at https://huggingface.co/{repo_id}, then set HF_TOKEN"
    if isinstance(error, RepositoryNotFoundError):
        return "no such model, or a private one; check the name, or set HF_TOKEN to a token that may read it"
    if isinstance(error, RevisionNotFoundError):
        return f"has no revision {revision!r}; name a branch, a tag or a commit of it"
    if offline():
        return "not completely in the cache, and ELMO_OFFLINE or HF_HUB_OFFLINE forbids downloading it; unset them"
    if isinstance(error, LocalEntryNotFoundError):
        return "cannot be reached and is not completely in the cache; check the connection and try again"
    return f"{type(error).__name__}: {' '.join(str(error).split())}; check the name, the connection and the disk"
