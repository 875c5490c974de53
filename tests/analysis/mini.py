"""A small biLM with a softmax, and the small datasets of `elmo reproduce --quick`."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import torch

from elmo.analysis.analysis import Workspace
from elmo.analysis.quick_data import write_data
from elmo.model.bilm import BiLM
from elmo.text.vocabulary import Vocabulary
from elmo.weights.folder import Pretrained, write
from embedders import pretrained

WORDS = ["<S>", "</S>", "<UNK>", "the", "in", ".", "was", "Paris", "Anna", "river"]


@cache
def data(sentences: int = 30) -> Path:
    """The datasets, made once."""
    folder = Path(mkdtemp(prefix="mini-data-")) / "data"
    write_data(folder, sentences)
    return folder


@cache
def model() -> str:
    """A model folder of random weights, made once."""
    folder = Path(mkdtemp(prefix="mini-model-")) / "model"
    vocabulary = Vocabulary(WORDS)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        bilm = BiLM(replace(pretrained().bilm.config, n_softmax=len(vocabulary)))
    write(Pretrained(bilm, vocabulary), folder)
    return str(folder)


def workspace(out: Path) -> Workspace:
    return Workspace(data(), out, out / "runs")
