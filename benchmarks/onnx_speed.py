"""Speed of an exported model in onnxruntime, beside our own, on a CPU.

    python benchmarks/onnx_speed.py TEXT [--presets small original] [--threads 1] [--rounds 3] [--tokens 4000]

Both get the same: the token encoder the distinct words of the text, the LSTMs sentences of similar length, in batches
of 1, 8, 32 and 128. Weights are random. Median of the rounds, in each of which both run one after the other;
and the largest difference between the two.
"""

import argparse
import random
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnxruntime
import torch
from embed_speed import sentences_of, timed

from elmo.embed.embedder import Embedder
from elmo.integrations.onnx import export_onnx
from elmo.model.bilm import BiLM, BiLMConfig
from elmo.model.packing import Packing
from elmo.text.characters import word_ids
from elmo.weights.folder import Pretrained

Array = npt.NDArray[np.float32]


def session(path: Path, threads: int) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    return onnxruntime.InferenceSession(path, options)


def compare(preset: str, sentences: list[list[str]], arguments: argparse.Namespace) -> None:
    torch.manual_seed(0)
    embedder = Embedder(Pretrained(BiLM(BiLMConfig.preset(preset))), cache_bytes=0)
    with tempfile.TemporaryDirectory() as folder:
        files = export_onnx(embedder.bilm, Path(folder) / "exported")
        encoder, lstms = (session(path, arguments.threads) for path in files)
    words = list(dict.fromkeys(word for sentence in sentences for word in sentence))
    ids = word_ids(words, 50)
    print(f"{preset}: {len(words):,} distinct words, {arguments.threads} thread(s)")
    vectors = embedder.token_vectors(words)
    apart = np.abs(encoder.run(None, {"ids": ids})[0] - vectors).max()
    rounds = []
    for _ in range(arguments.rounds):
        ours = timed(lambda: embedder.token_vectors(words))
        theirs = timed(lambda: encoder.run(None, {"ids": ids}))
        rounds.append((len(words) / ours, len(words) / theirs))
    report("token encoder, words/s", rounds, apart)
    row = {word: k for k, word in enumerate(words)}
    for size in (1, 8, 32, 128):
        batches = batches_of(
            [vectors[[row[word] for word in sentence]] for sentence in sentences], size, arguments.tokens
        )
        both = [run_both(embedder.bilm, lstms, batches) for _ in range(arguments.rounds)]
        report(f"LSTMs, batch {size}, tokens/s", [speeds for speeds, _ in both], max(apart for _, apart in both))


def batches_of(sentences: list[Array], size: int, tokens: int) -> list[list[Array]]:
    """Batches of sentences of similar length, about so many tokens of them, drawn from all lengths."""
    ordered = sorted(sentences, key=len)
    batches = [ordered[k : k + size] for k in range(0, len(ordered), size)]
    random.Random(0).shuffle(batches)
    counts = np.cumsum([sum(map(len, batch)) for batch in batches])
    return batches[: int(np.searchsorted(counts, tokens)) + 1]


def run_both(
    bilm: BiLM, lstms: onnxruntime.InferenceSession, batches: list[list[Array]]
) -> tuple[tuple[float, float], float]:
    """Return the tokens/s of both, and how far their layers are apart."""
    ours = theirs = apart = 0.0
    for batch in batches:
        lengths = np.array([len(sentence) for sentence in batch])
        padded = np.zeros((len(batch), lengths.max(), batch[0].shape[1]), dtype=np.float32)
        for place, sentence in zip(padded, batch, strict=True):
            place[: len(sentence)] = sentence
        packing = Packing.of(lengths.tolist())
        packed = torch.from_numpy(padded[packing.sentence, packing.step])
        start = time.perf_counter()
        with torch.inference_mode():
            layers, _ = bilm.contextualize(packed, packing)
        between = time.perf_counter()
        (exported,) = lstms.run(None, {"tokens": padded, "lengths": lengths})
        ours, theirs = ours + between - start, theirs + time.perf_counter() - between
        apart = max(apart, float(np.abs(np.stack(layers) - exported[:, packing.sentence, packing.step]).max()))
    n_tokens = sum(len(sentence) for batch in batches for sentence in batch)
    return (n_tokens / ours, n_tokens / theirs), apart


def report(what: str, rounds: list[tuple[float, float]], apart: float) -> None:
    ours, theirs = (statistics.median(values) for values in zip(*rounds, strict=True))
    every = " ".join(f"{a:,.0f}/{b:,.0f}" for a, b in rounds)
    print(f"  {what}: ours {ours:,.0f}, onnxruntime {theirs:,.0f} ({theirs / ours:.2f} ×; {every}); apart {apart:.0e}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path)
    parser.add_argument("--presets", nargs="+", default=["small", "original"])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=4000)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    sentences = sentences_of(arguments.text, 1000)
    print(f"onnxruntime {onnxruntime.__version__}, torch {torch.__version__}")
    for preset in arguments.presets:
        compare(preset, sentences, arguments)


if __name__ == "__main__":
    main()
