"""One thread per process: the models are tiny, and PyTorch's threads wait long for each other on a busy machine."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

if not torch.cuda.is_available():
    # Triton looks once, when it is first imported: without a GPU its interpreter runs the kernels, on a CPU's tensors.
    os.environ.setdefault("TRITON_INTERPRET", "1")
