"""One call per command: what is refused before anything is computed."""

from pathlib import Path

import pytest
import torch

from corpora import write_corpus
from elmo.errors import WeightsError
from elmo.model.bilm import BiLM, BiLMConfig
from elmo.model.char_cnn import CharCNNConfig
from elmo.model.lstm import LSTMConfig
from elmo.pretrain import from_paths
from elmo.weights import folder
from elmo.weights.folder import Pretrained


def test_a_softmax_without_its_words_is_not_called_missing(tmp_path: Path) -> None:
    torch.manual_seed(0)
    bilm = BiLM(BiLMConfig(LSTMConfig(6, 3), CharCNNConfig(filters=((1, 4),)), n_softmax=5))
    folder.write(Pretrained(bilm), tmp_path / "model")
    corpus = write_corpus(tmp_path / "corpus", [[["a", "b"]]], [["a"]], 5)
    with pytest.raises(WeightsError) as error:
        from_paths.perplexity(tmp_path / "model", corpus)
    assert str(error.value) == (
        f"{tmp_path / 'model'}: has a softmax but no vocabulary.txt; expected the file with its words"
    )
