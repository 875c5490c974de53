"""THE FORM OF REQUESTS AND ANSWERS, from which the OpenAPI description is made. Unknown fields are refused."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator
from pydantic_core import PydanticSerializationError, to_json

Sentence = Annotated[str | list[str], Field(description="Raw text, which is tokenized, or a list of tokens.")]
Weight = Annotated[float, Field(ge=-1e6, le=1e6)]
Layers = Annotated[
    Literal["all", "top", "average"] | Annotated[int, Field(ge=0)] | list[Weight],
    Field(description="All layers, the top one, their average, one by its number, or a sum with one weight per layer."),
]
Sentences = Annotated[list[Sentence], Field(min_length=1, max_length=1024)]


class Request(BaseModel):
    """A request: types are not converted, and unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def check_characters(cls, given: Any) -> Any:
        """Refuse half a surrogate pair, which JSON can escape, but no answer could contain."""
        try:
            to_json(given)
        except PydanticSerializationError:
            raise ValueError("a string has half a surrogate pair; expected characters of Unicode") from None
        return given


class EmbedRequest(Request):
    """Sentences to embed."""

    sentences: Sentences
    layers: Layers = "all"
    pooling: Annotated[
        Literal["mean", "max", "first-last"] | None,
        Field(description="One vector per sentence, pooled over its tokens. By default one vector per token."),
    ] = None
    encoding: Annotated[
        Literal["float", "base64"],
        Field(description="Nested lists of numbers, or base64 of float32 values, little-endian, of that shape."),
    ] = "float"


class Embedded(BaseModel):
    """The vectors of a sentence."""

    tokens: list[str]
    shape: Annotated[list[int], Field(description="(layers, tokens, dim), without the axes that were not asked for.")]
    vectors: list[Any] | str


class EmbedAnswer(BaseModel):
    """The vectors of all sentences, in order."""

    model: str
    sentences: list[Embedded]


class OpenAIRequest(Request):
    """A request as OpenAI's clients send it."""

    model: str
    input: str | Annotated[list[str], Field(min_length=1, max_length=1024)]
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: Annotated[int | None, Field(ge=1, description="Only the model's own number is accepted.")] = None
    user: str | None = None

    @field_validator("input", mode="before")
    @classmethod
    def check_texts(cls, given: Any) -> Any:
        """Refuse the numbers of OpenAI's own tokens, which some clients send instead of texts."""
        first = given[0] if isinstance(given, list) and given else None
        if isinstance(first, int | list):
            raise ValueError("tokens are not accepted, because their numbers are those of another model; send texts")
        return given


class OpenAIVector(BaseModel):
    """The vector of a text: the mean over tokens and layers, scaled to length 1."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class OpenAIUsage(BaseModel):
    """The number of tokens."""

    prompt_tokens: int
    total_tokens: int


class OpenAIAnswer(BaseModel):
    """The vectors of all texts, in order."""

    object: Literal["list"]
    data: list[OpenAIVector]
    model: str
    usage: OpenAIUsage


class ScoreRequest(Request):
    """Sentences to score."""

    sentences: Sentences


class Scored(BaseModel):
    """Natural logarithms of probabilities. For a model of one direction, backward values are null."""

    tokens: list[str]
    known: Annotated[list[bool], Field(description="Whether the vocabulary has the token; others count as <UNK>.")]
    forward: list[float]
    forward_end: float
    backward: list[float] | None
    backward_end: float | None
    perplexity: float


class ScoreAnswer(BaseModel):
    """The scores of all sentences, in order."""

    model: str
    sentences: list[Scored]


class SubstitutesRequest(Request):
    """A place in a sentence."""

    sentence: Sentence
    index: Annotated[int, Field(ge=0, description="The token to replace, from 0.")]
    n: Annotated[int, Field(ge=1, le=1000)] = 10


class SubstituteWord(BaseModel):
    """A word and its probability."""

    word: str
    probability: float


class SubstitutesAnswer(BaseModel):
    """The words that fit best, by both language models together, and by each alone."""

    model: str
    tokens: list[str]
    index: int
    substitutes: Annotated[
        list[SubstituteWord], Field(description="By both together. The probabilities of all words have the sum 1.")
    ]
    forward: Annotated[
        list[SubstituteWord], Field(description="By the forward model alone: given the tokens before, as /score.")
    ]
    backward: Annotated[
        list[SubstituteWord] | None,
        Field(description="By the backward model alone: given the tokens after. Null for a model of one direction."),
    ]


class UsesRequest(Request):
    """A word in a sentence, and the mix of layers to compare by."""

    sentence: Sentence
    index: Annotated[int, Field(ge=0, description="The word, from 0.")]
    weights: Annotated[
        list[Weight] | None, Field(description="One weight per layer. By default all layers are equal.")
    ] = None
    n: Annotated[int, Field(ge=1, le=100)] = 10


class UseFound(BaseModel):
    """A word of a bundled sentence, and its cosine similarity."""

    tokens: list[str]
    index: int
    similarity: float


class UsesAnswer(BaseModel):
    """The nearest uses, best first."""

    model: str
    uses: list[UseFound]


class PredictRequest(Request):
    """Items for a task: text, or what the task reads, such as {"context": …, "question": …}."""

    items: Annotated[list[str | list[Any] | dict[str, Any]], Field(min_length=1, max_length=1024)]


class PredictAnswer(BaseModel):
    """The answers to all items, in order, as `elmo predict` writes them."""

    task: str
    answers: list[dict[str, Any]]


class InstalledTask(BaseModel):
    """A trained task of this server."""

    name: str
    task: str


class Health(BaseModel):
    """What this server is."""

    status: Literal["ok"]
    version: str
    model: str
    layers: int
    dim: int
    language_model: Annotated[bool, Field(description="Whether /score and /substitutes exist.")]
    tasks: list[InstalledTask]


class Problem(BaseModel):
    """Why a request was refused, in one line."""

    message: str
    type: str
    param: None = None
    code: None = None


class ProblemAnswer(BaseModel):
    """The body of every answer that is not 200."""

    error: Problem
