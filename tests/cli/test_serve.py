"""`elmo serve` as a command: it says where it listens, and stops when it is told to."""

import re
import signal
import subprocess
from pathlib import Path

import httpx
import pytest

from embedders import assert_refused, command, elmo, embedder, environment, write_model
from serving import stopping_when_started


def test_the_command_serves_until_a_signal(tmp_path: Path) -> None:
    """In a process of its own, with a key in the environment; SIGTERM ends it with code 0."""
    embedder().save(tmp_path / "model")
    started = subprocess.Popen(
        command("serve", "--model", tmp_path / "model", "--port", 0),
        env=environment(ELMO_SERVE_KEY="s3cret"),
        stderr=subprocess.PIPE,
        text=True,
    )
    assert started.stderr is not None
    try:
        line = started.stderr.readline()
        found = re.fullmatch(r"Serving \S+ at (http://127\.0\.0\.1:\d+)\. Ctrl-C stops it\.\n", line)
        assert found is not None, line
        headers = {"Authorization": "Bearer s3cret"}
        body = {"sentences": ["It works."]}
        assert httpx.post(f"{found[1]}/embed", json=body, headers=headers, timeout=20).status_code == 200
        assert httpx.post(f"{found[1]}/embed", json=body).status_code == 401
        started.send_signal(signal.SIGTERM)
        assert started.wait(20) == 0
        assert started.stderr.read() == "elmo: stopped\n"
    finally:
        started.kill()
        started.wait()


def test_a_server_for_others_without_a_key_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ELMO_SERVE_KEY", raising=False)
    with stopping_when_started():
        ended = elmo("serve", "--model", write_model(tmp_path / "model"), "--host", "0.0.0.0", "--port", 0)
    assert ended.code == 0
    assert "Anybody who reaches 0.0.0.0 can use it: set ELMO_SERVE_KEY to require a key." in ended.err


def test_wrong_arguments_are_one_line(tmp_path: Path) -> None:
    assert_refused(elmo("serve", "--max-seconds", "-1"), "seconds is -1.0; expected a positive number")
    assert_refused(elmo("serve", "--model", tmp_path / "no", "--port", 0), "no such")
