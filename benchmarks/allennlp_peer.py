"""The ELMo of AllenNLP 2.10.1 itself, on today's PyTorch: sentences ─▶ layers. `cpu_speed.py --allennlp` measures it.

Its dependencies cannot be installed beside today's PyTorch, and ELMo uses hardly any of them:

    pip install --no-deps --target FOLDER allennlp==2.10.1

What is imported but not used by ELMo is replaced by empty modules.
"""

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
import torch.utils.data  # before the empty modules: PyTorch itself imports some of them if they are there

UNUSED = {
    *("_jsonnet", "base58", "boto3", "cached_path", "datasets", "fairscale", "huggingface_hub", "jsonnet", "lmdb"),
    *("more_itertools", "nltk", "rjsonnet", "sklearn", "spacy", "tensorboardX", "termcolor", "torchvision"),
    *("transformers", "wandb"),
}


class EmptyModule(ModuleType):
    """A module in which every name is an empty class."""

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


class EmptyModules(MetaPathFinder, Loader):
    """Finds an empty module wherever one of `UNUSED` is imported."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        return ModuleSpec(name, self, is_package=True) if name.split(".")[0] in UNUSED else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return EmptyModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


class AllenNLP:
    """AllenNLP's biLM, loaded from the published format: an HDF5 file and its options."""

    def __init__(self, folder: Path, options: Path, weights: Path) -> None:
        sys.path.insert(0, str(folder))
        finder = EmptyModules()
        sys.meta_path.insert(0, finder)
        try:
            elmo, lstm = (importlib.import_module(f"allennlp.modules.{name}") for name in ("elmo", "elmo_lstm"))
        finally:
            sys.meta_path.remove(finder)
        elmo.cached_path = lstm.cached_path = str  # the files are here
        self.ids = elmo.batch_to_ids
        self.bilm = elmo._ElmoBiLm(str(options), str(weights)).eval()

    @torch.no_grad()
    def embed(self, sentences: Sequence[list[str]]) -> list[np.ndarray]:
        """Return an array (L+1, tokens, 2D) for each sentence of a batch, from an initial state of zeros."""
        self.bilm._elmo_lstm.reset_states()
        layers = torch.stack(self.bilm(self.ids(sentences))["activations"]).numpy()  # (L+1, B, T+2, 2D)
        return [layers[:, row, 1 : len(sentence) + 1] for row, sentence in enumerate(sentences)]
