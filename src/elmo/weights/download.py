"""URL ─▶ A COMPLETE FILE ON THE DISK, or an error of one line.

The published files have no known checksums. So the checksum of the first download is stored, and a file that has
changed since is refused. Beside `weights.hdf5` there may be `weights.hdf5.part` (the bytes so far), `.part.json` (the
version they belong to) and `.sha256.json` (the record of the first download).
"""

import contextlib
import errno
import hashlib
import http.client
import json
import os
import re
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from elmo.errors import DataError, WeightsError
from elmo.files import locked

DownloadProgress = Callable[[int, int | None], None]
"""Called with the bytes on the disk so far and the total (None if the server does not say it)."""

RETRIES = 4  # after the first attempt; each continues where the last one ended
BACKOFF = 1.0  # seconds before the first retry; the n-th waits n times as long
TIMEOUT = 30.0  # seconds without data before a connection counts as broken
BLOCK = 1 << 18  # bytes read at a time


class _DownloadError(Exception):
    """A failed attempt; `retry` says whether another attempt can help."""

    def __init__(self, what: str, *, retry: bool) -> None:
        super().__init__(what)
        self.retry = retry


def cache_folder() -> Path:
    """Return the folder for downloaded models: `$ELMO_CACHE`, else `$XDG_CACHE_HOME/elmo`, else `~/.cache/elmo`."""
    if own := os.environ.get("ELMO_CACHE"):
        return Path(own).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "elmo"


def offline() -> bool:
    """Return whether `ELMO_OFFLINE` or `HF_HUB_OFFLINE` is set to 1, true, yes or on: then no connection is opened."""
    switches = (os.environ.get("ELMO_OFFLINE", ""), os.environ.get("HF_HUB_OFFLINE", ""))
    return any(switch.strip().lower() in ("1", "true", "yes", "on") for switch in switches)


def download(url: str, target: Path, *, progress: DownloadProgress | None = None) -> Path:
    """Download `url` to `target` unless it exists, and check that it is the same file as at its first download.

    The file appears when it is complete. An interrupted download is resumed by the next call. If another process is
    downloading it, this one waits. Returns `target`.
    """
    if not url.startswith(("http://", "https://")):
        raise WeightsError(f"{url}: not an address to download from; one begins with https:// or http://")
    try:
        if not target.exists():
            if offline():
                raise WeightsError(
                    f"{target}: not there, and ELMO_OFFLINE or HF_HUB_OFFLINE forbids downloading it;"
                    f" unset them, or put {url} there by hand"
                )
            target.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.ExitStack() as stack:
                with contextlib.suppress(DataError):  # some cluster file systems have no locks: nothing is held there
                    stack.enter_context(locked(target, wait=True))
                if not target.exists():  # another process may have finished it while this one waited
                    _download(url, target, progress)
        _check(target, target, url)
    except OSError as error:  # of the disk: errors of the network were handled below
        advice = "free some space" if error.errno == errno.ENOSPC else "make the folder readable and writable"
        raise WeightsError(
            f"{error.filename or target}: {error.strerror or error};"
            f" {advice}, or set ELMO_CACHE to another folder, and call again"
        ) from error
    return target


def _download(url: str, target: Path, progress: DownloadProgress | None) -> None:
    """Complete the part file and rename it to `target`, unless it differs from the first download."""
    part = _beside(target, ".part")
    for attempt in range(RETRIES + 1):
        time.sleep(BACKOFF * attempt)
        try:
            _receive(url, part, progress)
            break
        except _DownloadError as error:
            if error.retry and attempt < RETRIES:
                continue
            kept, _ = _resumable(url, part)
            resume = f"{kept:,} bytes are kept and the same call resumes there" if kept else "try again later"
            raise WeightsError(f"{url}: {error}; {resume}, or put the file by hand at {target}") from error
    try:
        _check(part, target, url)  # before it is renamed, so that a refused file is never visible
    except WeightsError:
        part.unlink()
        raise
    part.replace(target)
    _beside(part, ".json").unlink(missing_ok=True)


def _receive(url: str, part: Path, progress: DownloadProgress | None) -> None:
    """Make one request and append its data to `part`; return when the file is complete."""
    had, same_as = _resumable(url, part)
    headers = {"Range": f"bytes={had}-", "If-Range": same_as} if had else {}
    with _open(url, headers, part) as response:
        total = response.length
        if response.status == 206:
            span = re.fullmatch(r"bytes (\d+)-\d+/(\d+)", response.headers.get("Content-Range", ""))
            if not had or span is None or int(span[1]) != had or _version(response) not in ("", same_as):
                part.unlink(missing_ok=True)
                raise _DownloadError("the server continued another file than the one begun", retry=True)
            total = int(span[2])
        elif response.status == 200:
            had = 0  # the server does not support ranges, or the file has changed
        else:  # 202 "ask again later", 204 "empty": not the file
            raise _DownloadError(f"the server answered {response.status} {response.reason}", retry=False)
        with part.open("ab" if had else "wb") as file:
            if not had:  # not before: the old note belongs to the old bytes, which are gone now
                _write_json(_beside(part, ".json"), {"url": url, "if_range": _version(response)})
            if progress:
                progress(had, total)
            while block := _read(response):
                had += file.write(block)
                if progress:
                    progress(had, total)
            file.flush()
            os.fsync(file.fileno())
    size = part.stat().st_size
    if total is not None and size != total:
        if size > total:  # two writers on a file system without locks: the data is useless
            part.unlink()
        raise _DownloadError(f"the connection broke off at {size:,} of {total:,} bytes", retry=True)


def _open(url: str, headers: dict[str, str], part: Path) -> http.client.HTTPResponse:
    """Send the request; raise `_DownloadError` for any failure."""
    request = urllib.request.Request(url, headers={"User-Agent": "elmo-torch", **headers})
    try:
        response: http.client.HTTPResponse = urllib.request.urlopen(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 416:  # the file on the server is not longer than our part, so the part belongs to another one
            part.unlink()
        retry = error.code >= 500 or error.code in (408, 416, 429)
        raise _DownloadError(f"the server answered {error.code} {error.reason}", retry=retry) from error
    except urllib.error.URLError as error:  # no connection: a retry makes sense only in the middle of a download
        raise _DownloadError(f"cannot be reached ({error.reason})", retry=bool(headers)) from error
    except (OSError, http.client.HTTPException) as error:
        raise _DownloadError(f"the connection broke off ({error or type(error).__name__})", retry=True) from error
    return response


def _read(response: http.client.HTTPResponse) -> bytes:
    """Read one block. A separate function, so that an OSError of the network is not confused with one of the disk."""
    try:
        return response.read(BLOCK)
    except (OSError, http.client.HTTPException) as error:
        raise _DownloadError(f"the connection broke off ({error or type(error).__name__})", retry=True) from error


def _resumable(url: str, part: Path) -> tuple[int, str]:
    """Return the number of bytes of `part` that can be kept, and the version of the file that they belong to."""
    note = _read_json(_beside(part, ".json"))
    if note.get("url") != url or not note.get("if_range") or not part.exists():
        return 0, ""
    return part.stat().st_size, str(note["if_range"])


def _version(response: http.client.HTTPResponse) -> str:
    """Return the identifier of this version of the file. If-Range allows no weak ETag (RFC 9110, 13.1.5)."""
    etag = response.headers.get("ETag", "")
    return etag if etag.startswith('"') else response.headers.get("Last-Modified", "")


def _check(file: Path, target: Path, url: str) -> None:
    """Refuse `file` if it differs from the first download of `target`; if it is the first one, store its checksum."""
    record = _beside(target, ".sha256.json")
    known, status = _read_json(record), file.stat()
    if known.get("size") == status.st_size and known.get("mtime_ns") == status.st_mtime_ns:
        return
    with file.open("rb") as stream:
        found = hashlib.file_digest(stream, "sha256").hexdigest()
    first = str(known.get("sha256", found))
    if first != found:
        hashes = f"sha256 {first[:12]}… then, {found[:12]}… now"
        if file == target:
            raise WeightsError(
                f"{target}: changed since it was first downloaded ({hashes}); delete it to download it again,"
                f" or delete {record} to accept it as it is"
            )
        raise WeightsError(
            f"{url}: is another file than at the first download ({hashes}) and was not put at {target};"
            f" delete {record} to accept the new one"
        )
    try:
        _write_json(record, {"sha256": found, "size": status.st_size, "url": url, "mtime_ns": status.st_mtime_ns})
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):  # a read-only shared cache is usable
            raise


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _read_json(path: Path) -> dict[str, Any]:
    """Return the JSON object in `path`; empty if there is none."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _write_json(path: Path, content: dict[str, Any]) -> None:
    """Write `path`, complete or not at all."""
    draft = _beside(path, f".{os.getpid()}.{threading.get_ident()}")
    try:
        draft.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
