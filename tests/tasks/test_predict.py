"""A trained task in use by many threads."""

import pickle
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from elmo.embed.embedder import Embedder
from elmo.tasks.examples import Example
from elmo.tasks.folder import TrainedTask
from elmo.tasks.frozen import FrozenLayers
from elmo.tasks.inputs import CharactersConfig, ElmoConfig, Inputs, InputsConfig
from elmo.tasks.ner.model import TASK as NER
from elmo.tasks.predict import Predictor
from elmo.tasks.reading import parse_sentence
from elmo.tasks.task import Task, TaskModel
from embedders import DIM, embedder, fresh

WORDS = [f"w{number}" for number in range(150)]
RANDOM = Random(0)
SENTENCES = [RANDOM.choices(WORDS, k=RANDOM.randint(1, 9)) for _ in range(96)]
FEW_WORDS = 12 * 4 * DIM // 2  # bytes of a cache of twelve words
HALF = 4e-3  # the layers are stored in float16


@pytest.fixture(autouse=True)
def switching_often() -> Iterator[None]:
    """Let the interpreter change threads as often as it can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


class Average(TaskModel):
    """Answers with numbers, which show every mistake: the mean of a text's ELMo vectors."""

    def __init__(self, inputs: Inputs) -> None:
        super().__init__()
        self.inputs = inputs

    def loss(self, examples: Sequence[Example]) -> Tensor:
        raise NotImplementedError

    def answers(self, examples: Sequence[Example]) -> list[Any]:
        x = self.inputs([example.texts[0] for example in examples])
        return list((x.vectors.sum(dim=1) / x.mask.sum(dim=1, keepdim=True)).detach().numpy())


def predictor(trainable: bool, of: Embedder) -> Predictor:
    config = InputsConfig(elmo=ElmoConfig(mix="average", trainable=trainable, dropout=0.5))
    frozen, bilm = (None, of.bilm) if trainable else (FrozenLayers(of), None)
    task = Task(
        name="average",
        config=InputsConfig,
        read=lambda path: {},
        labels=lambda examples: [],
        model=lambda config, inputs, labels: Average(inputs),
        score=lambda gold, predicted: {},
        parse=parse_sentence,
        to_json=lambda example, answer: {"tokens": example.texts[0], "mean": answer},
    )
    return Predictor(TrainedTask(task, config, [], [], Average(Inputs(config, frozen=frozen, bilm=bilm))))


def mean(sentence: Sequence[str]) -> Any:
    return fresh(sentence).mean(axis=(0, 1))


def in_threads(call: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
    with ThreadPoolExecutor(8) as pool:
        return list(pool.map(call, items))


@pytest.mark.parametrize("trainable", [False, True])
@pytest.mark.parametrize("size", [1, 6])
def test_every_thread_gets_the_answers_to_its_own_items(trainable: bool, size: int) -> None:
    using = predictor(trainable, embedder(cache_bytes=FEW_WORDS))
    calls = [SENTENCES[start : start + size] for start in range(0, len(SENTENCES), size)]
    for found in (in_threads(using.predict, calls), [using.predict(call) for call in calls]):
        for answers, sentences in zip(found, calls, strict=True):
            assert [answer["tokens"] for answer in answers] == [tuple(sentence) for sentence in sentences]
            for answer, sentence in zip(answers, sentences, strict=True):
                np.testing.assert_allclose(answer["mean"], mean(sentence), atol=HALF)


def test_a_tagger_answers_in_many_threads_as_in_one() -> None:
    config = NER.config(hidden=8, inputs=InputsConfig(characters=CharactersConfig(4, 6), elmo=ElmoConfig(mix_l2=0.1)))
    torch.manual_seed(1)
    made = Inputs(config.inputs, frozen=FrozenLayers(embedder(cache_bytes=FEW_WORDS)))
    using = Predictor(TrainedTask(NER, config, labels := ["O", "U-PER", "U-LOC"], [], NER.model(config, made, labels)))
    alone = using.predict(SENTENCES)
    assert len({tag for answer in alone for tag in answer["tags"]}) > 1
    assert [answer for (answer,) in in_threads(lambda sentence: using.predict([sentence]), SENTENCES)] == alone


def test_a_tagger_is_pickled_without_what_it_has_computed() -> None:
    config = NER.config(hidden=8, inputs=InputsConfig(elmo=ElmoConfig()))
    torch.manual_seed(1)
    made = Inputs(config.inputs, frozen=FrozenLayers(embedder()))
    using = Predictor(TrainedTask(NER, config, labels := ["O", "U-PER", "U-LOC"], [], NER.model(config, made, labels)))
    before = pickle.dumps(using)
    answers = using.predict(SENTENCES[:20])
    assert pickle.dumps(using) == before
    assert pickle.loads(before).predict(SENTENCES[:20]) == answers


def test_a_model_that_was_left_in_training_drops_nothing_out() -> None:
    using = predictor(False, embedder())
    assert not using.trained.model.training
    np.testing.assert_allclose(using.predict([["w1", "w2"]])[0]["mean"], mean(["w1", "w2"]), atol=HALF)


def test_layers_are_computed_once_for_all_batches_of_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    of = embedder()
    asked: list[list[tuple[str, ...]]] = []
    embed = of.embed

    def counted(sentences: Any, *rest: Any, **options: Any) -> Any:
        asked.append(sentences := list(sentences))
        return embed(sentences, *rest, **options)

    monkeypatch.setattr(of, "embed", counted)
    assert len(predictor(False, of).predict(SENTENCES)) == len(SENTENCES)  # two batches of 64
    assert asked == [list(dict.fromkeys(map(tuple, SENTENCES)))]
