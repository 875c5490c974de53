"""TRANSFORMERS: a model folder as `ElmoModel`, with a head for token classification. Needs the extra `transformers`.

    import elmo.integrations.transformers                        # once: registers the model type "elmo"
    AutoModel.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)

A model folder of this library is read as it is, and `elmo.load` reads a folder that `save_pretrained` wrote. The
softmax is no part of these models. Every sentence starts from a zero state.
"""

import dataclasses
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from elmo.errors import ConfigError, DataError, WeightsError
from elmo.model.bilm import BiLM, BiLMConfig
from elmo.model.char_cnn import CharCNN, Highway
from elmo.model.layers import Layers
from elmo.model.lstm import ProjectedLSTM
from elmo.model.scalar_mix import ScalarMix
from elmo.weights import folder, source

try:
    from huggingface_hub import HfApi, ModelCardData, metadata_load
    from huggingface_hub.dataclasses import strict
    from transformers import (
        AutoConfig,
        AutoModel,
        AutoModelForTokenClassification,
        AutoTokenizer,
        PreTrainedConfig,
        PreTrainedModel,
    )
    from transformers.modeling_outputs import BaseModelOutput, TokenClassifierOutput
    from transformers.utils.generic import can_return_tuple
    from yaml import YAMLError
except ImportError:
    raise ImportError("ElmoModel needs transformers: pip install 'elmo-torch[transformers]'") from None

from elmo.integrations.transformers_tokenizer import ElmoTokenClassificationPipeline, ElmoTokenizer

__all__ = [
    "ElmoConfig",
    "ElmoForTokenClassification",
    "ElmoModel",
    "ElmoTokenClassificationPipeline",
    "ElmoTokenizer",
]

DROPOUT = 0.5  # of the mixed vectors in the head, the paper's
CARD = """---
{head}
---
# An ELMo model
A bidirectional language model over characters (Peters et al. 2018): {layers} layers of {dim} dimensions, {parameters:,}
parameters{labels}. It is read by [elmo-torch](https://pypi.org/project/elmo-torch/), and after
`import elmo.integrations.transformers` by the Auto classes of transformers.

Not written yet: {missing}.
"""


@strict
class ElmoConfig(PreTrainedConfig):
    """The config.json of a model folder. The defaults are the paper's model."""

    model_type = "elmo"

    lstm: dict[str, Any] | None = None
    char_cnn: dict[str, Any] | None = None
    n_words: int | None = None
    n_softmax: int | None = None
    bidirectional: bool = True
    share_embedding_softmax: bool = False
    many_langs: dict[str, Any] | None = None
    dtype: Any = "float32"  # packaged weights are stored in float16; a sequence of products needs more

    def __post_init__(self, **kwargs: Any) -> None:
        default = dataclasses.asdict(BiLMConfig())
        self.lstm = self.lstm or default["lstm"]
        if self.n_words is None and self.many_langs is None:
            self.char_cnn = self.char_cnn or default["char_cnn"]
        super().__post_init__(**kwargs)

    def bilm_config(self) -> BiLMConfig:
        """Return the architecture, checked; without a softmax."""
        names = [field.name for field in dataclasses.fields(BiLMConfig)]
        config = folder.config_of({name: getattr(self, name) for name in names}, Path(folder.CONFIG))
        if config.char_cnn is None:
            raise ConfigError("the model does not read characters; transformers cannot use it, but elmo.load() can")
        return dataclasses.replace(config, n_softmax=None)

    @property
    def hidden_size(self) -> int:
        """2D, the width of every layer."""
        return self.bilm_config().output_dim

    @property
    def num_hidden_layers(self) -> int:
        """L, the number of LSTM layers."""
        return self.bilm_config().lstm.n_layers


class ElmoPreTrainedModel(PreTrainedModel):
    """What both models share: reading, initial values, writing."""

    config_class = ElmoConfig
    base_model_prefix = "bilm"
    main_input_name = "input_ids"
    _keys_to_ignore_on_load_unexpected = [r"(^|\.)softmax\."]  # noqa: RUF012
    _origin: Mapping[str, Any] = MappingProxyType({})  # languages and licence of the model that this one was made of

    @classmethod
    def from_pretrained(cls, name: Any, *arguments: Any, output_loading_info: bool = False, **options: Any) -> Any:
        """Read a model folder or a model on the Hub, as every model of transformers does."""
        model, info = super().from_pretrained(name, *arguments, output_loading_info=True, **options)
        if any(key.endswith(".scale") for key in info["unexpected_keys"]):
            raise WeightsError(
                f"{name}: is stored in int8, which transformers does not read; ElmoModel.from_elmo({str(name)!r}) does"
            )
        model._origin = _card_head(Path(str(name)))
        return (model, info) if output_loading_info else model

    @classmethod
    def from_elmo(cls, name: str | Path, **settings: Any) -> Any:
        """Make this model of any that `elmo.load` reads; a head is new. `settings` are fields of the config."""
        bilm = source.read(name).bilm
        model = cls(ElmoConfig(**dataclasses.asdict(bilm.config), **settings))
        base = model if isinstance(model, ElmoModel) else model.bilm
        base.load_state_dict(bilm.state_dict())
        model._origin = _card_head(source.locate(name))
        return model.eval()

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        # transformers marks parameters that it has read, and calls this for every module.
        if all(getattr(parameter, "_is_hf_initialized", False) for parameter in module.parameters()):
            return
        if isinstance(module, ScalarMix):
            assert module.scalars is not None
            module.scalars.zero_()
            module.gamma.fill_(1.0)
        elif isinstance(module, CharCNN | Highway | ProjectedLSTM):
            module.initialize()
        else:
            super()._init_weights(module)

    def save_pretrained(
        self,
        save_directory: str | Path,
        *arguments: Any,
        language: str | list[str] | None = None,
        license: str | None = None,
        **options: Any,
    ) -> None:
        """Write a folder, with a model card unless there is one, and the settings of the tokenizer.

        `language` and `license` are for the card; by default they are those of the model that this one was made of.
        """
        if options.get("push_to_hub"):
            raise ConfigError("save_pretrained() does not upload; call push_to_hub(name), which also writes the card")
        super().save_pretrained(save_directory, *arguments, **options)
        ElmoTokenizer(self.config.char_cnn["max_characters_per_token"]).save_pretrained(save_directory)
        card = Path(save_directory) / "README.md"
        if not card.exists():
            card.write_text(self.card(language, license), encoding="utf-8")

    def push_to_hub(
        self,
        repo_id: str,
        *,
        commit_message: str = "Upload an ELMo model",
        private: bool | None = None,
        token: str | bool | None = None,
        language: str | list[str] | None = None,
        license: str | None = None,
    ) -> Any:
        """Upload the folder that `save_pretrained` writes; a card that is already on the Hub stays."""
        api = HfApi(token=token)
        repo_id = api.create_repo(repo_id, private=private, exist_ok=True).repo_id
        kept = ["README.md"] if api.file_exists(repo_id, "README.md") else None
        with tempfile.TemporaryDirectory() as place:
            self.save_pretrained(place, language=language, license=license)
            return api.upload_folder(
                repo_id=repo_id, folder_path=place, commit_message=commit_message, ignore_patterns=kept
            )

    def card(self, language: str | list[str] | None = None, license: str | None = None) -> str:
        """Return a model card, with what is known from the model itself and from the card of its origin."""
        config = self.config.bilm_config()
        with_head = isinstance(self, ElmoForTokenClassification)
        given = {name: value for name, value in (("language", language), ("license", license)) if value is not None}
        head = ModelCardData(
            library_name="elmo-torch",
            pipeline_tag="token-classification" if with_head else "feature-extraction",
            tags=["elmo", "bilm", "contextual-embeddings"],
            **{**self._origin, **given},
        )
        missing = ["the data that it was trained on", *([] if head.license else ["its licence"]), "how well it does"]
        return CARD.format(
            head=head.to_yaml(),
            layers=config.n_layers,
            dim=config.output_dim,
            parameters=sum(parameter.numel() for parameter in self.parameters()),
            labels=f", with a head for the labels {', '.join(self.config.id2label.values())}" if with_head else "",
            missing=", ".join(missing),
        )


def _card_head(place: Path) -> dict[str, Any]:
    """Return languages and licence from the card in a model folder; nothing if there is none that can be read."""
    try:
        head = metadata_load(place / "README.md") or {}
    except (OSError, ValueError, YAMLError):
        return {}
    return {name: head[name] for name in ("language", "license") if name in head}


class ElmoModel(ElmoPreTrainedModel):
    """The biLM: character ids ─▶ its layers, boundaries included."""

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__(config)
        config.n_softmax = None
        bilm = BiLM(config.bilm_config())
        self.token_encoder, self.lstms = bilm.token_encoder, bilm.lstms
        self._bilm = (bilm,)  # in a tuple, so that its parameters are here once, with the names of a model folder
        self.post_init()

    def layers(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Layers:
        """Run character ids (B, T, C); all layers, (L+1, B, T, 2D)."""
        mask = (input_ids > 0).any(dim=-1)
        if attention_mask is not None:
            mask = mask & attention_mask.bool()
        if bool((mask[:, 1:] > mask[:, :-1]).any()):
            raise DataError("a sentence has padding before or between its tokens; expected padding on the right")
        layers: Layers = self._bilm[0](input_ids * mask[..., None])[0]
        return layers

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        output_hidden_states: bool | None = None,
        **unused: Any,
    ) -> BaseModelOutput:
        """Run character ids (B, T, C), as `ElmoTokenizer` gives them.

        `last_hidden_state` (B, T, 2D) is the top layer; `hidden_states` are all L+1 layers, the token layer first.
        """
        activations = self.layers(input_ids, attention_mask).activations
        all_layers = self.config.output_hidden_states if output_hidden_states is None else output_hidden_states
        return BaseModelOutput(
            last_hidden_state=activations[-1], hidden_states=tuple(activations) if all_layers else None
        )


class ElmoForTokenClassification(ElmoPreTrainedModel):
    """A learned mix of the layers (paper, equation 1), dropout, and a linear classifier for each token.

    Freeze the biLM with `model.bilm.requires_grad_(False)`, as the paper does.
    """

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__(config)
        self.bilm = ElmoModel(config)
        self.mix = ScalarMix(config.num_hidden_layers + 1, dropout=DROPOUT)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        labels: Tensor | None = None,
        output_hidden_states: bool | None = None,
        **unused: Any,
    ) -> TokenClassifierOutput:
        """Return `logits` (B, T, labels), and with `labels` (B, T) the mean `loss`; labels of −100 do not count."""
        layers = self.bilm.layers(input_ids, attention_mask)
        logits = self.classifier(self.mix(layers))
        loss = None if labels is None else nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
        all_layers = self.config.output_hidden_states if output_hidden_states is None else output_hidden_states
        return TokenClassifierOutput(
            loss=loss, logits=logits, hidden_states=tuple(layers.activations) if all_layers else None
        )


AutoConfig.register("elmo", ElmoConfig, exist_ok=True)
AutoModel.register(ElmoConfig, ElmoModel, exist_ok=True)
AutoModelForTokenClassification.register(ElmoConfig, ElmoForTokenClassification, exist_ok=True)
AutoTokenizer.register(ElmoConfig, ElmoTokenizer, exist_ok=True)
