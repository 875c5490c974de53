"""SENTENCES ─▶ ONE PADDED `Layers`: what a model of the user's own reads, with the word cache in use."""

from collections.abc import Iterable
from functools import partial

import torch
from torch import Tensor

from elmo.embed.arrays import STATES
from elmo.embed.runner import Runner
from elmo.embed.words import with_boundaries
from elmo.errors import ConfigError
from elmo.model.layers import Layers
from elmo.model.packing import Packing


def padded_layers(
    runner: Runner, sentences: Iterable[list[str]], *, boundaries: bool, state: str, batch_tokens: int | None
) -> Layers:
    """Compute what `Embedder.layers` returns, from checked sentences."""
    if state not in STATES:
        raise ConfigError(f"state is {state!r}; expected one of {', '.join(STATES)}")
    budget = runner.batch_tokens(batch_tokens)
    tokens = list(sentences)
    bilm = runner.module
    lengths = [len(sentence) + 2 * boundaries for sentence in tokens]
    steps = torch.arange(max(lengths, default=0), device=runner.device)
    mask = steps < torch.tensor(lengths, device=runner.device, dtype=torch.long)[:, None]
    # No inference tensor: a network that is trained on top of it may save it for its backward pass.
    with torch.inference_mode(False), torch.no_grad():
        activations = bilm.weight.new_zeros(bilm.config.n_layers, *mask.shape, bilm.config.output_dim)
        if state == "carried":
            computed = runner.carry(map(with_boundaries, tokens), _of_sentences, batch_size=max(len(tokens), 1))
            if not boundaries:
                computed = (layers[:, 1:-1] for layers in computed)
        elif boundaries:
            start = partial(runner.before, state)
            computed = runner.independent(map(with_boundaries, tokens), _of_sentences, start, batch_tokens=budget)
        else:
            empty = partial(activations.new_empty, (len(activations), 0, activations.shape[-1]))
            start = partial(runner.after, state)
            computed = runner.independent(tokens, _of_sentences, start, batch_tokens=budget, empty=empty)
        for row, layers in enumerate(computed):
            activations[:, row, : layers.shape[1]] = layers
    return Layers(activations, mask)


def _of_sentences(batch: list[list[str]], layers: list[Tensor], packing: Packing) -> list[Tensor]:
    """L+1 layers (N, 2D), packed ─▶ (L+1, tokens, 2D) for each sentence."""
    stacked = torch.stack(layers)
    return [stacked[:, torch.from_numpy(rows).to(stacked.device)] for rows in packing.of_sentences()]
