"""`elmo sif`, then `elmo embed --pool sif`: the vectors of `encode`."""

from pathlib import Path

from sacremoses import MosesTokenizer

import elmo as library
from embedders import LINES, assert_same_bits, elmo, read_arrays, write_model


def test_the_vectors_of_a_folder_with_statistics_are_those_of_encode(tmp_path: Path) -> None:
    text, model, output = tmp_path / "text.txt", write_model(tmp_path / "model"), tmp_path / "out.npz"
    text.write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    refused = elmo("embed", text, output, "-m", model, "--pool", "sif")
    assert (refused.code, output.exists()) == (2, False)
    assert "has no statistics for it; `elmo sif FOLDER TEXT` adds them to its folder" in refused.err
    tokens = sum(len(MosesTokenizer("en").tokenize(line, escape=False)) for line in LINES)
    made = elmo("sif", model, text, "--components", 2, "--layers", "top", "--words", 5, "--device", "cpu")
    assert (made.code, made.err) == (0, f"{model}: {tokens} tokens, 5 frequent words, 2 components\n")
    assert elmo("embed", text, output, "-m", model, "--pool", "sif", "--device", "cpu").code == 0
    loaded = library.load(model, device="cpu")
    assert loaded.sif is not None and loaded.sif.layers == (0.0, 0.0, 1.0)
    assert_same_bits(read_arrays(output)[0], list(loaded.encode(LINES, pooling="sif")))
