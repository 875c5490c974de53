"""A MODEL + A DOMAIN'S TEXT ─▶ A MODEL OF THE DOMAIN (paper, section 3.4 and appendix A.1).

A model with a softmax is trained further. Published HDF5 files have none: then a new softmax, over the vocabulary of
the domain, is first trained with the biLM frozen, so that random gradients do not damage it; then both are trained.
"""

import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from elmo.errors import DataError, WeightsError
from elmo.model.bilm import BiLM
from elmo.pretrain.config import PretrainConfig
from elmo.pretrain.corpus import Corpus
from elmo.pretrain.distributed import World
from elmo.pretrain.evaluate import Perplexity
from elmo.pretrain.loop import Report, Training, request
from elmo.training.run import MODEL, RECORD, Run
from elmo.weights import folder
from elmo.weights.folder import Pretrained

SOFTMAX = "softmax"  # the folder, inside the run's, of the run that trains a new softmax


@dataclass(frozen=True)
class Change:
    """Held-out perplexity before and after fine-tuning."""

    before: Perplexity
    after: Perplexity


def finetune(
    model: Pretrained,
    corpus: Corpus,
    out: Path,
    config: PretrainConfig,
    *,
    resume: bool = False,
    ignore_memory: bool = False,
    stop: threading.Event | None = None,
    world: World | None = None,
    report: Report | None = None,
    facts: Mapping[str, Any] | None = None,
) -> Change | None:
    """Train a model further; the result is OUT/model. Returns None if `stop` ended it early.

    `facts` are added to the record of the run.
    """
    if model.bilm.config.many_langs is not None:
        raise WeightsError("a model of ELMoForManyLangs cannot be trained further: its words are not read as bytes")
    if not corpus.heldout:
        raise DataError(f"{corpus.folder}: nothing is held out; prepare it with --heldout to measure the improvement")
    first = out / SOFTMAX
    if resume and not (first / RECORD).exists():
        Run(out).refuse_missing()
    if model.bilm.softmax is None:
        start = with_new_softmax(model, corpus, config.seed)
        if resume and (first / MODEL).exists():
            Run(first).compare(request(corpus, config, start))
        else:
            softmax = Training(
                corpus, first, config,
                resume=resume and (first / RECORD).exists(), start=start, softmax_only=True,
                ignore_memory=ignore_memory, world=world, report=report, facts=facts,
            )  # fmt: skip
            if not softmax.train(stop):
                return None
            softmax.world.barrier()
            if stop is not None and stop.is_set():
                return None
        model = folder.read(first / MODEL, softmax=True)
    if model.vocabulary is None:
        raise WeightsError("the model has a softmax but no vocabulary.txt; expected one, to train it further")
    training = Training(
        corpus, out, config,
        resume=resume and (out / RECORD).exists(), start=model,
        ignore_memory=ignore_memory, world=world, report=report, facts=facts,
    )  # fmt: skip
    if training.progress.best_step is None:
        training.evaluate_start()
    before = Perplexity(**training.run.record["start"])
    if not training.train(stop):
        return None
    training.bilm.load_state_dict(folder.read(out / MODEL, softmax=True).bilm.state_dict())
    return Change(before, training.heldout())


def steps_saved(out: Path) -> int:
    """Return the step of the last checkpoint of an interrupted run, in the stage it was in."""
    saved = Run(out).checkpoints() or Run(out / SOFTMAX).checkpoints()
    return saved[-1].step if saved else 0


def with_new_softmax(model: Pretrained, corpus: Corpus, seed: int) -> Pretrained:
    """Add an untrained softmax: over the model's own words if it reads words, or else over the corpus's."""
    own = model.bilm.config.n_words is not None
    vocabulary = model.vocabulary if own and model.vocabulary is not None else corpus.vocabulary
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        bilm = BiLM(replace(model.bilm.config, n_softmax=len(vocabulary)))
    bilm.load_state_dict(model.bilm.state_dict(), strict=False)
    return Pretrained(bilm, vocabulary)
