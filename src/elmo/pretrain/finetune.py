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
    world = world or World()
    first = out / SOFTMAX
    if resume and not (first / RECORD).exists():
        Run(out).refuse_missing()
    if not resume and world.rank == 0:
        Run(out).refuse_used()  # before the first stage, which may take hours
    if model.bilm.softmax is None:
        if resume and not (first / RECORD).exists():
            raise DataError(
                f"{out}: the run was started with a model that has a softmax, and this one has none (there is no "
                f"{first}). Give the same model, or choose another folder"
            )
        finished = _train_softmax(
            with_new_softmax(model, corpus, config.seed), corpus, first, config,
            resume=resume, ignore_memory=ignore_memory, stop=stop, world=world, report=report, facts=facts,
        )  # fmt: skip
        if not finished:
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


def _train_softmax(
    start: Pretrained,
    corpus: Corpus,
    out: Path,
    config: PretrainConfig,
    *,
    resume: bool,
    stop: threading.Event | None,
    world: World,
    **options: Any,
) -> bool:
    """Do the first stage; return False if `stop` ended it early.

    A function of its own, so that its weights, optimizer and graphs are not in memory during the second stage.
    """
    if resume and (out / MODEL).exists():
        Run(out).compare(request(corpus, config, start))
        return True
    training = Training(corpus, out, config, resume=resume, start=start, softmax_only=True, world=world, **options)
    if not training.train(stop):
        return False
    world.barrier()
    return stop is None or not stop.is_set()


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
