"""THE SOURCES OF A RUN: its biLM, the layers of its texts, and the fingerprints of its files."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from elmo.embed.embedder import Embedder, load
from elmo.tasks.examples import Splits, fingerprint
from elmo.tasks.frozen import FrozenLayers, layers_folder
from elmo.tasks.task import Task
from elmo.training.run import Request, Source, fingerprint_of_file, fingerprint_of_tensors

PATHS = ("inputs.vectors", "inputs.elmo.model")  # they may change: the fingerprints say whether the content is the same
MAY_CHANGE = ("train.epochs", "train.patience", "train.device", "train.tensorboard", *PATHS)  # when a run is resumed


def load_embedder(config: Any, device: torch.device) -> Embedder | None:
    """Load the biLM of a config; None if it has none."""
    elmo = config.inputs.elmo
    return load(elmo.model, device=str(device)) if elmo.placement != "none" else None


def prepare_layers(
    splits: Splits,
    config: Any,
    embedder: Embedder | None,
    *,
    folder: Path | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> FrozenLayers | None:
    """Compute the layers of all texts, or find them in `folder` (by default the cache); None if no biLM is frozen."""
    if embedder is None or config.inputs.elmo.trainable:
        return None
    texts = (text for part in splits.values() for example in part for text in example.texts)
    return FrozenLayers(embedder, texts, folder or layers_folder(), progress, config.inputs.elmo.state)


def request(task: Task, config: Any, splits: Splits, data: str, embedder: Embedder | None) -> Request:
    """Describe a run of this config on this data, so that a resumed run can be compared with it; `data` is its path."""
    inputs = config.inputs
    sources = {"data": Source(data, fingerprint(splits))}
    if inputs.vectors is not None:
        sources["vectors"] = Source(inputs.vectors, fingerprint_of_file(Path(inputs.vectors).expanduser()))
    if embedder is not None:
        sources["biLM"] = Source(inputs.elmo.model, fingerprint_of_tensors(embedder.bilm.state_dict()))
    return Request(task.name, config, sources, MAY_CHANGE)
