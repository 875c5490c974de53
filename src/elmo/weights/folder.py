"""OUR FOLDER ◀─▶ MODEL, in the Hugging Face layout.

    config.json               the architecture
    model.safetensors         its parameters, and the softmax if it has one; or several shards, with an index
                              (model.safetensors.index.json)
    vocabulary.txt            the words of the softmax or of the word table
    warm_state.safetensors    the LSTM state at the start of every sentence with `state="warm"`
    word.dic, char.dic        the words and characters of a model from ELMoForManyLangs
    sif.safetensors, sif_words.txt    the statistics of `pooling="sif"`: see `elmo.weights.sif`
"""

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from elmo.config import build
from elmo.errors import ConfigError, WeightsError
from elmo.files import new_folder, refuse_existing
from elmo.model.bilm import BiLM, BiLMConfig
from elmo.model.lstm import State
from elmo.text.lexicon import Lexicon
from elmo.text.vocabulary import Vocabulary
from elmo.weights import sif
from elmo.weights.int8 import SCALE, dequantize, quantize
from elmo.weights.json_file import read_json
from elmo.weights.sif import Sif
from elmo.weights.tensor_files import FLOATS, MAX_SHARD_BYTES, read_tensors, write_tensors

CONFIG, WEIGHTS, VOCABULARY, WARM_STATE = (
    "config.json",
    "model.safetensors",
    "vocabulary.txt",
    "warm_state.safetensors",
)
# What `transformers` writes into a config.json, besides the model's own fields: it says nothing about the biLM.
HUGGING_FACE_FIELDS = (
    *("model_type", "architectures", "auto_map", "transformers_version", "_name_or_path", "tokenizer_class"),
    *("dtype", "torch_dtype", "id2label", "label2id", "problem_type", "is_encoder_decoder", "chunk_size_feed_forward"),
    *("output_attentions", "output_hidden_states", "return_dict"),
)
PREFIX = "bilm."  # of the names of tensors, where the model is a part of one for `transformers`


@dataclass(frozen=True)
class Pretrained:
    """A model that was read from files."""

    bilm: BiLM
    vocabulary: Vocabulary | None = None
    warm_state: State | None = None
    lexicon: Lexicon | None = None  # of a model from ELMoForManyLangs
    sif: Sif | None = None  # the statistics of `pooling="sif"`


def read(folder: Path, softmax: bool = False) -> Pretrained:
    """Read a folder; the softmax only if `softmax` is true, because only language modelling needs it."""
    config = config_of(read_json(folder / CONFIG), folder / CONFIG)
    if not softmax:
        config = dataclasses.replace(config, n_softmax=None)
    with torch.device("meta"):
        bilm = BiLM(config)
    expected = {name: tuple(tensor.shape) for name, tensor in bilm.state_dict().items()}
    bilm.load_state_dict(read_tensors(folder / WEIGHTS, expected, CONFIG, PREFIX), assign=True)
    words, warm = folder / VOCABULARY, folder / WARM_STATE
    vocabulary = Vocabulary.read(words) if words.exists() else None
    if softmax and vocabulary is not None and config.n_softmax not in (None, len(vocabulary)):
        raise WeightsError(
            f"{words}: the softmax has {config.n_softmax:,} words, the vocabulary {len(vocabulary):,}. "
            f"Are they from one model?"
        )
    state = None
    if warm.exists():
        lstm = config.lstm
        leading = (lstm.n_layers, config.directions, 1)
        shapes = {"h": (*leading, lstm.projection_dim), "c": (*leading, lstm.dim)}
        state = State(**read_tensors(warm, shapes, CONFIG))
    statistics = sif.read(folder, config.n_layers, config.output_dim)
    return Pretrained(bilm.eval(), vocabulary, state, _lexicon(folder, config), statistics)


def write(model: Pretrained, folder: Path, dtype: torch.dtype | None = None) -> None:
    """Write a model folder atomically, in the given dtype if there is one. An existing folder is never overwritten."""
    refuse_existing(folder)
    with new_folder(folder) as temporary:
        fill(temporary, model, dtype)


def fill(folder: Path, model: Pretrained, dtype: torch.dtype | None = None) -> None:
    """Write a model's files into an existing folder."""
    config = {"model_type": "elmo", "architectures": ["BiLM"], **dataclasses.asdict(model.bilm.config)}
    (folder / CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    write_tensors(folder / WEIGHTS, stored(model.bilm, dtype), MAX_SHARD_BYTES if dtype == torch.int8 else None)
    if model.vocabulary is not None:
        model.vocabulary.write(folder / VOCABULARY)
    if model.lexicon is not None:
        model.lexicon.write(folder)
    if model.warm_state is not None:
        state = {name: tensor.float().cpu().contiguous() for name, tensor in model.warm_state._asdict().items()}
        write_tensors(folder / WARM_STATE, state)
    if model.sif is not None:
        sif.write(folder, model.sif)


def _lexicon(folder: Path, config: BiLMConfig) -> Lexicon | None:
    """Read the words and characters of a model from ELMoForManyLangs."""
    many = config.many_langs
    if many is None:
        return None
    n_characters = many.char_cnn.n_characters if many.char_cnn is not None else None
    return Lexicon.read(
        folder, n_words=many.n_words, n_characters=n_characters, max_characters=many.max_characters_per_token
    )


def stored(bilm: BiLM, dtype: torch.dtype | None = None) -> dict[str, Tensor]:
    """Return a model's tensors as they are stored: unchanged, in another float type, or with the matrices in int8.

    With int8, vectors and the table of characters stay float32: they are small, and every token depends on them.
    """
    if dtype not in (None, torch.int8, *FLOATS):
        raise ConfigError(f"weights cannot be stored in {dtype}; expected float16, float32 or int8")
    tensors: dict[str, Tensor] = {}
    for name, parameter in bilm.state_dict().items():
        tensor = parameter.detach().cpu()
        summed_over = _summed_over(name, tensor, bilm.config) if dtype == torch.int8 else None
        if summed_over is not None:
            tensors[name], tensors[name + SCALE] = quantize(tensor, summed_over)
            continue
        tensors[name] = tensor.to(torch.float32 if dtype == torch.int8 else dtype).contiguous()
        if dtype is not None and not tensors[name].isfinite().all():
            raise WeightsError(f"{name!r} has values outside of the range of {dtype}; keep the model in float32")
    return tensors


def rounded(bilm: BiLM, dtype: torch.dtype) -> BiLM:
    """Return a copy of a model in float32, on the CPU, with the weights that its folder in this dtype gives back."""
    tensors = stored(bilm, dtype)
    with torch.device("meta"):
        copy = BiLM(bilm.config)
    weights = {
        name: dequantize(tensors[name], tensors[name + SCALE]) if name + SCALE in tensors else tensors[name].float()
        for name in bilm.state_dict()
    }
    copy.load_state_dict(weights, assign=True)
    return copy.eval()


def _summed_over(name: str, tensor: Tensor, config: BiLMConfig) -> int | None:
    """Return the axis that a product with this matrix sums over; None for other tensors."""
    if name == "softmax.weight" or (name == "token_encoder.embedding" and config.n_words is not None):
        return 1
    return None if tensor.dim() < 2 or name.endswith(("bias", "embedding")) else tensor.dim() - 2


def config_of(values: dict[str, Any], where: Path) -> BiLMConfig:
    """Check the content of a config.json and build the config; an unknown field is refused with the nearest name."""
    values = {name: value for name, value in values.items() if name not in HUGGING_FACE_FIELDS}
    try:
        config = build(BiLMConfig, values)
    except ConfigError as error:
        raise WeightsError(f"{where}: {error}") from None
    if "lstm" not in values:
        raise WeightsError(f"{where}: not the config of a biLM; expected 'lstm' and 'char_cnn'")
    return config
