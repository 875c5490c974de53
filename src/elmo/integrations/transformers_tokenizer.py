"""TEXTS ─▶ CHARACTER IDS (B, T, C) for `ElmoModel`, and the pipeline that classifies tokens."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from transformers import BatchEncoding, PreTrainedConfig, PreTrainedTokenizer, TokenClassificationPipeline
from transformers.utils import PaddingStrategy

from elmo.errors import ConfigError, DataError
from elmo.text.characters import BEGIN_SENTENCE, BEGIN_WORD_ID, END_SENTENCE, END_WORD_ID, NO_TOKEN, word_ids
from elmo.text.tokens import Token, tokenize

MAX_CHARACTERS = 50
HUB_OPTIONS = ("cache_dir", "force_download", "local_files_only", "revision", "subfolder", "token")


class ElmoTokenizer(PreTrainedTokenizer):
    """Tokenizes by the rules of Moses; a token is a row of character ids, so `input_ids` are (tokens, C) each.

    Tokens are words, so labels of words need no alignment: put −100 for both boundaries around them. Padding is on the
    right, in rows of zeros.
    """

    model_input_names = ["input_ids", "attention_mask"]  # noqa: RUF012
    vocab_files_names: dict[str, str] = {}  # noqa: RUF012

    def __init__(self, max_characters: int = MAX_CHARACTERS, **options: Any) -> None:
        self.max_characters = max_characters
        options = {"pad_token": "<pad>"} | options
        super().__init__(max_characters=max_characters, **options)

    @classmethod
    def from_pretrained(cls, name: Any, *arguments: Any, **options: Any) -> Any:
        """Read the number of characters from the model's config.json; a tokenizer_config.json need not be there."""
        if "max_characters" not in options:
            config, _ = PreTrainedConfig.get_config_dict(name, **{k: options[k] for k in HUB_OPTIONS if k in options})
            cnn = config.get("char_cnn") or {}
            options["max_characters"] = cnn.get("max_characters_per_token", MAX_CHARACTERS)
        return super().from_pretrained(name, *arguments, **options)

    @property
    def vocab_size(self) -> int:
        """1: any word has ids, and only padding has a number."""
        return 1

    def get_vocab(self) -> dict[str, int]:
        """Return the one token that has a number, padding."""
        return {str(self.pad_token or "<pad>"): NO_TOKEN}

    def save_vocabulary(self, save_directory: str, filename_prefix: str | None = None) -> tuple[str, ...]:
        """Write nothing: there is no vocabulary."""
        return ()

    def tokenize(self, text: str, **options: Any) -> list[str]:
        """Split a raw text into tokens."""
        return [token.text for token in tokenize(text)]

    def convert_tokens_to_ids(self, tokens: Any) -> Any:
        """Return the character ids of a token (C), or of tokens (T, C); padding is 0."""
        if isinstance(tokens, str):
            return NO_TOKEN if tokens == self.pad_token else self._rows([tokens])[0]
        return self._rows(tokens)

    def convert_ids_to_tokens(self, ids: Any, skip_special_tokens: bool = False) -> Any:
        """Return the tokens of character ids (T, C), or of one row; words were cut at C − 2 bytes."""
        rows = np.asarray(ids).tolist()
        if np.ndim(ids) == 1 and rows:
            return _word(rows)
        words = [_word(row) for row in rows]
        return [word for word in words if word not in _SPECIAL] if skip_special_tokens else words

    def convert_tokens_to_string(self, tokens: Sequence[str]) -> str:
        """Join tokens with spaces."""
        return " ".join(tokens)

    def decode(self, token_ids: Any, skip_special_tokens: bool = False, **unused: Any) -> Any:
        """Return the text of character ids (T, C), its tokens joined by spaces; a list of texts for (B, T, C)."""
        if len(token_ids) and np.ndim(token_ids[0]) == 2:
            return [self.decode(ids, skip_special_tokens) for ids in token_ids]
        return self.convert_tokens_to_string(self.convert_ids_to_tokens(token_ids, skip_special_tokens))

    def batch_decode(self, sequences: Any, skip_special_tokens: bool = False, **unused: Any) -> list[str]:
        """Return the texts of character ids (B, T, C)."""
        return [self.decode(ids, skip_special_tokens) for ids in sequences]

    def _rows(self, words: Sequence[str]) -> list[list[int]]:
        rows: list[list[int]] = word_ids(list(words), self.max_characters).tolist()
        return rows

    def _encode_plus(
        self,
        text: Any,
        text_pair: Any = None,
        add_special_tokens: bool = True,
        padding_strategy: PaddingStrategy = PaddingStrategy.DO_NOT_PAD,
        truncation_strategy: Any = None,
        max_length: int | None = None,
        is_split_into_words: bool = False,
        pad_to_multiple_of: int | None = None,
        padding_side: str | None = None,
        return_tensors: Any = None,
        return_attention_mask: bool | None = None,
        return_special_tokens_mask: bool = False,
        return_offsets_mapping: bool = False,
        return_length: bool = False,
        **unused: Any,
    ) -> BatchEncoding:
        if text_pair is not None:
            raise DataError("ElmoTokenizer was given two texts for one input; a biLM reads one")
        if isinstance(text, str) and is_split_into_words:
            raise DataError("the text is a string; expected a list of tokens with is_split_into_words=True")
        one = isinstance(text, str) or (is_split_into_words and all(isinstance(word, str) for word in text))
        truncate = getattr(truncation_strategy, "value", None) not in (None, "do_not_truncate")
        limit = max(max_length - 2 * add_special_tokens, 0) if truncate and max_length is not None else None
        outputs: dict[str, list[Any]] = {}
        for given in [text] if one else text:
            tokens = _placed(given) if is_split_into_words else tokenize(given)
            tokens = tokens[:limit]
            words = [token.text for token in tokens]
            around: list[Any] = [(0, 0)] if add_special_tokens else []
            values: dict[str, Any] = {
                "input_ids": self._rows([BEGIN_SENTENCE, *words, END_SENTENCE] if add_special_tokens else words)
            }
            if return_special_tokens_mask:
                values["special_tokens_mask"] = [1] * len(around) + [0] * len(words) + [1] * len(around)
            if return_offsets_mapping:
                values["offset_mapping"] = [*around, *((token.start, token.end) for token in tokens), *around]
            if return_length:
                values["length"] = len(values["input_ids"])
            for name, value in values.items():
                outputs.setdefault(name, []).append(value)
        lengths = [len(ids) for ids in outputs.get("input_ids", [])]
        padded = [
            self._pad(
                {name: values[row] for name, values in outputs.items()},
                max_length=max(lengths) if padding_strategy == PaddingStrategy.LONGEST else max_length,
                padding_strategy=padding_strategy,
                pad_to_multiple_of=pad_to_multiple_of,
                padding_side=padding_side,
                return_attention_mask=return_attention_mask,
            )
            for row in range(len(lengths))
        ]
        if one:
            return BatchEncoding(padded[0], tensor_type=return_tensors, prepend_batch_axis=return_tensors is not None)
        names = padded[0] if padded else ("input_ids", "attention_mask")
        return BatchEncoding({name: [each[name] for each in padded] for name in names}, tensor_type=return_tensors)

    def _pad(
        self,
        encoded_inputs: Any,
        max_length: int | None = None,
        padding_strategy: PaddingStrategy = PaddingStrategy.DO_NOT_PAD,
        pad_to_multiple_of: int | None = None,
        padding_side: str | None = None,
        return_attention_mask: bool | None = None,
    ) -> dict[str, Any]:
        """Pad one sentence, (tokens, C), to `max_length` tokens."""
        if (padding_side or self.padding_side) != "right":
            raise ConfigError("padding_side is 'left'; a biLM reads sentences with padding on the right")
        values = dict(encoded_inputs)
        ids = values["input_ids"]
        if ids and isinstance(ids[0], int):
            raise DataError("pad() was given one sentence; expected a batch of sentences, (tokens, characters) each")
        wanted = len(ids) if padding_strategy == PaddingStrategy.DO_NOT_PAD or max_length is None else max_length
        if pad_to_multiple_of is not None and padding_strategy != PaddingStrategy.DO_NOT_PAD:
            wanted = -(-wanted // pad_to_multiple_of) * pad_to_multiple_of
        missing = max(wanted - len(ids), 0)
        fill = {"input_ids": [NO_TOKEN] * self.max_characters, "special_tokens_mask": 1, "offset_mapping": (0, 0)}
        if return_attention_mask is not False:
            values.setdefault("attention_mask", [1] * len(ids))
            fill["attention_mask"] = 0
        return {name: value + [fill[name]] * missing if name in fill else value for name, value in values.items()}


class ElmoTokenClassificationPipeline(TokenClassificationPipeline):
    """The pipeline for `ElmoForTokenClassification`, with the offsets of each token in the text.

    pipeline("token-classification", model=folder, pipeline_class=ElmoTokenClassificationPipeline)
    """

    def gather_pre_entities(
        self,
        sentence: str,
        input_ids: Any,
        scores: Any,
        offset_mapping: Any,
        special_tokens_mask: Any,
        *unused: Any,
        **options: Any,
    ) -> list[dict[str, Any]]:
        """Return the words with their scores. A word is one token here, so there are no parts to join."""
        places = [place for place, special in enumerate(special_tokens_mask) if not special]
        return [
            {
                "word": token.text,
                "scores": scores[place],
                "start": token.start,
                "end": token.end,
                "index": place,
                "is_subword": False,
            }
            for place, token in zip(places, tokenize(sentence), strict=False)  # fewer places if it was truncated
        ]


_SPECIAL = (BEGIN_SENTENCE, END_SENTENCE, "")


def _placed(words: Sequence[str]) -> list[Token]:
    """Return tokens with their offsets in themselves, as transformers gives them for split words."""
    if not all(isinstance(word, str) for word in words):
        raise DataError("the tokens of a sentence must be strings")
    return [Token(word, 0, len(word)) for word in words]


def _word(ids: Sequence[int]) -> str:
    """Return the word of a row of character ids; "" for padding."""
    marks = {257: BEGIN_SENTENCE, 258: END_SENTENCE}
    if not any(ids):
        return ""
    inner = list(ids[ids.index(BEGIN_WORD_ID) + 1 : ids.index(END_WORD_ID)])
    if len(inner) == 1 and inner[0] in marks:
        return marks[inner[0]]
    return bytes(code - 1 for code in inner).decode("utf-8", "replace")
