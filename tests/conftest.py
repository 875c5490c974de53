"""What all tests run under.

One thread per process: the models are tiny, and PyTorch's threads wait long for each other on a busy machine. And a
cache of their own: nothing is left in the user's, nothing in it can help.
"""

import atexit
import os
import shutil
import tempfile

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["ELMO_CACHE"] = tempfile.mkdtemp(prefix="elmo-tests-")
atexit.register(shutil.rmtree, os.environ["ELMO_CACHE"], ignore_errors=True)

import torch  # noqa: E402

if not torch.cuda.is_available():
    # Triton looks once, when it is first imported: without a GPU its interpreter runs the kernels, on a CPU's tensors.
    os.environ.setdefault("TRITON_INTERPRET", "1")
