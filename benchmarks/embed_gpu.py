"""Embedding speed on a GPU: tokens/s for batches of several sizes, float32 and bfloat16, and bfloat16's largest error.

    python benchmarks/embed_gpu.py TEXT [--sizes small original] [--batch-tokens 16384 65536 262144]

Weights are random. Every figure is the best of three passes over TEXT (one raw sentence per line), with all words in
the cache. All layers are copied to the CPU as float32; with "top" one layer, as float16.
"""

import argparse
import time
from pathlib import Path

import torch

from elmo.embed.embedder import Embedder
from elmo.model.bilm import BiLM, BiLMConfig
from elmo.text.tokens import words
from elmo.weights.folder import Pretrained


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path)
    parser.add_argument("--sizes", nargs="+", default=["small", "original"])
    parser.add_argument("--batch-tokens", nargs="+", type=int, default=[16384, 65536, 262144])
    parser.add_argument("--device", default="cuda")
    arguments = parser.parse_args()
    lines = arguments.text.read_text(encoding="utf-8").splitlines()
    sentences = [tokens for tokens in map(words, lines) if tokens]
    total = sum(map(len, sentences))
    print(f"{len(sentences):,} sentences, {total:,} tokens; torch {torch.__version__}")
    if arguments.device == "cuda":
        print(torch.cuda.get_device_name())
        torch.backends.cuda.matmul.allow_tf32 = False
    for size in arguments.sizes:
        torch.manual_seed(0)
        weights = BiLM(BiLMConfig.preset(size)).state_dict()
        reference = None
        for precision in ("float32", "bfloat16"):
            bilm = BiLM(BiLMConfig.preset(size))
            bilm.load_state_dict(weights)
            embedder = Embedder(Pretrained(bilm), device=arguments.device, precision=precision)
            some = list(embedder.embed(sentences[:500]))
            if reference is None:
                reference = some
            else:
                errors = [abs(a - b).max() for a, b in zip(reference, some, strict=True) if a.size]
                scale = max(abs(a).max() for a in reference if a.size)
                print(f"{size} {precision}: largest error {max(errors):.4f}, largest value {scale:.2f}")
            for layers, dtype in (("all", "float32"), ("top", "float16")):
                for budget in arguments.batch_tokens:
                    best = 0.0
                    for _ in range(3):
                        if arguments.device == "cuda":
                            torch.cuda.reset_peak_memory_stats()
                        start = time.perf_counter()
                        for _ in embedder.embed(sentences, layers, dtype=dtype, batch_tokens=budget):
                            pass
                        best = max(best, total / (time.perf_counter() - start))
                    peak = torch.cuda.max_memory_allocated() / 2**30 if arguments.device == "cuda" else 0.0
                    what = f"{size} {precision} {layers} {dtype} batch_tokens={budget}"
                    print(f"{what}: {best:,.0f} tokens/s, {peak:.1f} GiB", flush=True)


if __name__ == "__main__":
    main()
