"""A SERVER, FROM NAMES: what `elmo serve` does."""

import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elmo.embed.embedder import load
from elmo.errors import ConfigError, ElmoError
from elmo.packaged import DEFAULT
from elmo.serve.limits import Limits
from elmo.tasks.predict import Predictor, load_task
from elmo.training.run import MODEL
from elmo.weights import installed

if TYPE_CHECKING:
    from fastapi import FastAPI

LOCAL = "127.0.0.1"  # reached from this machine only
PORT = 8000
STOP_SECONDS = 30  # for requests that are being answered when the server is told to stop


def serve(
    model: str | Path = DEFAULT,
    *,
    host: str = LOCAL,
    port: int = PORT,
    tasks: Sequence[str | Path] | None = None,
    key: str | None = None,
    limits: Limits | None = None,
    device: str = "auto",
    precision: str = "float32",
    ready: Callable[[str], None] | None = None,
) -> None:
    """Serve a model until SIGINT or SIGTERM; requests that have begun are answered first.

    `tasks` are trained tasks, installed names or folders; by default all that are installed. `port` 0 is a free one.
    `ready` is called with the address, when the server answers. With a `key`, requests need "Authorization: Bearer
    KEY".
    """
    import_server()
    with listening(host, port) as listener:  # before the models are read
        found = load_tasks(tasks, device)
        app = app_of(model, found, key=key, limits=limits, device=device, precision=precision)
        server = server_of(app)
        if ready is not None:
            ready(address(listener))
        server.run([listener])


def app_of(
    model: str | Path,
    tasks: Mapping[str, Predictor],
    *,
    key: str | None = None,
    limits: Limits | None = None,
    device: str = "auto",
    precision: str = "float32",
) -> "FastAPI":
    """Load a model, with its softmax if it has one, and return the application."""
    from elmo.serve.app import create_app

    if key is not None and (not key or not key.isascii() or not key.isprintable() or " " in key):
        raise ConfigError("the key is empty or has spaces or characters outside ASCII; expected letters and digits")
    embedder = load(model, device=device, precision=precision, softmax=True)
    embedder.name = Path(model).name  # never a path: clients are shown it
    return create_app(embedder, tasks, limits=limits, key=key)


def load_tasks(tasks: Sequence[str | Path] | None, device: str = "auto") -> dict[str, Predictor]:
    """Load trained tasks, by name; None: all that are installed."""
    chosen = list(installed.installed(installed.TASKS)) if tasks is None else list(tasks)
    found = {_name_of(Path(task)): load_task(task, device) for task in chosen}
    if len(found) < len(chosen):
        raise ConfigError(f"two of the tasks {', '.join(map(str, chosen))} have the same name; rename a folder")
    return found


def _name_of(task: Path) -> str:
    """Return the name of an installed task, or of a folder: for the `model` of a run, that of the run."""
    folder = task if task.name else task.resolve()  # "." has no name
    return folder.resolve().parent.name if folder.name == MODEL and folder.is_dir() else folder.name


@contextmanager
def in_background(app: "FastAPI", host: str = LOCAL, port: int = 0) -> Iterator[str]:
    """Run an application on another thread inside the block; the value is its address."""
    with listening(host, port) as listener:
        server = server_of(app)
        thread = threading.Thread(target=server.run, args=([listener],), name="elmo-server")
        thread.start()
        try:
            while not server.started and thread.is_alive():
                time.sleep(0.01)
            yield address(listener)
        finally:
            server.should_exit = True
            thread.join()


@contextmanager
def listening(host: str, port: int) -> Iterator[socket.socket]:
    """Open the port, or say why it cannot be opened."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.create_server((host, port), family=family, backlog=2048)
        # An answer is sent in two pieces. Without this, the second waits 40 ms for the client to confirm the first.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except (OSError, OverflowError) as error:
        reason = str(error).removeprefix(f"[Errno {getattr(error, 'errno', None)}] ").partition(" (while")[0]
        raise ElmoError(f"{host}:{port}: cannot listen there ({reason}); choose another host or port") from None
    with listener:
        yield listener


def address(listener: socket.socket) -> str:
    """Return the URL of a server."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def server_of(app: "FastAPI") -> Any:
    """Return the server of an application; its log has errors only."""
    import uvicorn

    return uvicorn.Server(
        uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=STOP_SECONDS,
            ws="none",
        )
    )


def import_server() -> None:
    """Check that the libraries of the extra are installed."""
    try:
        import fastapi  # noqa: F401
        import prometheus_client  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise ElmoError(f"the server needs {error.name}: pip install 'elmo-torch[serve]'") from None
