"""SCIKIT-LEARN: texts ─▶ one vector each, (n, dim), as a step of a pipeline. Needs the extra `sklearn`."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Self

import numpy as np

from elmo.embed.selection import Array, LayersArgument
from elmo.embed.sentences import Sentence
from elmo.errors import ConfigError, DataError
from elmo.integrations.loaded import loaded
from elmo.packaged import DEFAULT

try:
    from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
except ImportError:
    raise ImportError("ElmoVectorizer needs scikit-learn: pip install 'elmo-torch[sklearn]'") from None


class ElmoVectorizer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Turns texts into vectors with `Embedder.encode`, whose arguments these are. There is nothing to fit.

    A text is a string, which is tokenized, or a list of tokens. The model is loaded when it is first needed, once in
    each process for all vectorizers that name it; it is in no pickle, which has its name only.
    """

    def __init__(
        self,
        model: str | Path = DEFAULT,
        *,
        pooling: str = "mean",
        layers: LayersArgument | None = None,
        normalize: bool = False,
        state: str = "fresh",
        batch_tokens: int | None = None,
        device: str = "auto",
        precision: str = "float32",
    ) -> None:
        self.model = model
        self.pooling = pooling
        self.layers = layers
        self.normalize = normalize
        self.state = state
        self.batch_tokens = batch_tokens
        self.device = device
        self.precision = precision

    def fit(self, X: Iterable[Sentence], y: Any = None) -> Self:  # noqa: N803
        """Check the arguments, by encoding nothing. The texts are not looked at."""
        self._encode([])
        return self

    def transform(self, X: Iterable[Sentence]) -> Array:  # noqa: N803
        """Return the vectors of texts, (n, dim), float32."""
        return self._encode(X)

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.two_d_array = False
        tags.requires_fit = False
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags

    @property
    def _n_features_out(self) -> int:
        """The width of the vectors, for the names of the features: elmovectorizer0, elmovectorizer1, …"""
        return loaded(str(self.model), self.device, self.precision).pooling(self.pooling, self.layers).dim

    def _encode(self, texts: Iterable[Sentence]) -> Array:
        if self.state == "carried":
            raise ConfigError("state is 'carried', but a vector must not depend on other texts: expected fresh or warm")
        if isinstance(texts, np.ndarray) and texts.ndim == 2 and texts.shape[1] == 1 and _have_spaces(texts):
            # Each row would be a sentence of one token.
            raise DataError(
                f"X is a column of texts, {texts.shape}; expected the texts themselves, ({len(texts)},). In a "
                "ColumnTransformer, choose the column by its number alone, without brackets"
            )
        return loaded(str(self.model), self.device, self.precision).encode(
            texts,
            self.pooling,
            self.layers,
            normalize=self.normalize,
            state=self.state,
            batch_tokens=self.batch_tokens,
        )


def _have_spaces(texts: Iterable[Any]) -> bool:
    return any(isinstance(text, str) and " " in text for (text,) in texts)
