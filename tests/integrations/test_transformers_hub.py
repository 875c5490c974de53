"""A model is uploaded by the Hub's own client, to a server on this computer, with the card that is written for it."""

import base64
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import elmo
from elmo.errors import ConfigError
from embedders import assert_close, fresh, write_model

pytest.importorskip("transformers", reason="needs transformers: pip install 'elmo-torch[transformers]'")

from huggingface_hub import ModelCard, constants
from transformers import AutoModel

from elmo.integrations.transformers import ElmoForTokenClassification, ElmoModel

LINES_OF_A_CARD = "---\nlanguage: [nb, nn]\nlicense: cc-by-4.0\n---\n# A Norwegian ELMo\n"


class Hub:
    """The routes that an upload needs; `files` are those of its one repository."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.tokens: set[str | None] = set()
        self.private: Any = None
        self.address = ""

    def answer(self, path: str, body: bytes) -> tuple[int, dict[str, Any]]:
        if path == "/api/repos/create":
            asked = json.loads(body)
            self.private = asked.get("visibility") == "private" or asked.get("private")
            return 200, {"url": f"{self.address}/me/{asked['name']}"}
        if path == "/api/validate-yaml":
            return 200, {"errors": [], "warnings": []}
        if path == "/api/models/me/mine/preupload/main":
            names = [file["path"] for file in json.loads(body)["files"]]
            return 200, {"files": [{"path": name, "uploadMode": "regular", "shouldIgnore": False} for name in names]}
        if path == "/api/models/me/mine/commit/main":
            for line in map(json.loads, body.splitlines()):
                if line["key"] == "file":
                    self.files[line["value"]["path"]] = base64.b64decode(line["value"]["content"])
            return 200, {"commitUrl": f"{self.address}/me/mine/commit/1", "commitOid": "1" * 40}
        return (200 if path.rpartition("/")[2] in self.files else 404), {}


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    hub = Hub()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, answer = hub.answer(self.path, self.rfile.read(int(self.headers.get("Content-Length") or 0)))
            hub.tokens.add(self.headers.get("Authorization"))
            content = json.dumps(answer).encode()
            self.send_response(status)
            found = {"ETag": '"1"', "X-Repo-Commit": "1" * 40} if status == 200 else {"X-Error-Code": "EntryNotFound"}
            for name, value in {"Content-Length": str(len(content)), **found}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        do_POST = do_HEAD = do_GET  # noqa: N815

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(constants, "ENDPOINT", hub.address)
    monkeypatch.setattr(
        constants, "HUGGINGFACE_CO_URL_TEMPLATE", hub.address + "/{repo_id}/resolve/{revision}/{filename}"
    )
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    yield hub
    server.shutdown()
    thread.join()
    server.server_close()


def card(text: bytes | str) -> ModelCard:
    return ModelCard(text.decode() if isinstance(text, bytes) else text, ignore_metadata_errors=False)


def test_what_is_uploaded_can_be_loaded(hub: Hub, tmp_path: Path) -> None:
    model = AutoModel.from_pretrained(write_model(tmp_path / "model"))
    model.push_to_hub("mine", token="secret", private=True, language="en", license="mit")
    assert sorted(hub.files) == ["README.md", "config.json", "model.safetensors", "tokenizer_config.json"]
    assert "Bearer secret" in hub.tokens and hub.private is True
    head = card(hub.files["README.md"]).data
    assert (head.library_name, head.pipeline_tag, head.license, head.language) == (
        *("elmo-torch", "feature-extraction", "mit", "en"),
    )
    (tmp_path / "downloaded").mkdir()
    for name, content in hub.files.items():
        (tmp_path / "downloaded" / name).write_bytes(content)
    found = next(elmo.load(tmp_path / "downloaded", device="cpu").embed([["The", "cat"]]))
    assert_close(found, fresh(["The", "cat"]))


def test_a_card_that_is_there_stays(hub: Hub, tmp_path: Path) -> None:
    hub.files = {"README.md": b"mine"}
    model = ElmoModel.from_elmo(write_model(tmp_path / "model"))
    model.push_to_hub("mine", token="secret")
    assert hub.files["README.md"] == b"mine"
    assert len(hub.files) == 4
    with pytest.raises(ConfigError, match=r"save_pretrained\(\) does not upload; call push_to_hub\(name\)"):
        model.save_pretrained(tmp_path / "saved", push_to_hub=True)
    assert not (tmp_path / "saved").exists()


def test_the_card_has_the_languages_and_the_licence_of_the_models_origin(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model")
    plain = ElmoModel.from_elmo(folder).card()
    assert (card(plain).data.license, card(plain).data.language) == (None, None)
    assert "Not written yet: the data that it was trained on, its licence, how well it does." in plain
    (folder / "README.md").write_text(LINES_OF_A_CARD, encoding="utf-8")
    tagger = ElmoForTokenClassification.from_elmo(folder, id2label={0: "O", 1: "NAME"})
    tagger.save_pretrained(tmp_path / "tagger")
    for found in (
        AutoModel.from_pretrained(folder).card(),
        ElmoModel.from_elmo(folder).card(),
        (tmp_path / "tagger" / "README.md").read_text(encoding="utf-8"),
        ElmoForTokenClassification.from_pretrained(tmp_path / "tagger").card(),
    ):
        assert (card(found).data.license, card(found).data.language) == ("cc-by-4.0", ["nb", "nn"])
        assert "its licence" not in found
    assert card(tagger.card()).data.pipeline_tag == "token-classification"
    given = card(tagger.card(license="mit")).data
    assert (given.license, given.language) == ("mit", ["nb", "nn"])
    (folder / "README.md").write_text("---\nlicense: [\n---\n", encoding="utf-8")
    assert card(ElmoModel.from_elmo(folder).card()).data.license is None
