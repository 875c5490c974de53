"""One thread per process: the models are tiny, and PyTorch's threads wait long for each other on a busy machine."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
