"""bilm-tf's names, and the signatures of the TF Hub module, give what those programs computed."""

import json
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

from elmo.errors import ConfigError, DataError
from elmo.integrations.bilm_tf import Batcher, BidirectionalLanguageModel, TokenBatcher, WeightLayers
from elmo.integrations.tf_hub import HubModule
from embedders import DIM, LINES, N_LAYERS, OPTIONS, WEIGHTS, assert_close, embedder, fresh
from embedders import elmo as elmo_command
from models import write_published
from reference_files import VARIANTS, reference

SENTENCES = [["The", "cat", "sat", "."], ["naïve"], ["on", "the", "mat"]]


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("mode", ["characters", "tokens"])
def test_every_batch_is_that_of_bilm_tf(name: str, mode: str, tmp_path: Path) -> None:
    folder = reference(f"variants/{name}")
    batches = json.loads((folder / "batches.json").read_text())
    options, weights = folder / "options.json", folder / "weights.hdf5"
    characters = json.loads(options.read_text())["char_cnn"]["max_characters_per_token"]
    if mode == "characters":
        batcher: Batcher | TokenBatcher = Batcher(None, characters)
        model = BidirectionalLanguageModel(options, weights, max_batch_size=5)
    else:
        words, table = tmp_path / "words.txt", tmp_path / "vectors.hdf5"
        distinct = dict.fromkeys(["<S>", "</S>", "<UNK>", *(w for batch in batches for s in batch for w in s)])
        words.write_text("".join(f"{word}\n" for word in distinct), encoding="utf-8")
        assert elmo_command("convert", weights, table, "--vocabulary", words).code == 0
        batcher = TokenBatcher(words)
        model = BidirectionalLanguageModel(options, weights, False, table, vocabulary_file=words)
    with h5py.File(folder / "expected.hdf5") as file:
        for number, batch in enumerate(batches):
            ops = model(batcher.batch_sentences(batch))
            assert ops["lengths"].tolist() == ops["mask"].sum(dim=1).tolist() == [len(sentence) for sentence in batch]
            for row, sentence in enumerate(batch):
                expected = file[f"carried/{number}/{row}"][...]
                assert_close(ops["lm_embeddings"][row, :, : len(sentence)].numpy(), expected)
                half = expected[0, :, : expected.shape[2] // 2]
                assert_close(ops["token_embeddings"][row, 1 : len(sentence) + 1].numpy(), half)


def test_the_weighted_layers_are_the_formula(tmp_path: Path) -> None:
    model = BidirectionalLanguageModel(*write_published(tmp_path, OPTIONS, WEIGHTS))
    ops = model(Batcher(None, 20).batch_sentences(SENTENCES))
    layers = WeightLayers(N_LAYERS, l2_coef=0.25)
    with torch.no_grad():
        layers.mix.scalars.copy_(torch.tensor([1.0, 0.0, -2.0]))
        layers.mix.gamma.fill_(0.5)
    found = layers(ops)
    shares = np.exp([1.0, 0.0, -2.0]) / np.exp([1.0, 0.0, -2.0]).sum()
    expected = 0.5 * np.tensordot(shares, fresh(SENTENCES[0]), axes=1)
    assert_close(found["weighted_op"][0].detach().numpy(), expected)
    assert found["regularization_op"].item() == pytest.approx(0.25 * 5)
    top = WeightLayers(N_LAYERS, use_top_only=True)(ops)
    assert_close(top["weighted_op"][0].detach().numpy(), fresh(SENTENCES[0])[-1])
    assert top["regularization_op"].item() == 0


def test_the_layer_norm_leaves_boundaries_out(tmp_path: Path) -> None:
    model = BidirectionalLanguageModel(*write_published(tmp_path, OPTIONS, WEIGHTS))
    ops = model(Batcher(None, 20).batch_sentences(SENTENCES))
    found = WeightLayers(N_LAYERS, do_layer_norm=True)(ops)["weighted_op"].detach().numpy()
    tokens = np.concatenate([fresh(sentence) for sentence in SENTENCES], axis=1)
    mean, deviation = (f(tokens, axis=(1, 2), keepdims=True) for f in (np.mean, np.std))
    assert_close(found[ops["mask"].numpy()], ((tokens - mean) / deviation).mean(axis=0))


def test_what_bilm_tf_would_refuse(tmp_path: Path) -> None:
    files = write_published(tmp_path, OPTIONS, WEIGHTS)
    with pytest.raises(ConfigError, match="the batch has 3 sentences; max_batch_size is 2"):
        BidirectionalLanguageModel(*files, max_batch_size=2)(Batcher(None, 20).batch_sentences(SENTENCES))
    with pytest.raises(ConfigError, match="embedding_weight_file is needed with use_character_inputs=False"):
        BidirectionalLanguageModel(*files, use_character_inputs=False)
    with pytest.raises(ConfigError, match="use_top_only takes the layer as it is"):
        WeightLayers(3, use_top_only=True, do_layer_norm=True)


# TF Hub


def test_the_five_outputs_of_the_hub_module() -> None:
    module = HubModule(embedder())
    texts = LINES[2:5]
    padded = [text.split() + [""] * (6 - len(text.split())) for text in texts]
    tokens = {"tokens": np.array(padded), "sequence_len": [len(text.split()) for text in texts]}
    for outputs in (module(texts), module(tokens, signature="tokens")):
        assert set(outputs) == {"word_emb", "lstm_outputs1", "lstm_outputs2", "elmo", "default"}
        assert outputs["word_emb"].shape == (3, 6, DIM // 2)
        for row, text in enumerate(texts):
            layers, n = fresh(text.split()), len(text.split())
            assert_close(outputs["word_emb"][row, :n], layers[0, :, : DIM // 2])
            assert_close(outputs["lstm_outputs1"][row, :n], layers[1])
            assert_close(outputs["lstm_outputs2"][row, :n], layers[2])
            assert_close(outputs["elmo"][row, :n], layers.mean(axis=0))
            assert not outputs["elmo"][row, n:].any()
            assert_close(outputs["default"][row], layers.mean(axis=(0, 1)))


def test_trained_weights_of_the_hub_module() -> None:
    found = HubModule(embedder(), weights=[0.5, 0.0, 0.5], gamma=2.0)(["The cat"])
    layers = fresh(["The", "cat"])
    assert_close(found["elmo"][0], layers[0] + layers[2])
    assert HubModule(embedder())([""])["default"].tolist() == [[0.0] * DIM]


def test_what_the_hub_module_cannot_take() -> None:
    module = HubModule(embedder())
    with pytest.raises(ConfigError, match="signature is 'words'; expected one of default, tokens"):
        module(["a"], signature="words")
    with pytest.raises(DataError, match="expected a list of strings; for lists of tokens, give signature='tokens'"):
        module([["a", "b"]])
    with pytest.raises(DataError, match="expected a dictionary of 'tokens' and 'sequence_len'"):
        module(["a"], signature="tokens")
    with pytest.raises(DataError, match="there are 1 sentences, but sequence_len has 2 lengths"):
        module({"tokens": [["a"]], "sequence_len": [1, 1]}, signature="tokens")
    bytes_of_tensorflow = {"tokens": np.array([["a", "b"]]).astype(bytes), "sequence_len": [2]}
    with pytest.raises(DataError, match=r"token 0 of sentence 0 is .*; expected a string\. Decode it first"):
        module(bytes_of_tensorflow, signature="tokens")
    for n in (-1, 3):
        with pytest.raises(DataError, match=f"sentence 0 has 2 tokens, but sequence_len says {n}"):
            module({"tokens": [["a", "b"]], "sequence_len": np.array([n])}, signature="tokens")
    with pytest.raises(ConfigError, match=r"weights are \[1.0\]; expected 3, one per layer"):
        HubModule(embedder(), weights=[1.0])
