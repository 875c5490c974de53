"""SPACY: Docs ─▶ vectors of their tokens, as a layer that is trained or as a plain component. Needs the extra `spacy`.

    elmo.Tok2Vec.v1     an architecture for the component `tok2vec`: the mix of the layers is learned by the components
                        that listen to it
    elmo                a component that sets `doc.tensor`, (tokens, 2D), and answers for vectors and similarity

spaCy finds both by these names. A pipeline on disk has the name of the model, not its weights: a few kB. Tokens are
spaCy's own; those of white space alone are not read, and have zeros. If a Doc has sentences, each is read alone.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from elmo.errors import ConfigError, WeightsError
from elmo.packaged import DEFAULT

try:
    from spacy.language import Language
    from spacy.tokens import Doc, Span, Token
    from spacy.util import minibatch, registry
    from thinc.api import Dropout, Model, chain
except ImportError:
    raise ImportError("elmo.integrations.spacy needs spaCy: pip install 'elmo-torch[spacy]'") from None

if TYPE_CHECKING:  # spaCy imports this file for every pipeline, also for those without ELMo: it must be light
    from elmo.embed.embedder import Embedder
    from elmo.embed.selection import Array

SAVED = "elmo.json"  # of the component, on disk


@dataclass(frozen=True)
class DocEmbedder:
    """Docs ─▶ arrays, with a model that is named here and loaded when it is first needed."""

    model: str = DEFAULT
    device: str = "auto"
    precision: str = "float32"
    state: str = "fresh"

    def __post_init__(self) -> None:
        if self.state not in ("fresh", "warm"):
            raise ConfigError(f"state is {self.state!r}; every Doc is read alone: expected fresh or warm")

    @property
    def embedder(self) -> "Embedder":
        """The model, loaded once in each process."""
        from elmo.integrations.loaded import loaded

        return loaded(self.model, self.device, self.precision)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the weights."""
        return self.embedder.fingerprint()

    def check(self, fingerprint: str) -> None:
        """Refuse a model other than the one with this fingerprint."""
        if fingerprint != self.fingerprint:
            raise WeightsError(
                f"model {self.model!r} is not the one that the pipeline was saved with: its fingerprint is "
                f"{self.fingerprint}, expected {fingerprint}. Name or install that model"
            )

    def embed(self, docs: Sequence[Doc], layers: Any) -> "Iterator[Array]":
        """Yield one array per Doc, with a row for every token: (tokens, 2D), or (L+1, tokens, 2D) for all layers."""
        split = [_sentences(doc) for doc in docs]
        words = [[token.text for token in sentence] for sentences in split for sentence in sentences]
        arrays = self.embedder.embed(words, layers, state=self.state)
        for doc, sentences in zip(docs, split, strict=True):
            vectors = np.concatenate(list(islice(arrays, len(sentences))), axis=-2)
            result = np.zeros((*vectors.shape[:-2], len(doc), vectors.shape[-1]), dtype=np.float32)
            result[..., [token.i for sentence in sentences for token in sentence], :] = vectors
            yield result


def _sentences(doc: Doc) -> list[list[Token]]:
    """Return the tokens of each sentence, without white space; one sentence if nothing has split the Doc."""
    spans = doc.sents if len(doc) and doc.has_annotation("SENT_START") else [doc]
    return [[token for token in span if not token.is_space] for span in spans]


# The architecture


@registry.architectures("elmo.Tok2Vec.v1")
def tok2vec(
    model: str = DEFAULT, device: str = "auto", precision: str = "float32", state: str = "fresh"
) -> Model[list[Doc], list[Any]]:
    """Make a layer for the component `tok2vec`: a learned mix of a frozen biLM's layers, with spaCy's dropout."""
    source = DocEmbedder(model, device, precision, state)
    embedder = source.embedder
    mix: Model[list[Doc], list[Any]] = Model(
        "elmo", partial(_forward, source), dims={"nO": embedder.dim}, attrs={"fingerprint": source.fingerprint}
    )
    mix.set_param("scalars", mix.ops.alloc1f(embedder.n_layers))
    mix.set_param("gamma", mix.ops.alloc1f(1) + 1)  # not a number: Thinc's optimizer needs an axis
    layer = chain(mix, Dropout())
    layer.set_dim("nO", embedder.dim)  # spaCy asks for it before training, where a Doc has no tokens
    return layer


def _forward(
    source: DocEmbedder, model: Model[list[Doc], list[Any]], docs: list[Doc], is_train: bool
) -> tuple[list[Any], Callable[[list[Any]], list[Doc]]]:
    """Mix the layers of each Doc (paper, equation 1): `γ Σ_j softmax(s)_j h_j`, (tokens, 2D)."""
    source.check(model.attrs["fingerprint"])
    ops = model.ops
    layers = [ops.asarray(array) for array in source.embed(docs, "all")]
    weights = ops.softmax(model.get_param("scalars"))
    gamma = model.get_param("gamma")
    mixed = [gamma * ops.xp.tensordot(weights, array, axes=1) for array in layers]

    def backprop(gradients: list[Any]) -> list[Doc]:
        """Add the gradients of the loss with respect to s and γ, given those of the mixed vectors."""
        products = ops.alloc1f(len(weights))
        for array, gradient in zip(layers, gradients, strict=True):
            products += (array * gradient).sum(axis=(1, 2))
        mean = (weights * products).sum()
        model.inc_grad("scalars", gamma * weights * (products - mean))
        model.inc_grad("gamma", mean.reshape(1))
        return []

    return mixed, backprop


# The component


@Language.factory(
    "elmo",
    assigns=["doc.tensor"],
    default_config={
        "model": DEFAULT,
        "layers": "average",
        "device": "auto",
        "precision": "float32",
        "state": "fresh",
    },
)
def make_elmo(
    nlp: Language, name: str, model: str, layers: str | int | list[float], device: str, precision: str, state: str
) -> "ElmoComponent":
    """Make the component, with the settings of the pipeline's config."""
    return ElmoComponent(DocEmbedder(model, device, precision, state), layers)


class ElmoComponent:
    """Sets `doc.tensor` to the vectors of the tokens, and hooks: `vector` and `similarity` of Docs, Spans and Tokens.

    The vector of a Doc or Span is the mean over its tokens, without white space. `layers` is that of `Embedder.embed`.
    """

    def __init__(self, source: DocEmbedder, layers: str | int | list[float] = "average") -> None:
        if layers == "all":
            raise ConfigError("layers is 'all', which gives several vectors per token; doc.tensor has one. Choose one")
        self.source = source
        self.layers = layers

    def __call__(self, doc: Doc) -> Doc:
        """Process one Doc."""
        return next(self.pipe([doc]))

    def pipe(self, docs: Iterable[Doc], batch_size: int = 128) -> Iterator[Doc]:
        """Process a stream of Docs, `batch_size` at a time."""
        for batch in minibatch(docs, batch_size):
            for doc, vectors in zip(batch, self.source.embed(batch, self.layers), strict=True):
                doc.tensor = vectors
                yield add_hooks(doc)

    def to_bytes(self, exclude: Sequence[str] = ()) -> bytes:
        """Return the fingerprint of the model as JSON; the settings are in the pipeline's config."""
        return json.dumps({"fingerprint": self.source.fingerprint}).encode()

    def from_bytes(self, data: bytes, exclude: Sequence[str] = ()) -> "ElmoComponent":
        """Check that the model is the one that `to_bytes` saw."""
        self.source.check(json.loads(data)["fingerprint"])
        return self

    def to_disk(self, path: str | Path, exclude: Sequence[str] = ()) -> None:
        """Write the fingerprint of the model into a folder."""
        Path(path).mkdir(parents=True, exist_ok=True)
        (Path(path) / SAVED).write_bytes(self.to_bytes())

    def from_disk(self, path: str | Path, exclude: Sequence[str] = ()) -> "ElmoComponent":
        """Check that the model is the one that `to_disk` saw."""
        return self.from_bytes((Path(path) / SAVED).read_bytes())


def add_hooks(doc: Doc) -> Doc:
    """Let vectors and similarities come from `doc.tensor`; also for a Doc from another process or from a file."""
    for hooks in (doc.user_hooks, doc.user_span_hooks, doc.user_token_hooks):
        hooks.update(vector=_vector, has_vector=_has_vector, similarity=_similarity)
    return doc


def _tokens(item: Doc | Span | Token) -> list[Token]:
    return [token for token in ([item] if isinstance(item, Token) else item) if not token.is_space]


def _vector(item: Doc | Span | Token) -> Any:
    rows = [token.i for token in _tokens(item)]
    tensor = item.doc.tensor
    return tensor[rows].mean(axis=0) if rows else np.zeros(tensor.shape[-1], dtype=np.float32)


def _has_vector(item: Doc | Span | Token) -> bool:
    return bool(_tokens(item))


def _similarity(item: Doc | Span | Token, other: Any) -> float:
    """Return the cosine of two vectors; 0 if one of them is zero."""
    one, two = item.vector, other.vector
    norms = np.linalg.norm(one) * np.linalg.norm(two)
    return float(np.dot(one, two) / norms) if norms else 0.0
