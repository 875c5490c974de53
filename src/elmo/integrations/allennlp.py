"""AllenNLP'S NAMES: old code runs with another import, and gives the same numbers.

    from allennlp.modules.elmo import Elmo, batch_to_ids          ─▶  from elmo.integrations.allennlp import …
    from allennlp.commands.elmo import ElmoEmbedder               ─▶  from elmo.integrations.allennlp import …

As there, the LSTMs' state is carried from batch to batch, row by row: the same sentence gives other vectors in the next
call. `stateful = False` on the biLM ends this, and `reset_states()` starts over.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import IO, Any

import h5py
import numpy as np
import torch
from torch import Tensor, nn

from elmo.embed.embedder import Embedder
from elmo.embed.selection import Array, Selection
from elmo.embed.words import WordEncoder
from elmo.errors import ConfigError, DataError
from elmo.files import locked, new_hdf5, refuse_existing, replacing
from elmo.model.bilm import BiLM
from elmo.model.device import device_named, without_autocast
from elmo.model.layers import Layers
from elmo.model.lstm import State
from elmo.model.packing import Packing
from elmo.model.scalar_mix import bilm_tf_layer_norm
from elmo.text.characters import BEGIN_SENTENCE, END_SENTENCE, sentence_ids, word_ids
from elmo.weights import source
from elmo.weights.download import cache_folder, download
from elmo.weights.published import PUBLISHED

MAX_CHARACTERS = 50
DEFAULT_BATCH_SIZE = 64
DEFAULT_OPTIONS_FILE = PUBLISHED["original"].options_url
DEFAULT_WEIGHT_FILE = PUBLISHED["original"].weights_url


def batch_to_ids(batch: Sequence[Sequence[str]], max_characters: int = MAX_CHARACTERS) -> Tensor:
    """Return the character ids of tokenized sentences, (B, T, C), without boundaries; zeros where there is no token.

    `max_characters` is for models of another size than 50, which AllenNLP cannot read.
    """
    sentences = [_tokens(row, sentence) for row, sentence in enumerate(batch)]
    ids = sentence_ids(sentences, max_characters)[:, 1:-1]
    for row, sentence in zip(ids, sentences, strict=True):
        row[len(sentence) :] = 0  # the end of a shorter sentence
    return torch.from_numpy(ids)


class ElmoBiLm(nn.Module):
    """A biLM that keeps its state: AllenNLP's `_ElmoBiLm`.

    The files may be paths, URLs, or for `weight_file` any model that `elmo.load` reads, without an options file.
    `vocab_to_cache` are words whose token vectors are computed once; word ids are positions in it, 0 is padding.
    """

    def __init__(
        self,
        options_file: str | Path | None,
        weight_file: str | Path,
        requires_grad: bool = False,
        vocab_to_cache: Sequence[str] | None = None,
    ) -> None:
        super().__init__()
        if requires_grad and vocab_to_cache is not None:
            raise ConfigError(
                "requires_grad=True trains the token encoder, but vocab_to_cache keeps its vectors; give one of them"
            )
        read = source.read(_local(weight_file), options=None if options_file is None else _local(options_file))
        self.bilm: BiLM = read.bilm.requires_grad_(requires_grad)
        self.num_layers = self.bilm.config.n_layers
        self.stateful = True
        self._state: State | None = None
        self._requires_grad = requires_grad
        cnn = self.bilm.config.char_cnn
        if cnn is None:
            raise ConfigError(f"{weight_file}: reads words, not characters; elmo.load() is for such a model")
        marks = word_ids([BEGIN_SENTENCE, END_SENTENCE], cnn.max_characters_per_token)
        self._marks: Tensor
        self._cached: Tensor | None
        self.register_buffer("_marks", torch.from_numpy(marks), persistent=False)  # ids of the boundaries
        self.register_buffer("_cached", None, persistent=False)  # (2 + words, D): the boundaries first
        if vocab_to_cache is not None:
            self._cached = WordEncoder(self.bilm)([BEGIN_SENTENCE, END_SENTENCE, *vocab_to_cache]).clone()

    def get_output_dim(self) -> int:
        """Return 2D, the width of every layer."""
        return self.bilm.config.output_dim

    def reset_states(self) -> None:
        """Start the next batch from zeros."""
        self._state = None

    def forward(self, inputs: Tensor, word_inputs: Tensor | None = None) -> dict[str, Any]:
        """Run character ids (B, T, C) without boundaries, or where words are cached their ids (B, T).

        Returns `activations`, L+1 tensors (B, T+2, 2D), and `mask` (B, T+2); both include the boundaries.
        """
        with torch.set_grad_enabled(self._requires_grad and torch.is_grad_enabled()):
            batch = len(inputs)
            before = self._before(batch)
            start = State(*(part[:, :, :batch] for part in before))
            vectors = self._cached
            if vectors is not None and word_inputs is not None and bool((word_inputs < len(vectors) - 2).all()):
                layers, after = self._from_words(word_inputs, vectors, start)
            else:  # also where a word is not cached
                ids = _with_boundaries(inputs, (inputs > 0).any(dim=-1), self._marks)
                layers, after = self.bilm(ids, start)
        if self.stateful:  # a smaller batch leaves the states of further rows unchanged
            pairs = zip(after, before, strict=True)
            self._state = State(*(torch.cat([new.detach(), old[:, :, batch:]], dim=2) for new, old in pairs))
        return {"activations": list(layers.activations), "mask": layers.mask}

    def _before(self, batch: int) -> State:
        """Return the state that the last batch left, with at least `batch` rows; new rows are zeros."""
        zeros = self.bilm.zero_state(batch)
        if self._state is None or not self.stateful:
            return zeros
        pairs = zip(self._state, zeros, strict=True)
        return State(*(torch.cat([part.to(zero), zero[:, :, part.shape[2] :]], dim=2) for part, zero in pairs))

    def _from_words(self, words: Tensor, vectors: Tensor, state: State) -> tuple[Layers, State]:
        """Look up token vectors by the words' ids (B, T), and run the LSTMs."""
        mask = words > 0
        rows = _with_boundaries((words + 2)[..., None], mask, words.new_tensor([[0], [1]]))[..., 0]
        mask = torch.nn.functional.pad(mask, (2, 0), value=True)
        packing = Packing.of(mask.sum(dim=1).tolist())
        sentence, step = (torch.from_numpy(part).to(words.device) for part in (packing.sentence, packing.step))
        with without_autocast(self.bilm.weight):
            packed, after = self.bilm.contextualize(vectors[rows[sentence, step]], packing, state)
        activations = packed[0].new_zeros(len(packed), *mask.shape, packed[0].shape[1])
        activations[:, sentence, step] = torch.stack(packed)
        return Layers(activations, mask), after


class ScalarMix(nn.Module):
    """A weighted mean of tensors, times γ, with AllenNLP's parameter names.

    The layer norm has one mean and variance for all tokens of a batch; unlike bilm-tf's, boundaries are counted.
    """

    def __init__(
        self,
        mixture_size: int,
        do_layer_norm: bool = False,
        initial_scalar_parameters: Sequence[float] | None = None,
        trainable: bool = True,
    ) -> None:
        super().__init__()
        values = [0.0] * mixture_size if initial_scalar_parameters is None else list(initial_scalar_parameters)
        if len(values) != mixture_size:
            raise ConfigError(f"scalar mix parameters are {values}; expected {mixture_size}, one per layer")
        self.mixture_size = mixture_size
        self.do_layer_norm = do_layer_norm
        self.scalar_parameters = nn.ParameterList(
            nn.Parameter(torch.tensor([float(value)]), requires_grad=trainable) for value in values
        )
        self.gamma = nn.Parameter(torch.ones(1), requires_grad=trainable)

    def forward(self, tensors: Sequence[Tensor], mask: Tensor | None = None) -> Tensor:
        """Mix L+1 tensors (B, T, 2D); the layer norm needs the mask (B, T)."""
        if len(tensors) != self.mixture_size:
            raise ConfigError(f"{len(tensors)} tensors were given to a mix of {self.mixture_size}")
        stacked = torch.stack(list(tensors))
        if self.do_layer_norm:
            if mask is None:
                raise ConfigError("do_layer_norm=True needs the mask of the tensors")
            stacked = bilm_tf_layer_norm(stacked, mask)
        weights = torch.softmax(torch.cat(list(self.scalar_parameters)), dim=0)
        return self.gamma * torch.einsum("l,l...->...", weights.to(stacked.dtype), stacked)


class Elmo(nn.Module):
    """AllenNLP's `Elmo`: a biLM and `num_output_representations` mixes of its layers, each followed by dropout.

    The mixes are `scalar_mix_0`, `scalar_mix_1`, …, so their weights load from a state dict that AllenNLP saved.
    `scalar_mix_parameters` are values before the softmax, which are not trained. `module` replaces the biLM.
    """

    def __init__(
        self,
        options_file: str | Path | None,
        weight_file: str | Path | None,
        num_output_representations: int,
        requires_grad: bool = False,
        do_layer_norm: bool = False,
        dropout: float = 0.5,
        vocab_to_cache: Sequence[str] | None = None,
        keep_sentence_boundaries: bool = False,
        scalar_mix_parameters: Sequence[float] | None = None,
        module: nn.Module | None = None,
    ) -> None:
        super().__init__()
        if (module is None) == (weight_file is None) or (module is not None and options_file is not None):
            raise ConfigError("give options_file and weight_file, or a module with both of them None")
        if module is None:
            assert weight_file is not None
            module = ElmoBiLm(options_file, weight_file, requires_grad, vocab_to_cache)
        self._elmo_lstm: Any = module
        n_layers: Any = module.num_layers
        self._keep_sentence_boundaries = keep_sentence_boundaries
        self._dropout = nn.Dropout(dropout)
        self._mixes = [f"scalar_mix_{k}" for k in range(num_output_representations)]
        for name in self._mixes:
            trainable = scalar_mix_parameters is None
            self.add_module(name, ScalarMix(n_layers, do_layer_norm, scalar_mix_parameters, trainable))

    def get_output_dim(self) -> int:
        """Return 2D, the width of every representation."""
        return int(self._elmo_lstm.get_output_dim())

    def reset_states(self) -> None:
        """Start the next batch from zeros."""
        self._elmo_lstm.reset_states()

    def forward(self, inputs: Tensor, word_inputs: Tensor | None = None) -> dict[str, Any]:
        """Compute the mixes of character ids (…, T, C) from `batch_to_ids`, or of word ids (…, T) of cached words.

        Returns `elmo_representations`, a list of tensors (…, T, 2D), and `mask` (…, T). Boundaries are added inside,
        and removed from the output unless they are kept.
        """
        leading = inputs.shape[:-2]
        words = None if word_inputs is None else word_inputs.flatten(0, -2)
        output = self._elmo_lstm(inputs.flatten(0, -3), words)
        mask = output["mask"]
        mixed = [self.get_submodule(name)(output["activations"], mask) for name in self._mixes]
        if not self._keep_sentence_boundaries:
            mask = mask[:, 2:]
            mixed = [vectors[:, 1:-1] * mask[..., None] for vectors in mixed]
        shape = (*leading, mask.shape[1])
        vectors = [self._dropout(some).view(*shape, some.shape[-1]) for some in mixed]
        return {"elmo_representations": vectors, "mask": mask.view(shape)}


class ElmoEmbedder:
    """AllenNLP's `ElmoEmbedder`: tokenized sentences ─▶ arrays (3, tokens, 1024), the state carried from call to call.

    A `cuda_device` of −1 is the CPU. `embedder` is the `elmo.Embedder` inside.
    """

    def __init__(
        self,
        options_file: str | Path | None = DEFAULT_OPTIONS_FILE,
        weight_file: str | Path = DEFAULT_WEIGHT_FILE,
        cuda_device: int = -1,
    ) -> None:
        device = device_named("cpu" if cuda_device < 0 else f"cuda:{cuda_device}")
        read = source.read(_local(weight_file), options=None if options_file is None else _local(options_file))
        self.embedder = Embedder(read, device=device, name=str(weight_file))
        self.cuda_device = cuda_device

    def reset_states(self) -> None:
        """Start the next batch from zeros."""
        self.embedder.reset_state()

    def batch_to_embeddings(self, batch: Sequence[Sequence[str]]) -> tuple[Tensor, Tensor]:
        """Return the layers of a batch, (B, 3, T, 1024), padded with zeros, and the mask (B, T)."""
        sentences = [_tokens(row, sentence) for row, sentence in enumerate(batch)]
        layers = self.embedder.layers(sentences, state="carried", max_sentence_tokens=None)
        return layers.activations.transpose(0, 1), layers.mask

    def embed_sentence(self, sentence: Sequence[str]) -> Array:
        """Return the layers of one sentence, (3, tokens, 1024)."""
        return self.embed_batch([sentence])[0]

    def embed_batch(self, batch: Sequence[Sequence[str]]) -> list[Array]:
        """Return the layers of each sentence of a batch, (3, tokens, 1024). One empty sentence leaves the state."""
        sentences = [_tokens(row, sentence) for row, sentence in enumerate(batch)]
        if sentences == [[]]:
            return [np.zeros((self.embedder.n_layers, 0, self.embedder.dim), dtype=np.float32)]
        size = max(len(sentences), 1)
        return list(self.embedder.embed(sentences, state="carried", batch_size=size, max_sentence_tokens=None))

    def embed_sentences(
        self, sentences: Iterable[Sequence[str]], batch_size: int = DEFAULT_BATCH_SIZE
    ) -> Iterator[Array]:
        """Yield the layers of each sentence, computed in batches."""
        waiting = iter(sentences)
        while batch := list(islice(waiting, batch_size)):
            yield from self.embed_batch(batch)

    def embed_file(
        self,
        input_file: IO[str],
        output_file_path: str | Path,
        output_format: str = "all",
        batch_size: int = DEFAULT_BATCH_SIZE,
        forget_sentences: bool = False,
        use_sentence_keys: bool = False,
    ) -> None:
        """Embed an open file of tokenized sentences, one per line, and write an HDF5 file, which must not exist yet.

        Arrays are named by line number, with the table `sentence_to_index` unless `forget_sentences`; or by sentence.
        `output_format` is "all", "top" or "average". An empty line gives an array without tokens.
        """
        if output_format not in ("all", "top", "average"):
            raise ConfigError(f"output_format is {output_format!r}; expected all, top or average")
        selection = Selection.parse(output_format, self.embedder.n_layers)
        lines = [line.strip() for line in input_file]
        names = _sentence_keys(lines) if use_sentence_keys else [str(number) for number in range(len(lines))]
        output = Path(output_file_path).expanduser()
        refuse_existing(output)
        arrays = self.embed_sentences((line.split() for line in lines), batch_size)
        with locked(output), replacing(output) as path, new_hdf5(path) as file:
            for name, layers in zip(names, arrays, strict=True):
                chosen = selection.apply([torch.from_numpy(layer) for layer in layers])
                file.create_dataset(name, data=chosen.numpy())
            if not forget_sentences and not use_sentence_keys:
                table = file.create_dataset("sentence_to_index", (1,), dtype=h5py.string_dtype())
                table[0] = json.dumps(dict(zip(lines, names, strict=True)))  # of equal lines the last, as there


def _tokens(row: int, sentence: Sequence[str]) -> list[str]:
    """Return the tokens of a sentence; a string would be read letter by letter."""
    if isinstance(sentence, str):
        raise DataError(f"sentence {row} is a string; expected a list of tokens, such as text.split()")
    return list(sentence)


def _sentence_keys(lines: list[str]) -> list[str]:
    """Refuse sentences that cannot be the names of datasets, before anything is computed."""
    seen: set[str] = set()
    for number, line in enumerate(lines, 1):
        if line in seen or line in ("", ".") or "/" in line:
            reason = "is a duplicate" if line in seen else "is empty, '.', or has a slash"
            raise DataError(f"line {number} {reason}, so it cannot be a name; leave out use_sentence_keys")
        seen.add(line)
    return lines


def _with_boundaries(values: Tensor, mask: Tensor, marks: Tensor) -> Tensor:
    """Put a mark before each sentence and one after it: (B, T, C), mask (B, T), marks (2, C) ─▶ (B, T+2, C)."""
    marked = nn.functional.pad(values * mask[..., None], (0, 0, 1, 1))
    marked[:, 0] = marks[0]
    marked[torch.arange(len(values), device=values.device), mask.sum(dim=1) + 1] = marks[1].to(values)
    return marked


def _local(file: str | Path) -> str | Path:
    """Return a local path: a URL is downloaded into the cache, which published models share."""
    url = str(file)
    if not url.startswith(("http://", "https://")):
        return file
    for model in PUBLISHED.values():
        for address, name in ((model.options_url, "options.json"), (model.weights_url, "weights.hdf5")):
            if url == address:
                return download(url, cache_folder() / "published" / model.name / name)
    digest = hashlib.sha256(url.encode()).hexdigest()[:16]
    return download(url, cache_folder() / "urls" / digest / url.rpartition("/")[2])
