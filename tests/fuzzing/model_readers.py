"""The readers of models, with small valid files of each format."""

import gzip
import io
import json
import lzma
import struct
import tarfile
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import h5py
import numpy as np
import torch

import tf_writer
from elmo.embed.embedder import Embedder
from elmo.model.bilm import BiLM
from elmo.model.lstm import State
from elmo.model.scalar_mix import ScalarMix
from elmo.model.sentence_head import SentenceHead, SentenceHeadSize
from elmo.text.vocabulary import Vocabulary
from elmo.weights import archive, bilm_tf, folder, sentence_head, source, tensor_files
from elmo.weights.folder import Pretrained
from fuzzing.cases import Files, Link, Reader
from fuzzing.mutations import NUMBERS, changed_bytes, changed_json, changed_lines, changed_one
from many_langs_reference import folder_of
from numpy_reference import Options, random_weights

OPTIONS: Options = {
    "lstm": {"cell_clip": 3, "dim": 4, "n_layers": 1, "proj_clip": 3, "projection_dim": 3},
    "char_cnn": {
        "activation": "relu",
        "embedding": {"dim": 2},
        "filters": [[1, 2], [2, 2]],
        "max_characters_per_token": 10,
        "n_characters": 262,
        "n_highway": 1,
    },
}
WEIGHTS = random_weights(OPTIONS, np.random.default_rng(0))
WORDS = ["<S>", "</S>", "<UNK>", "the", "cat"]
SENTENCES = [["the", "cat", "naïve"], []]
LINKS = tuple(map(Link, ("/dev/zero", "/dev/null", "nowhere", "config.json", "model.safetensors", ".")))


def model_readers() -> list[Reader]:
    """Return the readers of model files."""
    published = {"options.json": json.dumps(OPTIONS).encode(), "weights.hdf5": _hdf5(WEIGHTS)}
    return [
        Reader("hdf5", (published, *_other_hdf5(published)), _changed_hdf5, source.read),
        Reader("options", (published,), _changed_options, _load),
        Reader("safetensors folder", tuple(_folders()), changed_folder, _load),
        Reader("sentence head", (contents(_write_head),), changed_folder, _encode),
        Reader("archive", _archives(published), _changed_archive, _unpack),
        Reader("tensorflow checkpoint", (_checkpoint(),), _changed_checkpoint, partial(_load, softmax=True)),
        Reader("many langs", (contents(lambda path: folder_of(path, seed=0)),), _changed_many_langs, _load),
    ]


def _load(path: Path, softmax: bool = False) -> None:
    """Read a model as `elmo.load` does, and embed a sentence: sizes that only the options claim show up here."""
    model = source.read(path, softmax=softmax)
    list(Embedder(model, device="cpu").embed(SENTENCES))


def _unpack(path: Path) -> None:
    """Unpack an archive; all that comes out of it are files with the names of a model's."""
    with archive.unpacked(next(path.iterdir())) as place:
        inside = {file.name for file in place.rglob("*") if file.is_symlink() or not file.is_file()}
        if place.is_dir() and inside:
            raise AssertionError(f"unpacked {inside}")


def contents(write: Callable[[Path], object]) -> Files:
    """Return the files that `write` writes into a folder."""
    with TemporaryDirectory() as temporary:
        path = Path(temporary) / "model"
        write(path)
        return {str(file.relative_to(path)): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()}


# Published files


def _hdf5(arrays: dict[str, Any], change: Callable[[h5py.File], object] | None = None, **settings: Any) -> bytes:
    """Return an HDF5 file; settings are those of a dataset, such as its compression."""
    data = io.BytesIO()
    with h5py.File(data, "w", libver=settings.pop("libver", None)) as file:
        for name, array in arrays.items():
            file.create_dataset(name, data=array, **settings)
        if change is not None:
            change(file)
    return data.getvalue()


def _other_hdf5(published: Files) -> list[Files]:
    """Return the same model in other valid HDF5 files: compressed, of the newest layout, in half precision."""
    half = {name: array.astype(np.float16) for name, array in WEIGHTS.items()}
    files = (_hdf5(WEIGHTS, compression="gzip", shuffle=True), _hdf5(WEIGHTS, libver="latest"), _hdf5(half))
    return [{**published, "weights.hdf5": data} for data in files]


def _changed_hdf5(rng: Random, files: Files) -> Files:
    if rng.random() < 0.85:
        return {**files, "weights.hdf5": changed_bytes(rng, files["weights.hdf5"])}
    name = rng.choice(list(WEIGHTS))
    arrays = {key: array for key, array in WEIGHTS.items() if key != name}
    kind = rng.randrange(9)
    if kind == 0:  # claims of a shape whose values were never written, in the options and in the file
        huge = rng.choice((10**4, 10**6, 10**9, 2**40))
        options = json.loads(files["options.json"])
        options["lstm"]["dim"] = huge
        cell = bilm_tf.cell_name(0, 0)
        chunks = rng.choice((None, (1, 1)))
        return {
            "options.json": json.dumps(options).encode(),
            "weights.hdf5": _hdf5(
                {key: array for key, array in WEIGHTS.items() if not key.startswith(cell)},
                lambda file: file.create_dataset(f"{cell}/W_0", (6, 4 * huge), "f4", chunks=chunks),
            ),
        }
    changes: list[Callable[[h5py.File], object]] = [
        lambda file: file.update({name: h5py.ExternalLink("/dev/zero", "/x")}),
        lambda file: file.update({name: h5py.ExternalLink("weights.hdf5", name)}),
        lambda file: file.update({name: h5py.SoftLink(name)}),
        lambda file: file.create_dataset(name, WEIGHTS[name].shape, "f4", external=[("options.json", 0, 10**4)]),
        lambda file: file.create_dataset(name, data="text"),
        lambda file: file.create_dataset(name, data=np.full(WEIGHTS[name].shape, np.nan)),
        lambda file: file.create_dataset(name, WEIGHTS[name].shape, rng.choice(("i1", "c8", "S3", "f8", "u8", "?"))),
        lambda file: file.create_dataset(name, data=h5py.Empty("f4")),
    ]
    return {**files, "weights.hdf5": _hdf5(arrays, changes[kind - 1])}


def _changed_options(rng: Random, files: Files) -> Files:
    return {**files, "options.json": changed_json(rng, files["options.json"])}


# Our folders


def _folders() -> list[Files]:
    model = small_model()
    sharded = contents(lambda path: _write_sharded(path, model.bilm))
    dtypes = (None, torch.float16, torch.int8)
    return [*(contents(partial(folder.write, model, dtype=dtype)) for dtype in dtypes), sharded]


def small_model() -> Pretrained:
    """Return the model of the published files, with a vocabulary and a state."""
    with TemporaryDirectory() as temporary:
        paths = Path(temporary) / "options.json", Path(temporary) / "weights.hdf5"
        paths[0].write_text(json.dumps(OPTIONS))
        paths[1].write_bytes(_hdf5(WEIGHTS))
        bilm = bilm_tf.read(*paths)
    state = State(*(torch.ones(part.shape) for part in bilm.zero_state(1)))
    return Pretrained(bilm, Vocabulary(WORDS), state)


def _write_head(path: Path) -> None:
    """Write what `encode` reads of a trained task `sentences`."""
    torch.manual_seed(0)
    parts = {
        "inputs.mix_input.": ScalarMix(3, layer_norm="token"),
        "head.": SentenceHead(SentenceHeadSize(6, hidden=2, dim=4)),
    }
    state = {f"{prefix}{name}": x for prefix, part in parts.items() for name, x in part.state_dict().items()}
    config = {"hidden": 2, "dim": 4, "inputs": {"elmo": {"mix": "learned", "layer_norm": "token"}}}
    elmo = {"name": "tiny", "fingerprint": "f"}
    path.mkdir()
    record = {"model_type": "elmo-task", "task": "sentences", "config": config, "elmo": elmo}
    (path / "config.json").write_text(json.dumps(record))
    tensor_files.write_tensors(path / "model.safetensors", state)


def _encode(path: Path) -> None:
    sentence_head.read(path, 3, 6, "f").encode(torch.ones(3, 2, 6))


def _write_sharded(path: Path, bilm: BiLM) -> None:
    path.mkdir()
    folder.fill(path, Pretrained(bilm))
    (path / folder.WEIGHTS).unlink()
    tensor_files.write_tensors(path / folder.WEIGHTS, folder.stored(bilm, torch.int8), max_bytes=1500)


def changed_folder(rng: Random, files: Files) -> Files:
    """Change a file of a model folder, or of a trained task; leave one out now and then."""
    def change(rng: Random, name: str, data: bytes) -> Any:
        if rng.random() < 0.03:
            return rng.choice(LINKS)
        if name.endswith(".json"):
            return changed_json(rng, data)
        if name.endswith(".txt"):
            return changed_lines(rng, data)
        return changed_bytes(rng, data) if rng.random() < 0.4 else _changed_header(rng, data)

    if rng.random() < 0.05:
        gone = rng.choice(list(files))
        files = {name: data for name, data in files.items() if name != gone}
    return changed_one(rng, files, change)


def _changed_header(rng: Random, data: bytes) -> bytes:
    """Change the JSON header of a safetensors file, and adjust its length."""
    if len(data) < 8:  # cut off before
        return changed_bytes(rng, data)
    (size,) = struct.unpack("<Q", data[:8])
    header = changed_json(rng, data[8 : 8 + size])
    claimed = rng.choice(NUMBERS) if rng.random() < 0.02 else len(header)
    return struct.pack("<Q", claimed) + header + data[8 + size :]


# Archives


def _archives(published: Files) -> tuple[Files, ...]:
    plain = _tar(published)
    return (
        {"model.zip": _zip(published)},
        {"model.tar": plain},
        {"model.tar.gz": gzip.compress(plain, mtime=0)},
        {"model.tar.xz": lzma.compress(plain)},
    )


NAMES = ("../{}", "../../{}", "/{}", "a/b/{}", "..\\{}", "C:\\{}", "./{}", "{}/", "{}\0x", "._{}", "{}\n", "{}" * 200)


def _zip(files: Files, rng: Random | None = None) -> bytes:
    result = io.BytesIO()
    with zipfile.ZipFile(result, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, data in files.items():
            member = zipfile.ZipInfo(_renamed(rng, name))
            member.compress_type = zipfile.ZIP_DEFLATED
            if rng is not None and rng.random() < 0.1:
                member.external_attr = 0o120777 << 16  # a symbolic link
                data = b"/etc/passwd"
            packed.writestr(member, data)
            if rng is not None and rng.random() < 0.05:
                packed.writestr(zipfile.ZipInfo(name), data)  # a second time
        if rng is not None and rng.random() < 0.01:
            packed.writestr("vocabulary.txt", bytes(100 << 20), zipfile.ZIP_DEFLATED)  # a bomb
    return result.getvalue()


def _tar(files: Files, rng: Random | None = None) -> bytes:
    result = io.BytesIO()
    kinds = (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.GNUTYPE_SPARSE)
    with tarfile.open(fileobj=result, mode="w", format=rng.randrange(3) if rng else tarfile.PAX_FORMAT) as packed:
        for name, data in files.items():
            member = tarfile.TarInfo(_renamed(rng, name))
            member.size = len(data)
            if rng is not None and rng.random() < 0.1:
                member.type, member.linkname, member.size = rng.choice(kinds), "/etc/passwd", 0
            if rng is not None and rng.random() < 0.05:
                member.pax_headers = {rng.choice(("size", "path", "GNU.sparse.size", "GNU.sparse.map")): "9" * 15}
            packed.addfile(member, io.BytesIO(data))
    return result.getvalue()


def _renamed(rng: Random | None, name: str) -> str:
    return rng.choice(NAMES).format(*[name] * 200) if rng is not None and rng.random() < 0.15 else name


def _changed_archive(rng: Random, files: Files) -> Files:
    name, data = next(iter(files.items()))
    if rng.random() < 0.5:
        return {name: changed_bytes(rng, data)}
    published = {"options.json": json.dumps(OPTIONS).encode(), "weights.hdf5": _HDF5}
    try:
        changed = (_zip if name.endswith(".zip") else _tar)(published, rng)
    except (ValueError, OverflowError, UnicodeError):  # a name that the format cannot have
        return {name: changed_bytes(rng, data)}
    if rng.random() < 0.3:
        changed = changed_bytes(rng, changed)
    if name.endswith(".tar.gz"):
        changed = gzip.compress(changed, 1, mtime=0) if rng.random() < 0.98 else gzip.compress(bytes(100 << 20), 1)
    elif name.endswith(".tar.xz"):
        changed = lzma.compress(changed, preset=0)
    return {name: changed}


_HDF5 = _hdf5(WEIGHTS)


# TensorFlow's checkpoints


def _checkpoint() -> Files:
    def write(path: Path) -> None:
        softmax = {"softmax/W": np.ones((5, 3), np.float32), "softmax/b": np.ones(5, np.float32)}
        arrays = {f"lm/{name}": array for name, array in (WEIGHTS | softmax).items()}
        whole = [(slice(0, 100), slice(None)), (slice(100, 261), slice(None))]
        tf_writer.write_checkpoint(path / "model.ckpt-1", arrays, shards=2, parts={"lm/char_embed": whole})
        (path / "options.json").write_text(json.dumps(OPTIONS | {"n_tokens_vocab": 5}))
        (path / "vocabulary.txt").write_text("\n".join(WORDS))
        (path / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-1"\n')

    return contents(write)


def _changed_checkpoint(rng: Random, files: Files) -> Files:
    index = "model.ckpt-1.index"
    kind = rng.randrange(10)
    if kind < 2:
        return changed_one(rng, files, lambda rng, name, data: changed_bytes(rng, data))
    if kind == 2:
        return changed_one(rng, files, lambda rng, _, data: changed_json(rng, data), ["options.json"])
    if kind == 3:
        return changed_one(rng, files, lambda rng, _, data: changed_lines(rng, data), ["vocabulary.txt", "checkpoint"])
    # The checksums of the table are right, so that what they protect is read.
    from elmo.weights.tf_table import entries

    pairs = list(entries(files[index]))
    for _ in range(rng.choice((1, 1, 2))):
        at = rng.randrange(len(pairs))
        key, value = pairs[at]
        what = rng.randrange(6)
        if what == 0:
            pairs[at] = changed_bytes(rng, key), value
        elif what == 1:
            pairs[at] = key, rng.choice(pairs)[1]
        elif what == 2:
            del pairs[at]
        else:
            pairs[at] = key, changed_bytes(rng, value)
    block = tf_writer.block(pairs)
    if rng.random() < 0.2:
        block = changed_bytes(rng, block)
    return {**files, index: tf_writer.table([block], [b"\xff"], snappy=rng.random() < 0.3)}


# ELMoForManyLangs


def _changed_many_langs(rng: Random, files: Files) -> Files:
    def change(rng: Random, name: str, data: bytes) -> Any:
        if rng.random() < 0.02:
            return rng.choice(LINKS)
        if name.endswith(".json"):
            return changed_json(rng, data)
        if name.endswith(".dic"):
            return changed_lines(rng, data)
        return changed_bytes(rng, data) if rng.random() < 0.5 else _changed_pickle(rng, data)

    return changed_one(rng, files, change)


def _changed_pickle(rng: Random, data: bytes) -> bytes:
    """Change the pickle in a file of torch.save, whose checksums are then right."""
    result = io.BytesIO()
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as before, zipfile.ZipFile(result, "w") as after:
            for member in before.infolist():
                content = before.read(member)
                if member.filename.endswith("data.pkl") or rng.random() < 0.02:
                    content = changed_bytes(rng, content)
                after.writestr(member, content)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, ValueError, EOFError):  # damaged before
        return changed_bytes(rng, data)
    return result.getvalue()
