"""Settings for all tests.

One thread per process: the models are tiny, the tests run in parallel, and PyTorch's threads would wait for each other.
Each process has its own, empty cache: the user's is neither used nor changed.
"""

import atexit
import os
import shutil
import signal
import tempfile

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["ELMO_CACHE"] = tempfile.mkdtemp(prefix="elmo-tests-")
atexit.register(shutil.rmtree, os.environ["ELMO_CACHE"], ignore_errors=True)
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell's background jobs ignore it, and so do their children
    signal.signal(signal.SIGINT, signal.default_int_handler)

import torch  # noqa: E402

if not torch.cuda.is_available():
    # Read by Triton when it is first imported: without a GPU, its interpreter runs the kernels on CPU tensors.
    os.environ.setdefault("TRITON_INTERPRET", "1")
