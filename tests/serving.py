"""A server for tests: a small language model, an application in this process, and a server that stops by itself."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import httpx
import torch
from fastapi import FastAPI
from torch import Tensor

from elmo.embed.embedder import Embedder
from elmo.model.bilm import BiLM
from elmo.serve.run import server_of
from elmo.text.vocabulary import Vocabulary
from elmo.weights.folder import Pretrained
from embedders import pretrained

WORDS = ["the", "cat", "sat", "on", "mat", "a", "dog", "ran", ".", "play", "bank"]


def language_model(name: str = "small", bidirectional: bool = True) -> Embedder:
    """The small model, or its forward half, with a softmax of random values."""
    bilm, words = pretrained().bilm, ["<S>", "</S>", "<UNK>", *WORDS]
    torch.manual_seed(0)
    predicting = BiLM(replace(bilm.config, n_softmax=len(words), bidirectional=bidirectional))
    wanted = predicting.state_dict()
    predicting.load_state_dict({**wanted, **_cut(bilm.state_dict(), wanted)})
    return Embedder(Pretrained(predicting, Vocabulary(words)), name=name)


def _cut(given: dict[str, Tensor], wanted: dict[str, Tensor]) -> dict[str, Tensor]:
    """The forward half of each tensor whose first axis is the directions."""
    return {name: tensor[: len(wanted[name])] for name, tensor in given.items()}


def client(app: FastAPI, **settings: Any) -> httpx.AsyncClient:
    """A client of an application, without a network."""
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test", **settings)


@contextmanager
def stopping_when_started() -> Iterator[None]:
    """Let every server stop as soon as it answers, as if by a signal."""
    server = type(server_of(FastAPI()))
    startup = server.startup

    async def started(self: Any, *arguments: Any, **settings: Any) -> None:
        await startup(self, *arguments, **settings)
        self.should_exit = True

    with patch.object(server, "startup", started):
        yield
