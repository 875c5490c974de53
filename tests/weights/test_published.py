"""Published models and the Hub: the real clients against a server on this computer that plays both sites."""

import hashlib
import json
import socket
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from elmo.errors import ElmoError, WeightsError
from elmo.weights import published
from elmo.weights.published import PUBLISHED, fetch, fetch_hub

SITE = "https://s3-us-west-2.amazonaws.com/allennlp/models/elmo/"
COMMIT = "0123456789abcdef0123456789abcdef01234567"
HUB_MODEL = {
    "options.json": b'{"lstm": {}}',
    "weights.hdf5": b"\x89HDF\r\n\x1a\n" + bytes(5000),
    "README.md": b"# A model",
    "pytorch_model.bin": b"a pickle, which can run code",
    "tf_model.ckpt": b"not wanted either",
}


class Site:
    """Plain files by path, and the Hub's few routes for the repositories in `hub` (an error code stands for one)."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.hub: dict[str, dict[str, bytes] | str] = {}
        self.asked: list[str] = []
        self.root = ""

    def answer(self, path: str) -> tuple[int, dict[str, str], bytes]:
        """Return status, headers and body."""
        if path in self.files:
            return 200, {"ETag": '"one"'}, self.files[path]
        for repo, files in self.hub.items():
            if not path.startswith((f"/api/models/{repo}/", f"/{repo}/")):
                continue
            if isinstance(files, str):
                return (403 if files == "GatedRepo" else 404), {"X-Error-Code": files}, b""
            if path == f"/api/models/{repo}/revision/main":
                siblings = [{"rfilename": name} for name in files]
                return 200, {}, json.dumps({"id": repo, "sha": COMMIT, "siblings": siblings}).encode()
            if path.startswith(f"/api/models/{repo}/revision/"):
                return 404, {"X-Error-Code": "RevisionNotFound"}, b""
            if path == f"/api/models/{repo}/tree/{COMMIT}":
                tree = [
                    {"type": "file", "path": name, "size": len(content), "oid": hashlib.sha1(content).hexdigest()}
                    for name, content in files.items()
                ]
                return 200, {}, json.dumps(tree).encode()
            name = path.removeprefix(f"/{repo}/resolve/{COMMIT}/")
            if name in files:
                etag = hashlib.sha1(files[name]).hexdigest()
                return 200, {"ETag": f'"{etag}"', "X-Repo-Commit": COMMIT}, files[name]
        return 404, {"X-Error-Code": "RepoNotFound"}, b""


def handler(site: Site) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            site.asked.append(path)
            status, headers, body = site.answer(path)
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        do_HEAD = do_GET  # noqa: N815

        def log_message(self, *_: object) -> None: ...

    return Handler


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("ELMO_OFFLINE", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setenv("ELMO_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site()
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler(site))
    site.root = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield site
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def hub(site: Site, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Site:
    """The server as the Hub: the client reads its endpoint once, at import, so its constants are what to change."""
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "ENDPOINT", site.root)
    files = site.root + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", files)
    file_download = pytest.importorskip("huggingface_hub.file_download")  # its older versions have a copy
    monkeypatch.setattr(file_download, "HUGGINGFACE_CO_URL_TEMPLATE", files, raising=False)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setenv("HF_TOKEN", "")
    site.hub["lab/elmo-tiny"] = dict(HUB_MODEL)
    return site


def forbid_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(*_: object) -> None:
        pytest.fail("a connection was opened")  # no Exception, so that nothing on the way can catch it

    monkeypatch.setattr(socket.socket, "connect", connect)
    monkeypatch.setattr(socket, "getaddrinfo", connect)


def hub_refusal(repo_id: str, revision: str | None = None) -> str:
    with pytest.raises(WeightsError) as caught:
        fetch_hub(repo_id, revision)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# The table


def test_the_addresses_are_those_of_the_authors_page() -> None:
    small, medium = "2x1024_128_2048cnn_1xhighway", "2x2048_256_2048cnn_1xhighway"
    original, large = "2x4096_512_2048cnn_2xhighway", "2x4096_512_2048cnn_2xhighway_5.5B"
    stems = {"small": small, "medium": medium, "original": original, "original-5.5b": large}
    expected = {
        name: (f"{SITE}{stem}/elmo_{stem}_options.json", f"{SITE}{stem}/elmo_{stem}_weights.hdf5")
        for name, stem in stems.items()
    } | {
        "pubmed": (
            f"{SITE}contributed/pubmed/elmo_{original}_options.json",
            f"{SITE}contributed/pubmed/elmo_{original}_weights_PubMed_only.hdf5",
        ),
        "portuguese": (
            f"{SITE}contributed/pt/wikipedia/options.json",
            f"{SITE}contributed/pt/wikipedia/elmo_pt_weights.hdf5",
        ),
        "portuguese-brwac": (
            f"{SITE}contributed/pt/brwac/options.json",
            f"{SITE}contributed/pt/brwac/elmo_pt_weights_dgx1.hdf5",
        ),
    }
    assert {name: (model.options_url, model.weights_url) for name, model in PUBLISHED.items()} == expected
    assert all(model.name == name for name, model in PUBLISHED.items())


# fetch


def put_small_on(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.files = {"/o.json": b"{}", "/w.hdf5": b"weights" * 1000}
    model = replace(PUBLISHED["small"], options_url=f"{site.root}/o.json", weights_url=f"{site.root}/w.hdf5")
    monkeypatch.setitem(published.PUBLISHED, "small", model)


def test_fetch_downloads_once_into_the_cache(site: Site, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    put_small_on(site, monkeypatch)
    heard: list[tuple[int, int | None]] = []
    options, weights = fetch("small", progress=lambda done, total: heard.append((done, total)))
    folder = tmp_path / "cache" / "published" / "small"
    assert (options, weights) == (folder / "options.json", folder / "weights.hdf5")
    assert options.read_bytes() == b"{}" and weights.read_bytes() == b"weights" * 1000
    assert heard == [(0, 7000), (7000, 7000)]
    monkeypatch.setenv("ELMO_OFFLINE", "1")
    forbid_network(monkeypatch)
    assert fetch("small") == (options, weights)
    assert site.asked == ["/o.json", "/w.hdf5"]


@pytest.mark.parametrize("terminal", [True, False])
def test_fetch_shows_a_bar_on_a_terminal_alone(
    terminal: bool, site: Site, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    put_small_on(site, monkeypatch)
    monkeypatch.setattr("rich.console.Console.is_terminal", terminal)
    fetch("small")
    shown = capsys.readouterr()
    assert shown.out == ""
    assert ("small" in shown.err and "bytes" in shown.err) == terminal


def test_fetch_refuses_weights_that_changed(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    put_small_on(site, monkeypatch)
    _, weights = fetch("small")
    weights.write_bytes(b"others")
    with pytest.raises(WeightsError, match=r"weights\.hdf5: changed since it was first downloaded"):
        fetch("small")


def test_fetch_says_where_to_put_what_is_gone(site: Site, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    put_small_on(site, monkeypatch)
    del site.files["/w.hdf5"]
    with pytest.raises(WeightsError) as caught:
        fetch("small")
    assert str(caught.value) == (
        f"{site.root}/w.hdf5: the server answered 404 Not Found; try again later, or put the file by hand at "
        f"{tmp_path / 'cache' / 'published' / 'small' / 'weights.hdf5'}"
    )


@pytest.mark.parametrize("there", [[], ["options.json"], ["weights.hdf5"]])
def test_offline_names_both_addresses_and_places(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, there: list[str]
) -> None:
    folder = tmp_path / "cache" / "published" / "medium"
    folder.mkdir(parents=True)
    for name in there:
        (folder / name).write_text("{}")
    monkeypatch.setenv("ELMO_OFFLINE", "1")
    forbid_network(monkeypatch)
    stem = f"{SITE}2x2048_256_2048cnn_1xhighway/elmo_2x2048_256_2048cnn_1xhighway"
    with pytest.raises(WeightsError) as caught:
        fetch("medium")
    assert str(caught.value) == (
        "medium: not in the cache, and ELMO_OFFLINE or HF_HUB_OFFLINE forbids downloading it; unset them, or put"
        f" {stem}_options.json as options.json and {stem}_weights.hdf5 as weights.hdf5 into the folder {folder}"
    )


def test_offline_takes_files_put_by_hand(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = tmp_path / "cache" / "published" / "medium"
    folder.mkdir(parents=True)
    (folder / "options.json").write_text("{}")
    (folder / "weights.hdf5").write_text("weights")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    forbid_network(monkeypatch)
    assert fetch("medium") == (folder / "options.json", folder / "weights.hdf5")


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("smal", " Did you mean 'small'?"),
        ("PUBMED", " Did you mean 'pubmed'?"),
        ("Original 5.5B", " Did you mean 'original-5.5b'?"),
        ("zzz", ""),
    ],
)
def test_unknown_name(name: str, meant: str) -> None:
    with pytest.raises(WeightsError) as caught:
        fetch(name)
    assert str(caught.value) == (
        f"{name!r}: not the name of a published model.{meant} The names are"
        " small, medium, original, original-5.5b, pubmed, portuguese, portuguese-brwac"
    )


# The Hub


def test_hub_gives_the_model_and_never_the_pickle(hub: Site) -> None:
    folder = fetch_hub("lab/elmo-tiny")
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {
        name: HUB_MODEL[name] for name in ("options.json", "weights.hdf5", "README.md")
    }
    assert any(path.endswith("weights.hdf5") for path in hub.asked)
    assert not any(path.endswith((".bin", ".ckpt")) for path in hub.asked)


def test_hub_gives_every_shard_and_their_index(hub: Site) -> None:
    wanted = {
        *("config.json", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"),
        *("model.safetensors.index.json", "vocabulary.txt", "warm_state.safetensors", "README.md"),
    }
    others = {"pytorch_model-00001-of-00002.bin", "pytorch_model.bin.index.json"}
    hub.hub["owner/sharded"] = dict.fromkeys(wanted | others, b"some bytes")
    assert {path.name for path in fetch_hub("owner/sharded").iterdir()} == wanted


def test_hub_offline_serves_the_cache_without_a_connection(hub: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = fetch_hub("lab/elmo-tiny")
    asked = len(hub.asked)
    monkeypatch.setenv("ELMO_OFFLINE", "1")
    forbid_network(monkeypatch)
    assert fetch_hub("lab/elmo-tiny") == folder
    assert len(hub.asked) == asked


def test_hub_offline_and_not_in_the_cache(hub: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ELMO_OFFLINE", "1")
    forbid_network(monkeypatch)
    assert hub_refusal("lab/elmo-tiny") == (
        "lab/elmo-tiny on the Hugging Face Hub: not completely in the cache, and ELMO_OFFLINE or HF_HUB_OFFLINE"
        " forbids downloading it; unset them"
    )


def test_hub_model_not_found(hub: Site) -> None:
    hub.hub["lab/none"] = "RepoNotFound"
    assert hub_refusal("lab/none") == (
        "lab/none on the Hugging Face Hub: no such model, or a private one; check the name, or set HF_TOKEN"
        " to a token that may read it"
    )


def test_hub_model_is_gated(hub: Site) -> None:
    hub.hub["lab/gated"] = "GatedRepo"
    assert hub_refusal("lab/gated") == (
        "lab/gated on the Hugging Face Hub: access is restricted; ask for it at https://huggingface.co/lab/gated,"
        " then set HF_TOKEN"
    )


def test_hub_revision_not_found(hub: Site) -> None:
    assert hub_refusal("lab/elmo-tiny", "v9") == (
        "lab/elmo-tiny on the Hugging Face Hub: has no revision 'v9'; name a branch, a tag or a commit of it"
    )


def test_hub_cannot_be_reached(hub: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    constants = pytest.importorskip("huggingface_hub.constants")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))  # bound, not listening
        monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{free.getsockname()[1]}")
        assert hub_refusal("lab/elmo-tiny") == (
            "lab/elmo-tiny on the Hugging Face Hub: cannot be reached and is not completely in the cache;"
            " check the connection and try again"
        )


def test_hub_model_with_pickles_only(hub: Site) -> None:
    hub.hub["lab/pickled"] = {"config.json": b"{}", "pytorch_model.bin": b"a pickle"}
    assert hub_refusal("lab/pickled") == (
        "lab/pickled on the Hugging Face Hub: has no *.safetensors and no *.hdf5 file;"
        " pickled weights are not read here, so it must be converted first"
    )


def test_a_hub_error_of_any_other_kind_is_one_line(hub: Site) -> None:
    assert hub_refusal("lab/two--dashes").startswith("lab/two--dashes on the Hugging Face Hub: HFValidationError: ")


@pytest.mark.parametrize("repo_id", ["small", "a/b/c", "../etc", "a/..", "/a", "a/", "a b/c", "https://a/b", "a/b\n"])
def test_hub_name_is_checked(repo_id: str) -> None:
    assert hub_refusal(repo_id) == (
        f"{repo_id!r}: not the name of a model on the Hugging Face Hub; one looks like owner/name"
    )


def test_hub_without_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ElmoError) as caught:
        fetch_hub("lab/elmo-tiny")
    assert str(caught.value) == (
        "lab/elmo-tiny: the Hugging Face Hub needs huggingface_hub: pip install 'elmo-torch[hub]'"
    )
