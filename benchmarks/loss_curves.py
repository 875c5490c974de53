"""Losses of the same training steps on real text, with the kernels and with the reference implementation.

    python benchmarks/loss_curves.py CORPUS [--preset small] [--batch 512] [--steps 200] [--figure curves.png]

Every run reads the same windows, draws the same negatives and starts from the same weights. Dropout is random, so the
reference runs with two seeds of its dropout: the difference between these two is the noise.
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np
import numpy.typing as npt

from elmo.pretrain import loop
from elmo.pretrain.config import PretrainConfig
from elmo.pretrain.corpus import Corpus
from elmo.pretrain.loop import Training

RUNS = {
    "reference, float32": (["kernels=reference"], 3),
    "reference, float32, other dropout": (["kernels=reference"], 1003),
    "kernels, float32": ([], 3),
    "kernels, bfloat16": (["precision=bfloat16"], 3),
}


def losses(corpus: Corpus, arguments: argparse.Namespace, changes: list[str], dropout: int) -> npt.NDArray[np.float64]:
    """Return the loss of every step, the mean of both directions."""
    recipe = [f"batch.size={arguments.batch}", f"steps={arguments.steps}", "evaluation.every=0", *arguments.set]
    loop.DROPOUT = dropout  # the sequence of random numbers for dropout
    found = []
    with tempfile.TemporaryDirectory() as folder:
        config = PretrainConfig.load(arguments.preset, None, [*recipe, *changes])
        training = Training(corpus, Path(folder) / "run", config)
        pinned = training.device.type == "cuda"
        for number, batch in enumerate(training.batches.from_step(0, arguments.steps, pinned)):
            found.append(training.step(number, batch, training.config.optimizer.learning_rate)[0].mean())
    return np.array([float(loss) for loss in found])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--preset", default="small")
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--set", nargs="*", default=[], help="changes to the recipe")
    parser.add_argument("--figure", type=Path)
    arguments = parser.parse_args()
    corpus = Corpus.open(arguments.corpus)
    curves = {name: losses(corpus, arguments, *run) for name, run in RUNS.items()}
    reference = next(iter(curves.values()))
    marks = [0, *range(arguments.steps // 4 - 1, arguments.steps, arguments.steps // 4)]
    print(f"{arguments.preset}, batch {arguments.batch}, {len(corpus.vocabulary):,} words")
    print("| loss at step | " + " | ".join(str(mark + 1) for mark in marks) + " | mean difference from the first |")
    print("|---" * (len(marks) + 2) + "|")
    for name, curve in curves.items():
        values = " | ".join(f"{curve[mark]:.4f}" for mark in marks)
        print(f"| {name} | {values} | {np.abs(curve - reference).mean():.4f} |")
    if arguments.figure:
        from matplotlib import pyplot

        figure, axes = pyplot.subplots(figsize=(7, 4))
        for name, curve in curves.items():
            axes.plot(np.arange(1, len(curve) + 1), curve, label=name, linewidth=1)
        axes.set_xlabel("step")
        axes.set_ylabel("sampled loss")
        axes.legend()
        figure.savefig(arguments.figure, dpi=120, bbox_inches="tight")


if __name__ == "__main__":
    main()
