"""The command `elmo` in processes of its own that start at once: forked from a server that has imported PyTorch."""

import os
import socket
import sys
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path

from elmo.cli import main

CONTEXT = get_context("forkserver")
CONTEXT.set_forkserver_preload(
    # The last two are imported by the first optimizer and the first progress bar, which takes seconds.
    ["elmo.cli", "elmo.pretrain.corpus_source", "elmo.pretrain.finetune", "torch._dynamo", "rich.progress"]
)


def start_elmo(*arguments: object, log: Path, processes: int = 1) -> list[BaseProcess]:
    """Start `elmo`; what it prints goes to `log`. Several processes find each other as those of torchrun do."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    started = []
    for rank in range(processes):
        variables = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": processes, "LOCAL_WORLD_SIZE": processes}
        address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        environment = {name: str(value) for name, value in (variables | address).items()} if processes > 1 else {}
        process = CONTEXT.Process(target=_run, args=([*map(str, arguments)], str(log), environment))
        process.start()
        started.append(process)
    return started


def _run(arguments: list[str], log: str, environment: dict[str, str]) -> None:
    os.environ.update(environment)
    sys.argv = ["elmo", *arguments]
    with Path(log).open("ab") as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
    main()
