"""THE MACHINE AND THE SOFTWARE that computed a result."""

import os
import platform
import shlex
import sys
from importlib.metadata import version
from pathlib import Path

from elmo import __version__


def machine() -> dict[str, str]:
    """Describe the machine: processor, cores, GPU, and the versions of the software."""
    import torch

    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "none"
    return {
        "processor": f"{_processor()}, {os.cpu_count()} cores",
        "GPU": gpu,
        "system": f"{platform.system()} {platform.machine()}",
        "elmo-torch": __version__,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "numpy": version("numpy"),
    }


def command_line() -> str:
    """Return the command that is running, as it can be typed."""
    name = Path(sys.argv[0]).name
    return shlex.join(["elmo" if name == "__main__.py" else name, *sys.argv[1:]])


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, None) or platform.processor() or platform.machine()
