"""Downloads against a real server on this computer that can break off, ignore ranges, and change its file."""

import contextlib
import hashlib
import json
import os
import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from elmo.errors import WeightsError
from elmo.weights import download as module
from elmo.weights.download import cache_folder, download, offline

BODY = random.Random(0).randbytes(100_000)
OTHER = random.Random(1).randbytes(90_000)


class Site:
    """What the server serves and how it misbehaves; and what it was asked for."""

    def __init__(self) -> None:
        self.body, self.version = BODY, {"ETag": '"one"'}
        self.cuts: list[int | None] = []  # per request, the bytes after which the connection breaks off
        self.statuses: list[int] = []  # per request, an error to answer with (0: none)
        self.ranges = self.if_range = self.lengths = True
        self.hold = threading.Event()  # answers wait for it after their first half
        self.hold.set()
        self.asked: list[tuple[str | None, str | None]] = []  # Range, If-Range
        self.sent = 0
        self.url = ""


def handler(site: Site) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            wanted, same_as = self.headers.get("Range"), self.headers.get("If-Range")
            site.asked.append((wanted, same_as))
            if status := (site.statuses.pop(0) if site.statuses else 0):
                self.send_error(status)
                return
            begin = 0
            if wanted and site.ranges and (same_as in site.version.values() or not site.if_range):
                begin = int(wanted.removeprefix("bytes=").removesuffix("-"))
                if begin >= len(site.body):
                    self.send_error(416)
                    return
            rest = site.body[begin:]
            self.send_response(206 if begin else 200)
            if site.lengths:
                self.send_header("Content-Length", str(len(rest)))
            if begin:
                self.send_header("Content-Range", f"bytes {begin}-{len(site.body) - 1}/{len(site.body)}")
            for name, value in site.version.items():
                self.send_header(name, value)
            self.end_headers()
            cut = site.cuts.pop(0) if site.cuts else None
            rest = rest[:cut]
            with contextlib.suppress(ConnectionError):  # the client may have hung up
                self.wfile.write(rest[: len(rest) // 2])
                site.hold.wait(10)
                self.wfile.write(rest[len(rest) // 2 :])
                site.sent += len(rest)

        def log_message(self, *_: object) -> None: ...

    return Handler


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ELMO_OFFLINE", "HF_HUB_OFFLINE", "ELMO_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(module, "BACKOFF", 0.001)
    monkeypatch.setattr(module, "BLOCK", 1 << 12)


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site()
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler(site))
    site.url = f"http://127.0.0.1:{server.server_port}/weights.hdf5"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield site
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "weights.hdf5"


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(*_: object) -> None:
        raise AssertionError("a connection was opened")

    monkeypatch.setattr(socket.socket, "connect", connect)
    monkeypatch.setattr(socket, "getaddrinfo", connect)


def names(target: Path) -> set[str]:
    return {path.name.removeprefix(target.name) for path in target.parent.iterdir()}


def refusal(url: str, target: Path) -> str:
    """Return the message, which is one line, always."""
    with pytest.raises(WeightsError) as caught:
        download(url, target)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def record(target: Path) -> Path:
    return target.with_name(target.name + ".sha256.json")


def part(target: Path) -> Path:
    return target.with_name(target.name + ".part")


def begin_part(target: Path, content: bytes, url: str) -> None:
    """Leave what a download of version "one" leaves when it breaks off."""
    target.parent.mkdir()
    part(target).write_bytes(content)
    part(target).with_name(part(target).name + ".json").write_text(json.dumps({"url": url, "if_range": '"one"'}))


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


# The file, whole


def test_whole_download_is_recorded_and_reported(site: Site, target: Path) -> None:
    heard: list[tuple[int, int | None]] = []
    assert download(site.url, target, progress=lambda done, total: heard.append((done, total))) == target
    assert target.read_bytes() == BODY
    assert json.loads(record(target).read_text()) == {
        "sha256": sha(BODY),
        "size": len(BODY),
        "url": site.url,
        "mtime_ns": target.stat().st_mtime_ns,
    }
    assert names(target) == {"", ".sha256.json"}
    assert heard[0] == (0, len(BODY)) and heard[-1] == (len(BODY), len(BODY))
    assert heard == sorted(heard) and len(heard) > 10


def test_a_server_that_tells_no_length(site: Site, target: Path) -> None:
    site.lengths = False
    heard: list[tuple[int, int | None]] = []
    download(site.url, target, progress=lambda done, total: heard.append((done, total)))
    assert target.read_bytes() == BODY
    assert heard[-1] == (len(BODY), None)


def test_a_file_that_is_there_is_returned_without_network(site: Site, target: Path) -> None:
    download(site.url, target)
    download(site.url, target)
    assert len(site.asked) == 1


def test_only_web_addresses(target: Path) -> None:
    assert refusal("file:///etc/hostname", target) == (
        "file:///etc/hostname: not an address to download from; one begins with https:// or http://"
    )


# Breaking off and resuming


@pytest.mark.parametrize("version", [{"ETag": '"one"'}, {"Last-Modified": "Thu, 01 Feb 2018 00:00:00 GMT"}])
def test_break_off_is_resumed_and_no_byte_comes_twice(site: Site, target: Path, version: dict[str, str]) -> None:
    site.version, site.cuts = version, [30_000, 20_000]
    download(site.url, target)
    assert target.read_bytes() == BODY
    same_as = next(iter(version.values()))
    assert site.asked == [(None, None), ("bytes=30000-", same_as), ("bytes=50000-", same_as)]
    assert site.sent == len(BODY)


def test_broken_off_for_good_keeps_the_part_for_the_next_call(
    site: Site, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RETRIES", 2)
    site.cuts = [10_000, 10_000, 10_000]
    assert refusal(site.url, target) == (
        f"{site.url}: the connection broke off at 30,000 of 100,000 bytes; 30,000 bytes are kept"
        f" and the same call resumes there, or put the file by hand at {target}"
    )
    assert names(target) == {".part", ".part.json"}
    assert part(target).read_bytes() == BODY[:30_000]
    download(site.url, target)
    assert target.read_bytes() == BODY
    assert site.asked[-1] == ("bytes=30000-", '"one"') and site.sent == len(BODY)


def test_a_server_that_ignores_ranges_starts_again(site: Site, target: Path) -> None:
    site.ranges, site.cuts = False, [30_000]
    download(site.url, target)
    assert target.read_bytes() == BODY
    assert len(site.asked) == 2 and site.sent == len(BODY) + 30_000


def test_a_server_that_falls_silent_is_asked_again(site: Site, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TIMEOUT", 0.5)
    site.hold.clear()
    thread = threading.Thread(target=download, args=(site.url, target))
    thread.start()
    wait_for(lambda: len(site.asked) == 2)
    site.hold.set()
    thread.join()
    assert target.read_bytes() == BODY
    assert site.asked == [(None, None), ("bytes=49152-", '"one"')]  # the twelve blocks that had come


@pytest.mark.parametrize("version", [{}, {"ETag": 'W/"weak"'}])
def test_without_a_strong_version_nothing_is_resumed(site: Site, target: Path, version: dict[str, str]) -> None:
    site.version, site.cuts = version, [30_000] * (1 + module.RETRIES)
    assert refusal(site.url, target) == (
        f"{site.url}: the connection broke off at 30,000 of 100,000 bytes; try again later,"
        f" or put the file by hand at {target}"
    )
    download(site.url, target)
    assert target.read_bytes() == BODY
    assert set(site.asked) == {(None, None)}


@pytest.mark.parametrize("if_range", [True, False], ids=["answers 200", "answers 206 all the same"])
def test_a_file_that_changed_before_the_resume_starts_again(
    site: Site, target: Path, monkeypatch: pytest.MonkeyPatch, if_range: bool
) -> None:
    monkeypatch.setattr(module, "RETRIES", 0)
    site.cuts = [30_000]
    refusal(site.url, target)
    monkeypatch.setattr(module, "RETRIES", 1)
    site.body, site.version, site.if_range = OTHER, {"ETag": '"two"'}, if_range
    download(site.url, target)
    assert target.read_bytes() == OTHER
    assert site.asked[1] == ("bytes=30000-", '"one"')


def test_break_off_after_the_change_resumes_the_new_file(site: Site, target: Path) -> None:
    """The note beside the part must speak of the new file, or old and new bytes would be joined."""
    begin_part(target, BODY[:30_000], site.url)
    site.body, site.version, site.cuts = OTHER, {"ETag": '"two"'}, [10_000]
    download(site.url, target)
    assert target.read_bytes() == OTHER
    assert site.asked == [("bytes=30000-", '"one"'), ("bytes=10000-", '"two"')]


def test_a_part_of_another_address_is_not_resumed(site: Site, target: Path) -> None:
    begin_part(target, OTHER[:500], "http://models.test/another")
    download(site.url, target)
    assert target.read_bytes() == BODY and site.asked == [(None, None)]


@pytest.mark.parametrize("note", ["", "[1]", "{"])
def test_a_damaged_note_means_from_the_start(site: Site, target: Path, note: str) -> None:
    begin_part(target, OTHER[:500], site.url)
    part(target).with_name(part(target).name + ".json").write_text(note)
    download(site.url, target)
    assert target.read_bytes() == BODY and site.asked == [(None, None)]


def test_a_part_with_nothing_after_it_starts_again(site: Site, target: Path) -> None:
    begin_part(target, OTHER + OTHER, site.url)
    download(site.url, target)
    assert target.read_bytes() == BODY
    assert site.asked == [("bytes=180000-", '"one"'), (None, None)]


def test_interruption_leaves_no_target_and_is_resumed(site: Site, target: Path) -> None:
    def interrupt(done: int, _: int | None) -> None:
        if done >= 40_000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        download(site.url, target, progress=interrupt)
    assert names(target) == {".part", ".part.json"}
    kept = part(target).stat().st_size
    assert 40_000 <= kept < len(BODY)
    download(site.url, target)
    assert target.read_bytes() == BODY and site.asked[-1][0] == f"bytes={kept}-"


def test_target_appears_whole_or_not_at_all(site: Site, target: Path) -> None:
    """It is the part under another name, never a copy that somebody could see half made."""
    inodes = set()

    def look(_: int, __: int | None) -> None:
        assert not target.exists()
        inodes.add(part(target).stat().st_ino)

    download(site.url, target, progress=look)
    assert inodes == {target.stat().st_ino}
    assert target.read_bytes() == BODY


# The record of the first download


def test_a_file_changed_in_place_is_refused_until_its_record_is_deleted(site: Site, target: Path) -> None:
    download(site.url, target)
    target.write_bytes(OTHER)
    assert refusal(site.url, target) == (
        f"{target}: changed since it was first downloaded (sha256 {sha(BODY)[:12]}… then, {sha(OTHER)[:12]}… now);"
        f" delete it to download it again, or delete {record(target)} to accept it as it is"
    )
    record(target).unlink()
    assert download(site.url, target) == target
    assert json.loads(record(target).read_text())["sha256"] == sha(OTHER)
    assert len(site.asked) == 1


def test_one_bit_changed_is_refused(site: Site, target: Path) -> None:
    download(site.url, target)
    with target.open("r+b") as file:
        file.seek(77_777)
        file.write(bytes([BODY[77_777] ^ 1]))
    assert "changed since it was first downloaded" in refusal(site.url, target)


def test_a_copy_with_another_time_is_hashed_and_accepted(site: Site, target: Path) -> None:
    download(site.url, target)
    os.utime(target, ns=(1, 1))
    download(site.url, target)
    assert json.loads(record(target).read_text())["mtime_ns"] == target.stat().st_mtime_ns


def test_another_size_is_seen_whatever_the_time(site: Site, target: Path) -> None:
    download(site.url, target)
    time_ns = target.stat().st_mtime_ns
    target.write_bytes(OTHER)
    os.utime(target, ns=(time_ns, time_ns))
    assert "changed since it was first downloaded" in refusal(site.url, target)


def test_same_size_and_time_are_trusted_without_reading(
    site: Site, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    download(site.url, target)
    monkeypatch.delattr(module.hashlib, "file_digest")
    download(site.url, target)


def test_a_second_download_that_differs_is_refused_and_not_put_in_place(site: Site, target: Path) -> None:
    download(site.url, target)
    target.unlink()
    site.body, site.version = OTHER, {"ETag": '"two"'}
    assert refusal(site.url, target) == (
        f"{site.url}: is another file than at the first download (sha256 {sha(BODY)[:12]}… then,"
        f" {sha(OTHER)[:12]}… now) and was not put at {target}; delete {record(target)} to accept the new one"
    )
    assert not target.exists() and not part(target).exists()
    assert json.loads(record(target).read_text())["sha256"] == sha(BODY)
    record(target).unlink()
    assert download(site.url, target).read_bytes() == OTHER


def test_a_second_download_that_agrees_is_put_in_place(site: Site, target: Path) -> None:
    download(site.url, target)
    target.unlink()
    download(site.url, target)
    assert target.read_bytes() == BODY and len(site.asked) == 2
    assert json.loads(record(target).read_text())["mtime_ns"] == target.stat().st_mtime_ns


@pytest.mark.usefixtures("no_network")
def test_a_file_put_by_hand_is_accepted_and_recorded(target: Path) -> None:
    target.parent.mkdir()
    target.write_bytes(BODY)
    assert download("https://models.test/weights.hdf5", target) == target
    assert json.loads(record(target).read_text())["sha256"] == sha(BODY)
    assert names(target) == {"", ".sha256.json"}


def test_a_read_only_cache_serves_without_a_record(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target.parent.mkdir()
    target.write_bytes(BODY)

    def read_only(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(module, "_write_json", read_only)
    assert download("https://models.test/weights.hdf5", target) == target


# Errors


@pytest.mark.parametrize(("status", "reason"), [(404, "Not Found"), (403, "Forbidden"), (202, "Accepted")])
def test_an_http_error_is_final(site: Site, target: Path, status: int, reason: str) -> None:
    site.statuses = [status]
    assert refusal(site.url, target) == (
        f"{site.url}: the server answered {status} {reason}; try again later, or put the file by hand at {target}"
    )
    assert len(site.asked) == 1 and names(target) == set()


def test_a_passing_http_error_is_tried_again(site: Site, target: Path) -> None:
    site.statuses = [503, 429]
    download(site.url, target)
    assert target.read_bytes() == BODY and len(site.asked) == 3


def test_nobody_answers(target: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/weights.hdf5"  # bound, not listening
        message = refusal(url, target)
    assert message.startswith(f"{url}: cannot be reached (") and "refused" in message
    assert message.endswith(f"); try again later, or put the file by hand at {target}")


@pytest.mark.parametrize("kept", [0, 1234])
def test_no_such_host(target: Path, monkeypatch: pytest.MonkeyPatch, kept: int) -> None:
    """At the start of a download one answer is enough; in the middle of one the network may come back."""
    asked = []

    def getaddrinfo(*_: object, **__: object) -> None:
        asked.append(1)
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    url = "http://models.test/w"
    if kept:
        begin_part(target, BODY[:kept], url)
    resume = "1,234 bytes are kept and the same call resumes there" if kept else "try again later"
    assert refusal(url, target) == (
        f"{url}: cannot be reached ([Errno -2] Name or service not known);"
        f" {resume}, or put the file by hand at {target}"
    )
    assert len(asked) == (1 + module.RETRIES if kept else 1)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk(site: Site, target: Path) -> None:
    target.parent.mkdir()
    part(target).symlink_to("/dev/full")
    assert refusal(site.url, target) == (
        f"{target}: No space left on device; free some space, or set ELMO_CACHE to another folder, and call again"
    )
    assert not target.exists()


def test_a_folder_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    target = tmp_path / "file" / "weights.hdf5"
    assert refusal("http://models.test/w", target) == (
        f"{tmp_path / 'file'}: File exists; make the folder readable and writable,"
        " or set ELMO_CACHE to another folder, and call again"
    )


# Offline and the cache


@pytest.mark.usefixtures("no_network")
@pytest.mark.parametrize("switch", ["ELMO_OFFLINE", "HF_HUB_OFFLINE"])
def test_offline_opens_no_connection(target: Path, monkeypatch: pytest.MonkeyPatch, switch: str) -> None:
    url = "https://models.test/weights.hdf5"
    with pytest.raises(AssertionError, match="a connection was opened"):
        download(url, target)
    monkeypatch.setenv(switch, "1")
    assert refusal(url, target) == (
        f"{target}: not there, and ELMO_OFFLINE or HF_HUB_OFFLINE forbids downloading it;"
        f" unset them, or put {url} there by hand"
    )


@pytest.mark.parametrize(
    ("value", "expected"), [("1", True), ("true", True), ("YES", True), ("0", False), ("no", False), ("", False)]
)
def test_offline_switch(monkeypatch: pytest.MonkeyPatch, value: str, expected: bool) -> None:
    monkeypatch.setenv("ELMO_OFFLINE", value)
    assert offline() is expected


def test_cache_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "elmo"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "elmo"
    monkeypatch.setenv("ELMO_CACHE", "~/models")
    assert cache_folder() == tmp_path / "models"


# Two at once


def test_two_threads_download_once(site: Site, target: Path) -> None:
    site.hold.clear()
    threads = [threading.Thread(target=download, args=(site.url, target)) for _ in range(2)]
    for thread in threads:
        thread.start()
    wait_for(lambda: bool(site.asked))
    time.sleep(0.2)
    assert len(site.asked) == 1
    site.hold.set()
    for thread in threads:
        thread.join()
    assert target.read_bytes() == BODY and len(site.asked) == 1


def test_two_processes_download_once(site: Site, target: Path, tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from elmo.weights.download import download;"
        "Path(sys.argv[3]).touch(); download(sys.argv[1], Path(sys.argv[2]))"
    )
    site.hold.clear()
    ready = [tmp_path / "ready0", tmp_path / "ready1"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    processes = [
        subprocess.Popen([sys.executable, "-c", script, site.url, str(target), str(file)], env=environment)
        for file in ready
    ]
    wait_for(lambda: bool(site.asked) and all(file.exists() for file in ready))
    time.sleep(0.2)
    site.hold.set()
    assert [process.wait(30) for process in processes] == [0, 0]
    assert target.read_bytes() == BODY and len(site.asked) == 1
    assert json.loads(record(target).read_text())["sha256"] == sha(BODY)
