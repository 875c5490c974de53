"""THE APPLICATION: paths ─▶ the service. Its description, for programs, is /openapi.json."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

import fastapi
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, Response
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException

from elmo import __version__
from elmo.embed.embedder import Embedder
from elmo.errors import ElmoError
from elmo.serve import schemas
from elmo.serve.errors import RefusedError, error_response, json_response, validation_message
from elmo.serve.gate import Gate
from elmo.serve.limits import Limits
from elmo.serve.metrics import Metrics
from elmo.serve.service import Service
from elmo.tasks.predict import Predictor

PAGE = Path(__file__).parent / "page"
# The page is files of this package, and talks to this server alone: the browser is told to allow nothing else.
POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'"
HEADERS = {"Content-Security-Policy": POLICY, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer"}


def create_app(
    embedder: Embedder,
    tasks: Mapping[str, Predictor] | None = None,
    *,
    limits: Limits | None = None,
    key: str | None = None,
) -> FastAPI:
    """Return the application for a model and trained tasks, by name.

    Any ASGI server can run it. `key` is required of every request but those for the page and /health. A model without
    a softmax has no /score and no /substitutes.
    """
    limits = limits or Limits()
    service = Service(embedder, tasks or {}, limits)
    metrics = Metrics(lambda: len(service.worker))
    service.worker.observe = metrics.computed

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        service.worker.open()
        yield
        service.worker.close()

    # The pages /docs and /redoc that FastAPI offers load scripts from another host.
    app = FastAPI(title="elmo", version=__version__, lifespan=lifespan, docs_url=None, redoc_url=None)
    app.add_middleware(Gate, limits=limits, metrics=metrics, key=key)
    _answer_errors(app)
    _add_page(app)
    _add_status(app, service, metrics, key is not None)
    _add_computations(app, service, key is not None)
    return app


def _answer_errors(app: FastAPI) -> None:
    """Give every refusal the same form."""

    @app.exception_handler(RefusedError)
    async def refused(request: Any, error: RefusedError) -> Response:
        return error.response()

    @app.exception_handler(ElmoError)
    async def explained(request: Any, error: ElmoError) -> Response:
        return error_response(422, str(error))

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Any, error: RequestValidationError) -> Response:
        return error_response(422, validation_message(error.errors()))

    @app.exception_handler(HTTPException)
    async def http(request: Any, error: HTTPException) -> Response:
        return error_response(error.status_code, str(error.detail), error.headers)

    @app.exception_handler(Exception)
    async def internal(request: Any, error: Exception) -> Response:
        return error_response(500, "an error of the server; its log says more")


def _add_page(app: FastAPI) -> None:
    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        return FileResponse(PAGE / "index.html", headers=HEADERS)

    app.mount("/page", StaticFiles(directory=PAGE), name="page")


def _add_status(app: FastAPI, service: Service, metrics: Metrics, keyed: bool) -> None:
    model = service.embedder
    facts = {
        "status": "ok",
        "version": __version__,
        "model": service.name,
        "layers": model.n_layers,
        "dim": model.dim,
        "language_model": service.language_model,
        "tasks": [{"name": name, "task": one.task.name} for name, one in service.tasks.items()],
    }

    @app.get("/health", response_model=schemas.Health, responses=_refusals(408, 413))
    async def health() -> Any:
        """Say that the server answers, and what it serves."""
        return json_response(facts)

    text: dict[int | str, Any] = {200: {"content": {"text/plain": {"schema": {"type": "string"}}}}}

    @app.get("/metrics", response_class=Response, responses=text | _refusals(408, 413, *([401] if keyed else [])))
    async def show_metrics() -> Response:
        """Return metrics in Prometheus' text format."""
        return Response(metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")


def _add_computations(app: FastAPI, service: Service, keyed: bool) -> None:
    """Add the paths that compute. FastAPI itself refuses a body that is no text with 400."""
    statuses = [400, 408, 413, 422, 429, 503, *([401] if keyed else [])]

    def post(path: str, answer: type, *more: int) -> Callable[[Any], Any]:
        return app.post(path, response_model=answer, responses=_refusals(*statuses, *more))

    @post("/embed", schemas.EmbedAnswer)
    async def embed(request: schemas.EmbedRequest) -> Any:
        """Return a vector for every token, or for every sentence."""
        return json_response(await service.embed(request))

    @post("/v1/embeddings", schemas.OpenAIAnswer, 404)
    async def openai(request: schemas.OpenAIRequest) -> Any:
        """Return a vector of length 1 for every text, as OpenAI's clients expect it."""
        return json_response(await service.openai(request))

    @post("/uses", schemas.UsesAnswer)
    async def uses(request: schemas.UsesRequest) -> Any:
        """Return the nearest uses of a word in a set of sentences that comes with the server."""
        return json_response(await service.uses(request))

    if service.language_model:

        @post("/score", schemas.ScoreAnswer)
        async def score(request: schemas.ScoreRequest) -> Any:
            """Return the log-probability of every token, given those before it and given those after it."""
            return json_response(await service.score(request))

        @post("/substitutes", schemas.SubstitutesAnswer)
        async def substitutes(request: schemas.SubstitutesRequest) -> Any:
            """Return the words that fit best in a place of a sentence, by both language models and by each."""
            return json_response(await service.substitutes(request))

    if service.tasks:

        named = fastapi.Path(description="A trained task.", json_schema_extra={"enum": list(service.tasks)})

        @post("/predict/{task}", schemas.PredictAnswer, 404)
        async def predict(task: Annotated[str, named], request: schemas.PredictRequest) -> Any:
            """Return the answers of a trained task."""
            return json_response(await service.predict(task, request))


def _refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return {status: {"model": schemas.ProblemAnswer} for status in sorted(statuses)}
