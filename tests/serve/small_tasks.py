"""Four tasks, each learned from a few examples by heart, and installed as distributions: what a server finds."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from distributions import install
from elmo.config import build, merged, parse_assignments
from elmo.embed.embedder import load
from elmo.tasks.coref.model import TASK as COREF
from elmo.tasks.examples import Example
from elmo.tasks.folder import TrainedTask, save
from elmo.tasks.frozen import FrozenLayers
from elmo.tasks.inputs import Inputs
from elmo.tasks.learner import Learner
from elmo.tasks.ner.data import Span
from elmo.tasks.ner.model import TASK as NER
from elmo.tasks.predict import Predictor
from elmo.tasks.squad.data import Gold, Questions
from elmo.tasks.squad.model import TASK as SQUAD
from elmo.tasks.squad.paragraph import Paragraph
from elmo.tasks.srl.data import Answer, Proposition, Sentence
from elmo.tasks.srl.data import Span as Role
from elmo.tasks.srl.model import TASK as SRL
from elmo.tasks.task import Task
from elmo.tasks.train_config import TrainConfig
from elmo.weights.installed import TASKS
from embedders import embedder, write_model
from tasks import small_coref

CHAINS = small_coref.EIGHT[0]
STEPS = 50
SMALL = ["dropout=0", "inputs.elmo.dropout=0", "hidden=24", "n_layers=1"]
CHARACTERS = "inputs.characters.filters=12"
ENTITIES = [
    Example((("Anna", "met", "Peter", "in", "Paris", "."),), (Span(0, 1, "PER"), Span(2, 3, "PER"), Span(4, 5, "LOC"))),
    Example((("Oslo", "is", "cold", "."),), (Span(0, 1, "LOC"),)),
    Example((("He", "saw", "a", "small", "office", "."),), ()),
]
ROLES = [
    Sentence(
        (("The", "baker", "sold", "warm", "bread", "."),),
        Answer((Proposition(2, (Role(0, 2, "ARG0"), Role(2, 3, "V"), Role(3, 5, "ARG1"))),), (2,)),
        (2,),
    ),
    Sentence(
        (("Bread", "sold", "well", "today", "."),),
        Answer(
            (Proposition(1, (Role(0, 1, "ARG1"), Role(1, 2, "V"), Role(2, 3, "ARGM-MNR"), Role(3, 4, "ARGM-TMP"))),),
            (1,),
        ),
        (1,),
    ),
]


# The beginning of the page's own example.
PARAGRAPH = "The old mill, built in 1712, stands on the river."


def untrained() -> Predictor:
    """A tagger as it begins: its answers make no sense, but they are answers."""
    torch.manual_seed(2)
    config = _config(NER, *SMALL, CHARACTERS)
    labels = NER.labels(ENTITIES)
    model = NER.model(config, Inputs(config.inputs, [], None, FrozenLayers(embedder())), labels)
    return Predictor(TrainedTask(NER, config, labels, [], model))


def install_names(site: Path, models: Path) -> None:
    """Install a tagger into a folder of sys.path; it is the task "names"."""
    bilm = f"inputs.elmo.model={write_model(models / 'bilm')}"
    _install(site, "names", NER, _config(NER, bilm, CHARACTERS, *SMALL), ENTITIES, models)


def install_all(site: Path, models: Path) -> None:
    """Install a tagger, a role labeler, a coreference model and a reader."""
    install_names(site, models)
    bilm = f"inputs.elmo.model={models / 'bilm'}"
    _install(site, "roles", SRL, _config(SRL, bilm, *SMALL, "predicate_dim=8"), ROLES, models)
    coref = replace(small_coref.small_config("none", n_layers=1, spans_per_token=2.0), train=TrainConfig(device="cpu"))
    _install(site, "chains", COREF, coref, [CHAINS], models)
    questions = [_question("When was the mill built?", "1712"), _question("Where does it stand?", "on the river")]
    sizes = ("inputs.elmo.placement=none", CHARACTERS, "dropout=0", "hidden=16", "feedforward=16")
    _install(site, "reader", SQUAD, _config(SQUAD, *sizes), questions, models)


def _install(site: Path, name: str, task: Task, config: Any, examples: Sequence[Any], models: Path) -> None:
    folder = _learned(task, config, examples, models / name)
    install(site, f"elmo-{name}", TASKS, name, f"elmo_{name}", folder)


def _learned(task: Task, config: Any, examples: Sequence[Any], folder: Path) -> Path:
    """Learn the examples by heart and write the trained task."""
    torch.manual_seed(1)
    elmo = config.inputs.elmo
    frozen = None if elmo.placement == "none" else FrozenLayers(load(elmo.model, device="cpu"))
    model = task.model(config, Inputs(config.inputs, [], None, frozen), task.labels(examples)).train()
    learner = Learner(model, replace(config.train, optimizer="adam", learning_rate=0.02))
    for step in range(STEPS):
        torch.autograd.backward(model.loss(examples))
        learner.step(step)
    given = model.eval().answers(examples)
    assert task.score([example.gold for example in examples], given)["f1"] > 90, task.name
    folder.mkdir()
    save(folder, TrainedTask(task, config, task.labels(examples), [], model))
    return folder


def _config(task: Task, *assignments: str) -> Any:
    settings = ["inputs.vectors=none", "train.device=cpu", "train.optimizer=adam", *assignments]
    return build(task.config, merged(asdict(task.config()), parse_assignments(settings)))


def _question(question: str, answer: str) -> Questions:
    paragraph = Paragraph(PARAGRAPH)
    span = paragraph.span(PARAGRAPH.find(answer), answer)
    assert span is not None
    return Questions.of(paragraph, question, Gold((answer,), (span,)), question)
