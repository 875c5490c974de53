"""WHAT THE SERVER COMPUTES: requests that were checked ─▶ answers, the library's own numbers.

Everything that takes time is a job of the worker; long texts are tokenized, and large answers written, on another
thread, so that none blocks the rest.
"""

import asyncio
import base64
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from starlette.concurrency import run_in_threadpool

from elmo.embed.embedder import Embedder
from elmo.embed.language_model import Scores, Substitute
from elmo.embed.pooling import pooling
from elmo.embed.selection import Array, Selection
from elmo.embed.sentences import tokenize_sentences
from elmo.errors import ElmoError
from elmo.messages import counted
from elmo.serve.errors import AT_ONCE, RefusedError, json_of
from elmo.serve.limits import Limits
from elmo.serve.schemas import (
    EmbedRequest,
    OpenAIRequest,
    PredictRequest,
    ScoreRequest,
    SubstitutesRequest,
    UsesRequest,
)
from elmo.serve.uses import Use, Uses
from elmo.serve.worker import Job, Worker
from elmo.tasks.predict import Predictor

SHORT = 4096  # characters that are tokenized at once: sooner done than given to another thread


class Service:
    """A model and trained tasks, and the worker that runs them."""

    def __init__(self, embedder: Embedder, tasks: Mapping[str, Predictor], limits: Limits) -> None:
        self.embedder = embedder
        self.tasks = tasks
        self.limits = limits
        self.name = embedder.name or "elmo"
        self.worker = Worker(limits.waiting, limits.batch_tokens)
        self._uses: Uses | None = None

    @property
    def language_model(self) -> bool:
        """Whether the model can predict words."""
        return self.embedder.bilm.softmax is not None and self.embedder.vocabulary is not None

    async def embed(self, request: EmbedRequest) -> bytes:
        """Return the vectors of tokens, or of sentences, as JSON."""
        layers = tuple(request.layers) if isinstance(request.layers, list) else request.layers
        Selection.parse(layers, self.embedder.n_layers)  # before anything waits
        sentences = await self._tokens(request.sentences)
        pool = None if request.pooling is None else pooling(request.pooling, self.embedder.config.directions)

        def compute(items: list[Any]) -> list[Array]:
            arrays = self.embedder.embed(items, layers)
            return list(arrays if pool is None else map(pool, arrays))

        arrays = await self._computed(("embed", layers, request.pooling), sentences, compute)
        shown = [
            {"tokens": tokens, "shape": array.shape, "vectors": _encoded(array, request.encoding)}
            for tokens, array in zip(sentences, arrays, strict=True)
        ]
        return await _written({"model": self.name, "sentences": shown}, arrays)

    async def openai(self, request: OpenAIRequest) -> bytes:
        """Return one vector per text, of length 1, in OpenAI's form, as JSON."""
        if request.model != self.name:
            raise RefusedError(404, f"model is {request.model[:100]!r}; this server has the model {self.name!r}")
        if request.dimensions not in (None, self.embedder.dim):
            raise RefusedError(422, f"dimensions is {request.dimensions}; this model has {self.embedder.dim}")
        texts = [request.input] if isinstance(request.input, str) else request.input
        sentences = await self._tokens(texts)
        vectors = await self._computed(
            "openai", sentences, lambda items: list(self.embedder.encode(items, normalize=True))
        )
        data = [
            {"object": "embedding", "index": index, "embedding": _encoded(vector, request.encoding_format)}
            for index, vector in enumerate(vectors)
        ]
        tokens = sum(map(len, sentences))
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        return await _written({"object": "list", "data": data, "model": self.name, "usage": usage}, vectors)

    async def score(self, request: ScoreRequest) -> dict[str, Any]:
        """Return the log-probability of each token."""
        sentences = await self._tokens(request.sentences)
        scores = await self._computed("score", sentences, lambda items: list(self.embedder.score_all(items)))
        return {"model": self.name, "sentences": [_scored(one) for one in scores]}

    async def substitutes(self, request: SubstitutesRequest) -> dict[str, Any]:
        """Return the words that fit best in a place."""
        (tokens,) = await self._tokens([request.sentence])
        _check_place(request.index, tokens)

        def compute(items: list[Any]) -> list[Any]:
            return [self.embedder.substitutes_by_direction(*item) for item in items]

        item = (tokens, request.index, request.n)
        (found,) = await self._computed("substitutes", [item], compute, len(tokens))
        return {
            "model": self.name,
            "tokens": tokens,
            "index": request.index,
            "substitutes": _words(found.both),
            "forward": _words(found.forward),
            "backward": None if found.backward is None else _words(found.backward),
        }

    async def uses(self, request: UsesRequest) -> dict[str, Any]:
        """Return the nearest uses of a word in the bundled sentences."""
        n_layers = self.embedder.n_layers
        weights = [1 / n_layers] * n_layers if request.weights is None else request.weights
        if len(weights) != n_layers:
            raise RefusedError(422, f"weights: {counted(len(weights), 'number')}; expected one per layer, {n_layers}")
        (tokens,) = await self._tokens([request.sentence])
        _check_place(request.index, tokens)

        def compute(items: list[Any]) -> list[list[Use]]:
            if self._uses is None:
                self._uses = Uses(self.embedder)
            arrays = self.embedder.embed([tokens for tokens, *_ in items])
            return [
                self._uses.nearest(array[:, index], weights, n)
                for array, (_, index, weights, n) in zip(arrays, items, strict=True)
            ]

        item = (tokens, request.index, weights, request.n)
        (found,) = await self._computed("uses", [item], compute, len(tokens))
        return {"model": self.name, "uses": [asdict(use) for use in found]}

    async def predict(self, task: str, request: PredictRequest) -> dict[str, Any]:
        """Return the answers of a trained task."""
        if task not in self.tasks:
            raise RefusedError(404, f"{task[:100]!r}: no such task; this server has {', '.join(self.tasks)}")
        predictor = self.tasks[task]
        examples = await run_in_threadpool(lambda: [predictor.task.parse(item) for item in request.items])
        tokens = sum(example.n_tokens for example in examples)
        answers = await self._computed(
            ("predict", task), examples, lambda items: list(predictor.answers(items)), tokens
        )
        return {"task": task, "answers": answers}

    async def _tokens(self, sentences: Sequence[str | list[str]]) -> list[list[str]]:
        # Of any length: `_computed` refuses what has too many tokens for a request.
        if sum(map(len, sentences)) <= SHORT:
            return list(tokenize_sentences(sentences, None))
        return await run_in_threadpool(lambda: list(tokenize_sentences(sentences, None)))

    async def _computed(
        self,
        key: Hashable,
        items: Sequence[Any],
        compute: Callable[[list[Any]], Sequence[Any]],
        tokens: int | None = None,
    ) -> list[Any]:
        """Let the worker compute, and wait for the results as long as a request may take."""
        tokens = sum(map(len, items)) if tokens is None else tokens
        if tokens > self.limits.tokens:
            raise RefusedError(
                422, f"the request has {tokens:,} tokens; expected at most {self.limits.tokens:,}. Send less text"
            )
        future = self.worker.submit(Job(key, list(items), tokens, compute))
        try:
            return await asyncio.wait_for(asyncio.wrap_future(future), self.limits.seconds)
        except TimeoutError:
            raise RefusedError(
                503, f"no answer within {self.limits.seconds:g} s; try again", {"Retry-After": "1"}
            ) from None
        except ElmoError as error:
            raise RefusedError(422, str(error)) from None


async def _written(content: dict[str, Any], arrays: Sequence[Array]) -> bytes:
    """Write an answer with these arrays as JSON, on another thread if it is large."""
    if sum(array.size for array in arrays) <= AT_ONCE:
        return json_of(content)
    return await run_in_threadpool(json_of, content)


def _encoded(array: Array, encoding: str) -> Any:
    if encoding == "float":
        return array
    return base64.b64encode(np.ascontiguousarray(array, dtype="<f4").tobytes()).decode()


def _scored(scores: Scores) -> dict[str, Any]:
    return {
        "tokens": scores.tokens,
        "known": scores.known.tolist(),
        "forward": scores.forward.tolist(),
        "forward_end": scores.forward_end,
        "backward": None if scores.backward is None else scores.backward.tolist(),
        "backward_end": scores.backward_end,
        "perplexity": scores.perplexity,
    }


def _words(substitutes: Sequence[Substitute]) -> list[dict[str, Any]]:
    return [substitute._asdict() for substitute in substitutes]


def _check_place(index: int, tokens: Sequence[str]) -> None:
    if index >= len(tokens):
        raise RefusedError(422, f"index is {index}; the sentence has {counted(len(tokens), 'token')}, counted from 0")
