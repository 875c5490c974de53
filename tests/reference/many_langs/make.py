"""Write the models and arrays in this folder with ELMoForManyLangs 0.0.4.post2 (PyPI): python make.py FOLDER

    both/, words/, characters/    models with random weights: with both tables, and with one of them
    MODEL/expected.hdf5           fresh/SENTENCE and carried/CALL/SENTENCE: all layers of SENTENCES, by a new program
                                  and by one that has seen them CALL times before
"""

import json
import sys
from pathlib import Path

import h5py
import torch
from elmoformanylangs import Embedder
from elmoformanylangs.frontend import Model
from elmoformanylangs.modules.embedding_layer import EmbeddingLayer

MARKS = ["<oov>", "<pad>", "<bos>", "<eos>"]
WORDS = [*MARKS, "the", "cat", "日本", "語" * 48, "x y", "naïve"]
CHARACTERS = ["t", "<pad>", "h", "<eow>", "<bos>", "e", "<oov>", "c", "a", "<bow>", "語", "日", "<eos>", "\u3000", "🙂"]
SENTENCES = [  # longest first: the order in which it computes a batch
    ["the", "cat", "sat", "on", "日本", "."],
    ["語" * 60, "x y", "the\u3000cat", "🙂", "<bos>"],
    ["a", "<eos>", "the", ""],
    ["naïve"],
]


def write(folder: Path, word_dim: int, char_dim: int, activation: str) -> None:
    folder.mkdir(parents=True)
    torch.manual_seed(word_dim + char_dim)
    sizes = {
        "encoder": {"name": "elmo", "projection_dim": 4, "cell_clip": 3, "proj_clip": 0.4, "dim": 9, "n_layers": 2},
        "token_embedder": {
            "name": "cnn",
            "activation": activation,
            "filters": [[1, 3], [3, 4]],
            "n_highway": 2,
            "word_dim": word_dim,
            "char_dim": char_dim,
            "max_characters_per_token": 50,
        },
        "dropout": 0.1,
    }
    (folder / "sizes.json").write_text(json.dumps(sizes) + "\n")
    (folder / "config.json").write_text(json.dumps({"config_path": "/home/someone/configs/sizes.json"}) + "\n")
    layers = []
    for name, entries, dim in (("word.dic", WORDS, word_dim), ("char.dic", CHARACTERS, char_dim)):
        rows = {entry: k for k, entry in enumerate(entries)}
        layers.append(EmbeddingLayer(dim, rows, fix_emb=False) if dim else None)
        if dim:
            (folder / name).write_text("".join(f"{entry}\t{k}\n" for entry, k in rows.items()), encoding="utf-8")
    model = Model(sizes, *layers)
    for parameter in model.parameters():
        parameter.data.normal_(0.0, 0.5)
    # The published files are in the older of PyTorch's two formats.
    for name, part in (("token_embedder.pkl", model.token_embedder), ("encoder.pkl", model.encoder)):
        torch.save(part.state_dict(), folder / name, _use_new_zipfile_serialization=False)
    with h5py.File(folder / "expected.hdf5", "w") as file:
        for k, array in enumerate(Embedder(str(folder)).sents2elmo(SENTENCES, output_layer=-2)):
            file[f"fresh/{k}"] = array
        program = Embedder(str(folder))
        for call in range(3):
            for k, array in enumerate(program.sents2elmo(SENTENCES, output_layer=-2)):
                file[f"carried/{call}/{k}"] = array


if __name__ == "__main__":
    write(Path(sys.argv[1]) / "both", 3, 5, "relu")
    write(Path(sys.argv[1]) / "words", 3, 0, "relu")
    write(Path(sys.argv[1]) / "characters", 0, 5, "tanh")
