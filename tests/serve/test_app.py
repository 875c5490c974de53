"""The application: its answers are the library's numbers, and what is refused is explained."""

import asyncio
import base64
import json
import re
import threading
from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families
from pydantic_core import to_json

from elmo.embed.embedder import Embedder
from elmo.embed.pooling import pooling
from elmo.serve.app import create_app
from elmo.serve.errors import json_of
from elmo.serve.limits import Limits
from elmo.tasks.srl.data import parse as parse_roles
from elmo.tasks.task import TASKS, task_named
from embedders import assert_close, assert_same_bits, embedder
from serve.small_tasks import untrained
from serving import client, language_model

SENTENCES: list[Any] = ["The cat sat on the mat.", ["naïve", "日本語"], "", "a dog ran"]
SPLIT = [["The", "cat", "sat", "on", "the", "mat", "."], ["naïve", "日本語"], [], ["a", "dog", "ran"]]


async def answered(app: Any, path: str, body: Any = None, status: int = 200, **settings: Any) -> Any:
    """What the app answers, after checking its status."""
    async with client(app) as http:
        sent = http.get(path, **settings) if body is None else http.post(path, json=body, **settings)
        response = await sent
    assert response.status_code == status, response.text
    return response.json()


def ask(app: Any, path: str, body: Any = None, status: int = 200, **settings: Any) -> Any:
    return asyncio.run(answered(app, path, body, status, **settings))


def refusal(app: Any, path: str, body: Any, status: int, **settings: Any) -> str:
    error = ask(app, path, body, status, **settings)["error"]
    assert "\n" not in error["message"] and set(error) == {"message", "type", "param", "code"}
    return str(error["message"])


@pytest.fixture(scope="module")
def model() -> Embedder:
    return language_model()


@pytest.fixture(scope="module")
def app(model: Embedder) -> Any:
    return create_app(model)


# Answers


@pytest.mark.parametrize("layers", ["all", "top", "average", 1, [0.2, -1.5, 3]])
@pytest.mark.parametrize("pool", [None, "mean", "max", "first-last"])
def test_embed_gives_the_bits_of_the_library(app: Any, model: Embedder, layers: Any, pool: str | None) -> None:
    body = {"sentences": SENTENCES, "layers": layers, "pooling": pool}
    wanted = list(model.embed(SENTENCES, layers))
    if pool is not None:
        wanted = [pooling(pool)(array) for array in wanted]
    for encoding in ("float", "base64"):
        answer = ask(app, "/embed", {**body, "encoding": encoding})
        assert [one["tokens"] for one in answer["sentences"]] == SPLIT
        found = []
        for one in answer["sentences"]:
            values = one["vectors"]
            if encoding == "base64":
                values = np.frombuffer(base64.b64decode(values), dtype="<f4")
            found.append(np.array(values, dtype=np.float32).reshape(one["shape"]))
        assert_same_bits(found, wanted)


def test_large_answers_are_written_in_pieces_on_another_thread(
    app: Any, model: Embedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    threads: list[bool] = []

    def watched(content: Any) -> bytes:
        sizes.append(np.size(content))
        return to_json(content)

    def counted(content: Any) -> bytes:
        threads.append(threading.current_thread() is threading.main_thread())
        return json_of(content)

    monkeypatch.setattr("elmo.serve.errors.to_json", watched)
    monkeypatch.setattr("elmo.serve.service.json_of", counted)
    monkeypatch.setattr("elmo.serve.errors.AT_ONCE", 40)
    monkeypatch.setattr("elmo.serve.service.AT_ONCE", 40)
    for sentences, at_once in (([["a"]], True), ([["a", "cat"], [], ["the"]], False)):  # 3 · 10 and 3 · 30 numbers
        answer = ask(app, "/embed", {"sentences": sentences})
        for one, array in zip(answer["sentences"], model.embed(sentences), strict=True):
            assert one["vectors"] == array.tolist()
        assert threads == [at_once]
        assert max(sizes) <= 40
        threads.clear()
    found = ask(app, "/v1/embeddings", {"model": "small", "input": ["a", "the cat"] * 3})["data"]
    assert [one["embedding"] for one in found] == model.encode(["a", "the cat"] * 3, normalize=True).tolist()
    assert threads == [False]


def test_scores_and_substitutes_are_those_of_the_library(app: Any, model: Embedder) -> None:
    answer = ask(app, "/score", {"sentences": SENTENCES})
    for found, wanted in zip(answer["sentences"], model.score_all(SENTENCES), strict=True):
        assert found["tokens"] == wanted.tokens and found["known"] == wanted.known.tolist()
        assert found["forward"] == wanted.forward.tolist() and found["forward_end"] == wanted.forward_end
        assert wanted.backward is not None
        assert found["backward"] == wanted.backward.tolist() and found["backward_end"] == wanted.backward_end
        assert found["perplexity"] == wanted.perplexity
    answer = ask(app, "/substitutes", {"sentence": SENTENCES[0], "index": 1, "n": 4})
    assert answer["tokens"] == SPLIT[0] and answer["index"] == 1
    wanted_words = model.substitutes_by_direction(SENTENCES[0], 1, 4)
    assert wanted_words.backward is not None
    lists = {"substitutes": wanted_words.both, "forward": wanted_words.forward, "backward": wanted_words.backward}
    for name, words in lists.items():
        assert [(one["word"], one["probability"]) for one in answer[name]] == [tuple(one) for one in words]
    assert answer["forward"] != answer["backward"]


def test_a_model_of_one_direction_has_no_backward_values() -> None:
    model = language_model(bidirectional=False)
    app = create_app(model)
    (scored,) = ask(app, "/score", {"sentences": SENTENCES[:1]})["sentences"]
    assert (scored["backward"], scored["backward_end"]) == (None, None)
    assert scored["forward"] == model.score(SENTENCES[0]).forward.tolist()
    answer = ask(app, "/substitutes", {"sentence": SENTENCES[0], "index": 1, "n": 4})
    forward = model.substitutes_by_direction(SENTENCES[0], 1, 4).forward
    assert answer["backward"] is None
    assert answer["forward"] == [{"word": word, "probability": probability} for word, probability in forward]


def test_a_model_without_a_softmax_has_no_paths_for_words() -> None:
    app = create_app(embedder(name="plain"))
    assert not ask(app, "/health")["language_model"]
    assert refusal(app, "/score", {"sentences": ["a"]}, 404) == "Not Found"
    assert "/score" not in ask(app, "/openapi.json")["paths"]


def test_requests_that_wait_are_computed_together_with_the_same_result(model: Embedder) -> None:
    """Forty at once, of three kinds: fewer batches than requests, and every answer as alone, up to rounding."""
    app = create_app(model)
    texts = [[f"the cat {number} sat".split(), ["mat"] * (number % 5 + 1)] for number in range(40)]

    def body(number: int) -> tuple[str, dict[str, Any]]:
        path = ("/embed", "/score", "/v1/embeddings")[number % 3]
        if path == "/v1/embeddings":
            return path, {"model": "small", "input": [" ".join(text) for text in texts[number]]}
        return path, {"sentences": texts[number]}

    async def at_once() -> list[Any]:
        return await asyncio.gather(*(answered(app, *body(number)) for number in range(40)))

    for number, answer in enumerate(asyncio.run(at_once())):
        path, _ = body(number)
        if path == "/embed":
            found = [np.array(one["vectors"], np.float32) for one in answer["sentences"]]
            wanted = list(model.embed(texts[number]))
        elif path == "/score":
            found = [np.array(one["forward"]) for one in answer["sentences"]]
            wanted = [one.forward for one in model.score_all(texts[number])]
        else:
            found = [np.array(one["embedding"], np.float32) for one in answer["data"]]
            wanted = list(model.encode(texts[number], normalize=True))
        for one, other in zip(found, wanted, strict=True):
            assert_close(one, other)
    assert sample(app, "elmo_batch_requests_sum") == 40
    assert 3 <= sample(app, "elmo_batch_requests_count") < 40


def test_nearest_uses_by_brute_force(app: Any, model: Embedder) -> None:
    weights = [0.1, 0.7, 0.2]
    asked = {"sentence": "We play cards", "index": 1, "weights": weights, "n": 5}
    found = ask(app, "/uses", asked)["uses"]
    (own,) = model.embed(["We play cards"], weights)
    best = []
    for line in (Path(create_app.__code__.co_filename).parent / "uses.txt").read_text().splitlines():
        (array,) = model.embed([line], weights)
        for index, token in enumerate(array):
            cosine = float(token @ own[1] / np.linalg.norm(token) / np.linalg.norm(own[1]))
            best.append((cosine, [one.text for one in model.tokens(line)], index))
    best = sorted((row for row in best if row[1][row[2]] != "."), key=lambda row: -row[0])[:5]
    assert [(one["tokens"], one["index"]) for one in found] == [(tokens, index) for _, tokens, index in best]
    assert [one["similarity"] for one in found] == pytest.approx([cosine for cosine, *_ in best], abs=1e-5)


def test_predictions_are_those_of_the_task(model: Embedder) -> None:
    tagger = untrained()
    app = create_app(model, {"names": tagger})
    items = ["Anna left for Oslo.", ["Bela", "saw", "Paris"], {"tokens": ["Dora"]}]
    assert ask(app, "/predict/names", {"items": items}) == {"task": "names", "answers": tagger.predict(items)}
    assert ask(app, "/health")["tasks"] == [{"name": "names", "task": "ner"}]
    assert "no such task; this server has names" in refusal(app, "/predict/other", {"items": items}, 404)
    assert "expected a sentence, a list of tokens" in refusal(app, "/predict/names", {"items": [{"a": 1}]}, 422)


def test_a_server_without_tasks_has_no_predictions(app: Any) -> None:
    assert refusal(app, "/predict/ner", {"items": ["a"]}, 404) == "Not Found"
    assert ask(app, "/health")["tasks"] == []


# Limits and refusals


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        ("/embed", {"sentences": "a"}, "sentences: input should be a valid list"),
        ("/embed", {"sentences": []}, "sentences: list should have at least 1 item"),
        ("/embed", {"sentences": ["a", 3]}, "sentences.1.str: input should be a valid string"),
        ("/embed", {"sentences": ["a"], "layers": 3}, "layers is 3; this model has 3: expected all, top, average"),
        ("/embed", {"sentences": ["a"], "layers": [1.0]}, "layers is .1.0,.; this model has 3"),
        ("/embed", {"sentences": ["a"], "pool": "mean"}, "pool: extra inputs are not permitted"),
        ("/embed", {"sentences": ["a"], "model": "/etc/passwd"}, "model: extra inputs are not permitted"),
        ("/substitutes", {"sentence": "a b", "index": 2}, "index is 2; the sentence has 2 tokens, counted from 0"),
        ("/uses", {"sentence": "a", "index": 0, "weights": [1.0]}, "weights: 1 number; expected one per layer, 3"),
        ("/v1/embeddings", {"model": "small", "input": [[1, 2]]}, "input: value error, tokens are not accepted"),
        ("/v1/embeddings", {"model": "small", "input": [1, 2]}, "are those of another model; send texts"),
        ("/v1/embeddings", {"model": "small", "input": 1}, "input.str: input should be a valid string"),
        ("/v1/embeddings", {"model": "small", "input": "a", "dimensions": 5}, "dimensions is 5; this model has 10"),
    ],
)  # fmt: skip
def test_a_wrong_request_is_explained(app: Any, path: str, body: Any, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        raise AssertionError(refusal(app, path, body, 422))


def test_bodies_that_are_no_json(app: Any) -> None:
    kind = {"content-type": "application/json"}

    async def send(content: bytes, headers: dict[str, str]) -> Any:
        async with client(app) as http:
            return await http.post("/embed", content=content, headers=headers)

    for content, status in (
        (b'{"sentences": [', 422), (b"", 422), (b'{"sentences": ["\\ud800"]}', 422), (b'{"sentences": [NaN]}', 422),
        (b"\xff\xfe", 422), (b"[" * 100_000, 400), (b'{"sentences": ["\xff"]}', 400),
    ):  # fmt: skip
        response = asyncio.run(send(content, kind))
        assert response.status_code == status, response.text
        assert response.json()["error"]["message"]
    assert asyncio.run(send(b'{"sentences": ["a"]}', {"content-type": "text/plain"})).status_code == 422
    message = asyncio.run(send(b'{"a": }', kind)).json()["error"]["message"]
    assert message == "the body is not JSON: Expecting value at character 6"


def test_a_large_body_is_refused_before_it_is_read(model: Embedder) -> None:
    app = create_app(model, limits=Limits(body_bytes=1000))
    message = refusal(app, "/embed", {"sentences": ["a" * 1000]}, 413)
    assert message == "the body has more than 1,000 bytes; send less text in one request"
    given = 0

    async def chunks() -> Any:  # without a length, as a client may send it
        nonlocal given
        for _ in range(1000):
            given += 1
            yield b"a" * 100

    async def send() -> int:
        async with client(app) as http:
            return (await http.post("/embed", content=chunks())).status_code

    assert asyncio.run(send()) == 413
    assert given <= 12


def test_too_many_tokens_are_refused(model: Embedder) -> None:
    app = create_app(model, limits=Limits(tokens=5))
    assert ask(app, "/embed", {"sentences": ["a b", "c d e"]})
    message = refusal(app, "/score", {"sentences": ["a b", "c d e f"]}, 422)
    assert message == "the request has 6 tokens; expected at most 5. Send less text"
    message = refusal(app, "/score", {"sentences": ["a " * 100_001]}, 422)  # more than the library's own limit
    assert message == "the request has 100,001 tokens; expected at most 5. Send less text"


def test_a_sentence_counts_once_more_for_each_predicate_that_is_asked_for(model: Embedder) -> None:
    tagger = untrained()
    tagger.task = replace(tagger.task, parse=parse_roles)
    app = create_app(model, {"names": tagger}, limits=Limits(tokens=20))
    items = [{"tokens": ["a"] * 4, "predicates": [0, 1, 2, 3]}]
    assert ask(app, "/predict/names", {"items": items})
    message = refusal(app, "/predict/names", {"items": [*items, ["a"]]}, 422)
    assert message == "the request has 21 tokens; expected at most 20. Send less text"


def test_a_full_queue_and_a_late_answer(model: Embedder, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker is busy: one request waits until its time is up, the next finds no place."""
    app = create_app(model, limits=Limits(waiting=1, seconds=1.0))
    begun, release = threading.Event(), threading.Event()
    encode = model.encode

    def slow(*arguments: Any, **settings: Any) -> Any:
        begun.set()
        assert release.wait(10)
        return encode(*arguments, **settings)

    monkeypatch.setattr(model, "encode", slow)
    body = {"model": "small", "input": "a"}

    async def three() -> list[Any]:
        first = asyncio.create_task(answered(app, "/v1/embeddings", body, 503))
        while not begun.is_set():
            await asyncio.sleep(0.001)
        second = asyncio.create_task(answered(app, "/v1/embeddings", body, 503))
        while sample_now() < 1:
            await asyncio.sleep(0.001)
        third = await answered(app, "/v1/embeddings", body, 429)
        late = [await first, await second]
        release.set()
        return [third, *late, await answered(app, "/v1/embeddings", body)]

    def sample_now() -> float:
        gate = app.user_middleware[0].kwargs["metrics"]
        return float(gate.registry.get_sample_value("elmo_waiting_requests"))

    refused, late, later, answer = asyncio.run(three())
    assert refused["error"]["message"] == "1 request waiting, as many as allowed; try again"
    assert late["error"]["message"] == later["error"]["message"] == "no answer within 1 s; try again"
    assert len(answer["data"]) == 1


def test_a_key_is_required_where_something_is_computed(model: Embedder) -> None:
    app = create_app(model, key="s3cret")
    body = {"sentences": ["a"]}
    expected = "expected the header Authorization: Bearer KEY with the key of this server"
    assert refusal(app, "/embed", body, 401) == f"there is no key; {expected}"
    for wrong in ("Bearer s3cre", "Bearer s3cret2", "s3cret", "Bearer clé", "Basic s3cret"):
        headers = {"authorization": wrong.encode()}
        assert refusal(app, "/embed", body, 401, headers=headers) == f"the key is wrong; {expected}"
    assert ask(app, "/embed", body, headers={"authorization": "Bearer s3cret"})["sentences"]
    assert ask(app, "/health")["status"] == "ok"
    for path in ("/metrics", "/openapi.json", "/nothing"):
        assert ask(app, path, None, 401)


def test_an_unexpected_error_says_nothing_of_the_inside(model: Embedder, monkeypatch: pytest.MonkeyPatch) -> None:
    app = create_app(model)
    monkeypatch.setattr(model, "embed", lambda *_: 1 / 0)

    async def send() -> Any:
        import httpx

        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
            return await http.post("/embed", json={"sentences": ["a"]})

    response = asyncio.run(send())
    assert response.status_code == 500
    assert response.json()["error"]["message"] == "an error of the server; its log says more"


# Metrics and the page's files


def sample(app: Any, name: str, **labels: str) -> float:
    return asyncio.run(_sample(app, name, labels))


def _sample(app: Any, name: str, labels: dict[str, str]) -> Coroutine[Any, Any, float]:
    async def read() -> float:
        async with client(app) as http:
            text = (await http.get("/metrics")).text
        (found,) = [
            one.value
            for family in text_string_to_metric_families(text)
            for one in family.samples
            if one.name == name and labels.items() <= one.labels.items()
        ]
        return float(found)

    return read()


def test_metrics_count_requests_by_path_and_status(model: Embedder) -> None:
    app = create_app(model)
    for _ in range(3):
        ask(app, "/embed", {"sentences": ["a b", "c"]})
    ask(app, "/embed", {}, 422)
    for name in ("/x/1", "/x/2"):  # a path that does not exist gets no name of its own
        ask(app, name, None, 404)
    assert sample(app, "elmo_requests_total", path="/embed", status="200") == 3
    assert sample(app, "elmo_requests_total", path="/embed", status="422") == 1
    assert sample(app, "elmo_requests_total", path="other", status="404") == 2
    assert sample(app, "elmo_request_seconds_count", path="/embed") == 4
    assert (sample(app, "elmo_batch_requests_count"), sample(app, "elmo_batch_tokens_sum")) == (3, 9)
    assert sample(app, "elmo_waiting_requests") == 0


def test_the_page_and_its_files_and_no_others(app: Any) -> None:
    async def read(path: str) -> Any:
        async with client(app) as http:
            return await http.get(path)

    page = asyncio.run(read("/"))
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert "http://" not in page.text and "https://" not in page.text
    for name in ("main.js", "words.js", "tasks.js", "roles.js", "vectors.js", "api.js", "page.css", "icon.svg"):
        assert asyncio.run(read(f"/page/{name}")).status_code == 200
    for path in ("/page/%2e%2e/app.py", "/page//etc/passwd", "/docs", "/redoc"):
        assert asyncio.run(read(path)).status_code == 404


@pytest.mark.parametrize("name", TASKS)
def test_the_page_asks_for_what_a_task_reads_and_its_example_is_an_item(name: str) -> None:
    script = (Path(create_app.__code__.co_filename).parent / "page" / "tasks.js").read_text(encoding="utf-8")
    constants = {key: json.loads(value) for key, value in re.findall(r'^const (\w+) = (".*");$', script, re.MULTILINE)}
    forms = re.search(r"^const FORMS = \{\n(.*?)^\};", script, re.MULTILINE | re.DOTALL)
    assert forms is not None
    _, *parts = re.split(r"^  (\w+): ", forms[1], flags=re.MULTILINE)
    form = dict(zip(parts[::2], parts[1::2], strict=True)).get(name)
    items: list[Any] = constants["SENTENCES"].splitlines()  # without a form of its own, a task reads lines
    if form is not None:
        fields = re.findall(r'\["(\w+)", "[^"]+", "\w+", ("[^"]+"|\w+)\]', form)
        items = [{key: json.loads(value) if value[0] == '"' else constants[value] for key, value in fields}]
        assert len(items[0]) == form.count("[") - 1
    for item in items:
        assert task_named(name).parse(item).n_tokens > 0
    assert re.search(rf"\b{name}: \w+", script[script.index("const DRAW") :])  # not the JSON of an unknown task


def test_the_description_is_json(app: Any) -> None:
    described = ask(app, "/openapi.json")
    assert json.loads(json.dumps(described)) == described
    assert {"/embed", "/v1/embeddings", "/score", "/substitutes", "/uses", "/health", "/metrics"} == set(
        described["paths"]
    )
