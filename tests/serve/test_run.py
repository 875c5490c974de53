"""From names to a server that listens, answers and stops; and OpenAI's own client against it."""

import asyncio
import re
import shutil
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import openai
import pytest

from distributions import new_site
from elmo.embed.embedder import Embedder
from elmo.errors import ConfigError, ElmoError, WeightsError
from elmo.serve.app import create_app
from elmo.serve.limits import Limits
from elmo.serve.run import app_of, in_background, listening, load_tasks, serve
from embedders import assert_same_bits, write_model
from serve.small_tasks import ENTITIES, install_names
from serving import language_model


@pytest.fixture(scope="module")
def model() -> Embedder:
    return language_model()


@pytest.fixture(scope="module")
def address(model: Embedder) -> Iterator[str]:
    with in_background(create_app(model, key="s3cret")) as address:
        yield address


def test_it_listens_on_this_machine_only(address: str) -> None:
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+", address)
    assert httpx.get(f"{address}/health").json()["model"] == "small"


def test_openais_client_gets_the_vectors_of_encode(address: str, model: Embedder) -> None:
    client = openai.OpenAI(base_url=f"{address}/v1", api_key="s3cret", max_retries=0)
    texts = ["The cat sat.", "a dog ran on"]
    wanted = list(model.encode(texts, normalize=True))
    for settings in ({}, {"encoding_format": "float"}, {"dimensions": 10, "user": "somebody"}):
        answer = client.embeddings.create(model="small", input=texts, **settings)
        assert_same_bits([np.array(one.embedding, dtype=np.float32) for one in answer.data], wanted)
        assert [one.index for one in answer.data] == [0, 1]
        assert (answer.usage.prompt_tokens, answer.usage.total_tokens) == (8, 8)
    (one,) = client.embeddings.create(model="small", input=texts[0]).data
    assert np.linalg.norm(one.embedding) == pytest.approx(1, abs=1e-6)


def test_openais_client_understands_refusals(address: str) -> None:
    client = openai.OpenAI(base_url=f"{address}/v1", api_key="s3cret", max_retries=0)
    with pytest.raises(openai.NotFoundError, match="model is 'gpt'; this server has the model 'small'"):
        client.embeddings.create(model="gpt", input="a")
    with pytest.raises(openai.UnprocessableEntityError, match="tokens are not accepted, because their numbers"):
        client.embeddings.create(model="small", input=[[1, 2]])
    with pytest.raises(openai.AuthenticationError, match="the key is wrong"):
        client.with_options(api_key="other").embeddings.create(model="small", input="a")


def test_a_body_that_does_not_arrive_is_given_up(model: Embedder) -> None:
    with in_background(create_app(model, limits=Limits(seconds=0.2))) as address:
        host, port = address.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(b"POST /embed HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n{")
            connection.settimeout(10)
            assert connection.recv(1000).startswith(b"HTTP/1.1 408 ")


def test_requests_that_have_begun_are_answered_before_the_server_stops(
    model: Embedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, release = threading.Event(), threading.Event()
    score_all = model.score_all

    def slow(*arguments: Any) -> Any:
        begun.set()
        assert release.wait(10)
        return score_all(*arguments)

    monkeypatch.setattr(model, "score_all", slow)
    answers: list[Any] = []
    with in_background(create_app(model)) as address:
        body = {"sentences": ["a cat"]}
        thread = threading.Thread(target=lambda: answers.append(httpx.post(f"{address}/score", json=body)))
        thread.start()
        assert begun.wait(10)
        threading.Timer(0.2, release.set).start()  # after the block has told the server to stop
    thread.join()
    assert answers[0].status_code == 200
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{address}/health")


def test_installed_tasks_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_names(new_site(tmp_path, monkeypatch), tmp_path / "models")
    tasks = load_tasks(None, "cpu")
    assert list(tasks) == ["names"]
    (answer,) = tasks["names"].predict([list(ENTITIES[0].texts[0])])
    assert [one["type"] for one in answer["entities"]] == ["PER", "PER", "LOC"]
    assert load_tasks([], "cpu") == {}
    folder = tmp_path / "models" / "names"
    assert list(load_tasks([folder], "cpu")) == ["names"]
    monkeypatch.chdir(folder)
    assert list(load_tasks(["."], "cpu")) == ["names"]
    runs = [shutil.copytree(folder, tmp_path / run / "model") for run in ("first", "second")]
    assert list(load_tasks(runs, "cpu")) == ["first", "second"]
    monkeypatch.chdir(runs[1])
    assert list(load_tasks([".", folder], "cpu")) == ["second", "names"]
    with pytest.raises(ConfigError, match="have the same name; rename a folder"):
        load_tasks(["names", folder], "cpu")
    with pytest.raises(WeightsError, match="no such folder, and no trained task of that name"):
        load_tasks(["nothing"], "cpu")


def test_clients_are_not_told_where_the_model_lies(tmp_path: Path) -> None:
    app = app_of(write_model(tmp_path / "secret-place" / "mine"), {}, device="cpu")

    async def health() -> Any:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as http:
            return (await http.get("/health")).json()

    assert asyncio.run(health())["model"] == "mine"


@pytest.mark.parametrize("key", ["", "two words", "clé", "a\nb"])
def test_a_key_that_no_header_can_have_is_refused(key: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="the key is empty or has spaces or characters outside ASCII"):
        app_of(tmp_path, {}, key=key)


@pytest.mark.parametrize("changes", [{"tokens": 0}, {"seconds": -1.0}, {"seconds": float("inf")}, {"waiting": 0}])
def test_limits_are_positive(changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="expected a positive number"):
        Limits(**changes)


def test_a_port_that_is_taken_is_refused_before_the_model_is_read() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ElmoError, match=rf"127\.0\.0\.1:{port}: cannot listen there \(Address already in use\)"):
            serve("no-such-model", port=port)
    with pytest.raises(ElmoError, match="cannot listen there"):
        serve("no-such-model", port=99_999)


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(ElmoError, match=r"the server needs uvicorn: pip install 'elmo-torch\[serve\]'"):
        serve()


def test_answers_are_not_held_back() -> None:
    with listening("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname()):
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
