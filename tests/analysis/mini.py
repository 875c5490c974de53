"""A small biLM with a softmax, and the small datasets of `elmo reproduce --quick`."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from elmo.analysis.analysis import Workspace
from elmo.analysis.quick_data import write_data
from elmo.model.bilm import BiLM
from elmo.text.vocabulary import Vocabulary
from elmo.weights.folder import Pretrained, write
from embedders import pretrained

_FOLDER = TemporaryDirectory(prefix="mini-")  # removed when the tests end
WORDS = ["<S>", "</S>", "<UNK>", "the", "in", ".", "was", "Paris", "Anna", "river"]


@cache
def data(sentences: int = 30) -> Path:
    """The datasets, made once."""
    folder = Path(_FOLDER.name) / f"data-{sentences}"
    write_data(folder, sentences)
    return folder


@cache
def model() -> str:
    """A model folder of random weights, made once."""
    folder = Path(_FOLDER.name) / "model"
    vocabulary = Vocabulary(WORDS)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        bilm = BiLM(replace(pretrained().bilm.config, n_softmax=len(vocabulary)))
    write(Pretrained(bilm, vocabulary), folder)
    return str(folder)


def workspace(out: Path) -> Workspace:
    return Workspace(data(), out, out / "runs")
