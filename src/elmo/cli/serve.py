"""`elmo serve`: a model as a server, with a page that shows what it computes."""

import os
import sys
from typing import Annotated

import typer

from elmo.cli.arguments import DeviceOption, ModelOption, PrecisionOption, ThreadsOption, use_threads
from elmo.cli.interrupt import interrupted_by_sigterm
from elmo.packaged import DEFAULT

KEY = "ELMO_SERVE_KEY"


def serve(
    model: ModelOption = DEFAULT,
    host: Annotated[
        str, typer.Option(help="Address to listen on. The default can be reached from this machine only.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(metavar="N", help="Port to listen on; 0 means any free one.", min=0)] = 8000,
    task: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TASK",
            help="Name or folder of a trained task. Can be given several times.  [default: all installed]",
        ),
    ] = None,
    max_body: Annotated[int, typer.Option(metavar="N", help="Largest size of a request, in bytes.", min=1)] = 1 << 20,
    max_tokens: Annotated[int, typer.Option(metavar="N", help="Largest number of tokens in a request.", min=1)] = 8192,
    max_waiting: Annotated[int, typer.Option(metavar="N", help="Largest number of requests that wait.", min=1)] = 256,
    max_seconds: Annotated[
        float, typer.Option(metavar="X", help="Answer a request within this many seconds, or refuse it.")
    ] = 30.0,
    batch_tokens: Annotated[
        int, typer.Option(metavar="N", help="Compute waiting requests together, up to this many tokens.", min=1)
    ] = 4096,
    device: DeviceOption = "auto",
    precision: PrecisionOption = "float32",
    threads: ThreadsOption = None,
) -> None:
    """Serve a model over HTTP, with a page to explore it.

    Open the address that is printed in a browser, or send requests: /embed, /v1/embeddings (as OpenAI's), /score,
    /substitutes, /uses, /predict/TASK, /health, /metrics; /openapi.json describes them. Requests that arrive together
    are computed together. If the environment variable ELMO_SERVE_KEY is set, requests need the header
    "Authorization: Bearer KEY". On Ctrl-C or SIGTERM the server answers the requests it has, and stops. It needs the
    extra `serve`: pip install 'elmo-torch[serve]'.

    \b
    Examples:
      $ elmo serve
      $ elmo serve --model model --port 8080 --task tagger
    """
    from elmo.serve.limits import Limits
    from elmo.serve.run import serve as run

    use_threads(threads)
    limits = Limits(max_body, max_tokens, max_waiting, max_seconds, batch_tokens)
    key = os.environ.get(KEY)

    def ready(address: str) -> None:
        print(f"Serving {model} at {address}. Ctrl-C stops it.", file=sys.stderr)
        if key is None and host not in ("127.0.0.1", "::1", "localhost"):
            print(f"Anybody who reaches {host} can use it: set {KEY} to require a key.", file=sys.stderr)

    with interrupted_by_sigterm():
        try:
            run(
                model, host=host, port=port, tasks=task, key=key, limits=limits, device=device, precision=precision,
                ready=ready,
            )  # fmt: skip
        except KeyboardInterrupt:  # raised again by uvicorn after it has stopped
            print("elmo: stopped", file=sys.stderr)
