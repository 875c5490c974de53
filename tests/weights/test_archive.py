"""Archives of other people: the NLPL repository's zips, tars, AllenNLP's model.tar.gz; and what is refused in them."""

import gzip
import io
import json
import lzma
import re
import tarfile
import threading
import zipfile
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

import elmo
from elmo.errors import WeightsError
from elmo.weights import archive, published, source
from many_langs_reference import folder_of
from models import assert_same_datasets, datasets, write_published
from models import published as files_of
from weights.test_tf_checkpoint import WORDS, run_of

OPTIONS, WEIGHTS = files_of("as published")
BILM = "model.text_field_embedder.token_embedders.elmo"


def tar_of(path: Path, files: dict[str, bytes]) -> Path:
    with tarfile.open(path, {".gz": "w:gz", ".xz": "w:xz"}.get(path.suffix, "w")) as tar:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return path


def zip_of(path: Path, folder: Path, inside: str = "") -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for one in sorted(folder.iterdir()):
            file.write(one, inside + one.name)
    return path


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def assert_is_published(path: Path, tmp_path: Path) -> None:
    from elmo.weights import bilm_tf

    bilm_tf.write(source.read(path).bilm, tmp_path / "again.json", tmp_path / "again.hdf5")
    assert_same_datasets(datasets(tmp_path / "again.hdf5"), WEIGHTS)


# What is read

def test_a_zip_of_the_nlpl_repository(tmp_path: Path) -> None:
    folder = tmp_path / "files"
    write_published(folder, OPTIONS, WEIGHTS)
    (folder / "weights.hdf5").rename(folder / "model.hdf5")
    (folder / "meta.json").write_text('{"id": 212}')
    (folder / "vocab.txt").write_text("<S>\n</S>\n<UNK>\n")
    (folder / "README").write_text("…")
    assert_is_published(zip_of(tmp_path / "212.zip", folder), tmp_path)


@pytest.mark.parametrize("inside", ["", "144/"])
def test_a_zip_of_many_langs(inside: str, tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "files")
    (folder / "sizes.json").rename(folder / "cnn_small.json")
    (folder / "config.json").write_text(json.dumps({"config_path": "/home/x/cnn_small.json"}))
    (folder / "classifier.pkl").write_bytes(b"\x80\x02 not read")
    path = zip_of(tmp_path / "144.zip", folder, inside)
    tar = tar_of(tmp_path / "zhs.model.tar.xz", contents(folder))
    expected = elmo.load(folder, device="cpu").fingerprint()
    assert elmo.load(path, device="cpu").fingerprint() == expected
    assert elmo.load(tar, device="cpu").fingerprint() == expected


def test_a_zip_of_a_training_run(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run")
    (run / "vocab-2016.txt").write_text("\n".join(WORDS) + "\n")
    model = source.read(zip_of(tmp_path / "run.zip", run, "elmo/"), softmax=True)
    assert model.bilm.softmax is not None
    assert model.vocabulary is not None and model.vocabulary.words == WORDS


@pytest.mark.parametrize("name", ["model.tar.gz", "model.tar.xz", "model.tar"])
def test_the_bilm_in_an_archive_of_allennlp(name: str, tmp_path: Path) -> None:
    options, weights = write_published(tmp_path / "files", OPTIONS, WEIGHTS)
    path = tar_of(
        tmp_path / name,
        {
            "config.json": b'{"model": {"type": "crf_tagger"}}',
            "weights.th": b"\x80\x02 not read",
            "vocabulary/tokens.txt": b"the\n",
            "files_to_archive.json": b"{}",
            f"fta/{BILM}.options_file": options.read_bytes(),
            f"fta/{BILM}.weight_file": weights.read_bytes(),
        },
    )
    assert_is_published(path, tmp_path)


# Names

@pytest.mark.parametrize(
    ("name", "url"),
    [
        ("seqvec", "https://rostlab.org/~deepppi/seqvec.zip"),
        ("nlpl:11/144", "http://vectors.nlpl.eu/repository/11/144.zip"),
        ("nlpl:20/212", "http://vectors.nlpl.eu/repository/20/212.zip"),
        ("nlpl:11/../x", None),
        ("nlpl:11", None),
        ("english", None),
    ],
)
def test_the_address_of_a_name(name: str, url: str | None) -> None:
    assert published.archive_url(name) == url


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *arguments: object) -> None:
        pass


def test_a_name_is_downloaded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_published(tmp_path / "uniref50_v2", OPTIONS, WEIGHTS)
    path = zip_of(tmp_path / "seqvec.zip", tmp_path / "uniref50_v2", "uniref50_v2/")
    monkeypatch.setenv("ELMO_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("ELMO_OFFLINE", "1")
    with pytest.raises(WeightsError, match=r"seqvec: not in the cache.*put https://rostlab.*/seqvec/model\.zip$"):
        source.read("seqvec")
    with pytest.raises(WeightsError, match=r"nlpl:11/144: not in the cache.*published/nlpl-11-144/model\.zip$"):
        source.read("nlpl:11/144")
    monkeypatch.delenv("ELMO_OFFLINE")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=tmp_path))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setitem(published.ARCHIVES, "seqvec", f"http://127.0.0.1:{server.server_port}/seqvec.zip")
    assert_is_published(source.locate("seqvec"), tmp_path)
    server.shutdown()
    server.server_close()
    path.unlink()
    model = elmo.load("seqvec", device="cpu")  # from the cache
    residues = list("MKTAYIAKQR" * 300)  # one residue a token, thousands of them
    assert next(model.embed([residues])).shape == (3, 3000, 2 * OPTIONS["lstm"]["projection_dim"])


# What is refused

def refusal(path: Path) -> str:
    with pytest.raises(WeightsError) as error:
        source.read(path)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_an_archive_of_allennlp_without_the_files(tmp_path: Path) -> None:
    path = tar_of(tmp_path / "model.tar.gz", {"config.json": b"{}", "weights.th": b""})
    assert re.search(r"without the files of a biLM \(fta/….weight_file\); load those", refusal(path))


def test_two_bilms_in_one_archive(tmp_path: Path) -> None:
    files = {"weights.th": b"", "fta/a.weight_file": b"x", "fta/b.weight_file": b"x"}
    assert "contains more than one weights.hdf5" in refusal(tar_of(tmp_path / "model.tar.gz", files))


def test_members_outside_of_the_folder_are_written_inside_of_it(tmp_path: Path) -> None:
    options, weights = write_published(tmp_path / "files", OPTIONS, WEIGHTS)
    target = tmp_path / "a" / "b"
    target.mkdir(parents=True)
    names = {"../../../options.json": options.read_bytes(), str(tmp_path / "weights.hdf5"): weights.read_bytes()}
    assert_is_published(tar_of(target / "model.tar.gz", names), tmp_path)
    assert not (tmp_path / "options.json").exists() and not (tmp_path / "weights.hdf5").exists()


def test_links_are_not_followed(tmp_path: Path) -> None:
    secret = tmp_path / "secret.json"
    secret.write_text(json.dumps(OPTIONS))
    path = tmp_path / "model.tar"
    with tarfile.open(path, "w") as tar:
        for name, target in (("options.json", str(secret)), ("weights.hdf5", "/dev/zero")):
            member = tarfile.TarInfo(name)
            member.type, member.linkname = tarfile.SYMTYPE, target
            tar.addfile(member)
    assert "contains neither config.json nor an .hdf5 file" in refusal(path)


def test_a_bomb_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "UNSUSPICIOUS", 100_000)
    for name, kind in (("weights.hdf5", "gz"), ("not-wanted", "gz"), ("weights.hdf5", "xz")):
        path = tar_of(tmp_path / f"{kind}-{name}.tar.{kind}", {name: bytes(8_000_000)})
        assert path.stat().st_size < 12_000
        assert re.search(r"unpacks to more than [\d,]+ bytes; no model compresses so well", refusal(path))
    huge = tmp_path / "huge.tar.gz"
    member = tarfile.TarInfo("weights.hdf5")
    member.size = 1 << 40  # claimed only
    huge.write_bytes(gzip.compress(member.tobuf() + bytes(2000)))
    assert "has 1,099,511,627,776 bytes; expected at most" in refusal(huge)


def test_a_header_that_would_fill_the_memory(tmp_path: Path) -> None:
    member = tarfile.TarInfo("x")
    member.type, member.size = tarfile.XHDTYPE, 1 << 30
    path = tmp_path / "model.tar.gz"
    path.write_bytes(gzip.compress(member.tobuf(tarfile.USTAR_FORMAT) + bytes(2000)))
    assert "has a header of 1,073,741,824 bytes" in refusal(path)


@pytest.mark.parametrize("kind", ["gz", "xz"])
def test_a_damaged_tar(kind: str, tmp_path: Path) -> None:
    options, weights = write_published(tmp_path / "files", OPTIONS, WEIGHTS)
    files = {"options.json": options.read_bytes(), "weights.hdf5": weights.read_bytes()}
    path = tar_of(tmp_path / f"model.tar.{kind}", files)
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    for size in rng.integers(7, len(whole) - 20, size=12):
        path.write_bytes(whole[:size])
        assert "damaged" in refusal(path) or "cut short" in refusal(path)
    path.write_bytes(whole[:200] + bytes(len(whole) - 200))
    assert "damaged" in refusal(path)
    other = tmp_path / f"text.{kind}"
    other.write_bytes((gzip.compress if kind == "gz" else lzma.compress)(b"not a tar " * 100))
    assert "is damaged" in refusal(other)


def test_a_zip_with_a_file_without_a_name(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "model.zip", "w") as file:
        file.writestr("x", b"")
    data = (tmp_path / "model.zip").read_bytes()
    start = data.index(b"PK\x01\x02")
    nameless = bytearray(data[:start] + data[start:].replace(b"x", b"", 1))
    nameless[start + 28] = 0  # the length of the name in the directory, and then the size of the directory
    nameless[-10] -= 1
    (tmp_path / "model.zip").write_bytes(bytes(nameless))
    with pytest.raises(WeightsError, match=r"model.zip: it is damaged. Get the file again"), archive.unpacked(
        tmp_path / "model.zip"
    ):
        pass
