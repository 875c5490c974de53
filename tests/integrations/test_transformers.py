"""Our folders in transformers itself: the Auto classes, a head that is trained, the pipelines, there and back."""

import contextlib
import copy
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import elmo
from elmo.errors import ConfigError, DataError, WeightsError
from elmo.text.tokens import tokenize, words
from elmo.weights import folder as model_folder
from elmo.weights.folder import Pretrained
from embedders import DIM, LINES, N_LAYERS, assert_close, embedder, fresh, pretrained, write_model
from test_documents import ROOT, section

pytest.importorskip("transformers", reason="needs transformers: pip install 'elmo-torch[transformers]'")

from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForTokenClassification,
    AutoTokenizer,
    DataCollatorForTokenClassification,
    pipeline,
)

from elmo.integrations.transformers import (
    ElmoConfig,
    ElmoForTokenClassification,
    ElmoModel,
    ElmoTokenClassificationPipeline,
    ElmoTokenizer,
)

TEXTS = ["The cat sat on the mat.", "naïve 日本語", "an unquestionably-overlong-word isn't cut elsewhere"]
LABELS = {0: "O", 1: "B-PER", 2: "I-PER"}
C = 20


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_model(tmp_path / "model")


def head(folder: Path) -> ElmoForTokenClassification:
    torch.manual_seed(0)
    labels = {"id2label": LABELS, "label2id": {name: number for number, name in LABELS.items()}}
    model: ElmoForTokenClassification = AutoModelForTokenClassification.from_pretrained(folder, **labels)
    with torch.no_grad():
        model.classifier.weight.normal_()
        model.mix.scalars.copy_(torch.tensor([0.5, -1.0, 1.0]))
    return model


# The model


@pytest.mark.parametrize("dtype", [None, torch.float16])
def test_the_auto_classes_read_our_folder_and_give_the_references_layers(tmp_path: Path, dtype: Any) -> None:
    model_folder.write(pretrained(), tmp_path / "model", dtype)
    model, tokenizer = AutoModel.from_pretrained(tmp_path / "model"), AutoTokenizer.from_pretrained(tmp_path / "model")
    assert (type(model), type(tokenizer)) == (ElmoModel, ElmoTokenizer)
    assert model.dtype == torch.float32
    assert not model.training
    inputs = tokenizer(TEXTS, padding=True, return_tensors="pt")
    with torch.no_grad():
        output = model(**inputs, output_hidden_states=True)
    assert output.last_hidden_state.shape == (3, 9, DIM)
    assert len(output.hidden_states) == N_LAYERS
    for row, text in enumerate(TEXTS):
        n = len(words(text))
        found = np.stack([layer[row, 1 : n + 1].numpy() for layer in output.hidden_states])
        assert_close(found, fresh(words(text)), 1e-5 if dtype is None else 2e-2)
        assert torch.equal(output.last_hidden_state[row], output.hidden_states[-1][row])
        assert not output.last_hidden_state[row, n + 2 :].any()
    with torch.no_grad():
        first, *rest = model(**inputs, return_dict=False)
    assert torch.equal(first, output.last_hidden_state) and not rest


def test_the_packaged_model_is_read_as_it_is() -> None:
    place = Path(elmo.__file__).parent / "packaged" / "english"
    model, info = AutoModel.from_pretrained(place, output_loading_info=True)
    assert not any(info[name] for name in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    inputs = AutoTokenizer.from_pretrained(place)("The bank.", return_tensors="pt")
    with torch.no_grad():
        found = model(**inputs).last_hidden_state[0, 1:-1].numpy()
    assert_close(found, next(elmo.load(device="cpu").embed(["The bank."], layers="top")))


def test_a_mask_shortens_and_padding_on_the_left_is_refused(folder: Path) -> None:
    model, tokenizer = AutoModel.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    ids = tokenizer(["a b c"], return_tensors="pt")["input_ids"]
    mask = torch.tensor([[1, 1, 1, 0, 0]])
    with torch.no_grad():
        assert torch.equal(model(ids, mask).last_hidden_state[:, :3], model(ids[:, :3]).last_hidden_state)
        for wrong in ([[0, 1, 1, 1, 1]], [[1, 0, 1, 1, 1]]):
            with pytest.raises(DataError, match="padding before or between its tokens; expected padding on the right"):
                model(ids, torch.tensor(wrong))


def test_there_and_back(folder: Path, tmp_path: Path) -> None:
    model = AutoModel.from_pretrained(folder)
    model.save_pretrained(tmp_path / "saved")
    config = json.loads((tmp_path / "saved" / "config.json").read_text())
    assert (config["model_type"], config["architectures"], config["dtype"]) == ("elmo", ["ElmoModel"], "float32")
    again = AutoModel.from_pretrained(tmp_path / "saved")
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, again.state_dict()[name])
    assert_close(next(elmo.load(tmp_path / "saved", device="cpu").embed([TEXTS[0]])), fresh(words(TEXTS[0])))
    assert AutoTokenizer.from_pretrained(tmp_path / "saved").max_characters == C
    card = (tmp_path / "saved" / "README.md").read_text()
    assert "pipeline_tag: feature-extraction" in card and "3 layers of 10 dimensions" in card
    (tmp_path / "saved" / "README.md").write_text("mine")
    model.save_pretrained(tmp_path / "saved")
    assert (tmp_path / "saved" / "README.md").read_text() == "mine"


def test_a_new_model_has_the_originals_initial_values() -> None:
    config = ElmoConfig(lstm={"dim": 8, "projection_dim": 4}, char_cnn={"filters": [[1, 3], [2, 4]], "n_highway": 1})
    assert (config.hidden_size, config.num_hidden_layers) == (8, 2)
    model = AutoModel.from_config(config)
    highway = next(module for module in model.modules() if type(module).__name__ == "Highway")
    assert highway.bias[:7].tolist() == [-2.0] * 7
    assert ElmoConfig().hidden_size == 1024
    with pytest.raises(WeightsError, match=r"unknown field 'lstm\.dims'; did you mean 'lstm\.dim'\?"):
        ElmoModel(ElmoConfig(lstm={"dims": 8}))


def test_copies_are_independent(folder: Path) -> None:
    model = AutoModel.from_pretrained(folder)
    twin = copy.deepcopy(model)
    ids = AutoTokenizer.from_pretrained(folder)(TEXTS[0], return_tensors="pt")["input_ids"]
    with torch.no_grad():
        before = model(ids).last_hidden_state
        for parameter in twin.parameters():
            parameter.zero_()
        assert torch.equal(model(ids).last_hidden_state, before)
        assert not twin(ids).last_hidden_state.any()


def test_any_model_of_this_library_by_its_name(folder: Path, tmp_path: Path) -> None:
    model_folder.write(pretrained(), tmp_path / "int8", torch.int8)
    expected = next(elmo.load(tmp_path / "int8", device="cpu").embed(["The cat"], layers="top"))
    with pytest.raises(WeightsError, match=r"int8: is stored in int8, .* ElmoModel\.from_elmo\('.*int8'\) does"):
        AutoModel.from_pretrained(tmp_path / "int8")
    model = ElmoModel.from_elmo(tmp_path / "int8")
    with torch.no_grad():
        ids = ElmoTokenizer(C)("The cat", return_tensors="pt")["input_ids"]
        assert_close(model(ids).last_hidden_state[0, 1:-1].numpy(), expected)
    tagger = ElmoForTokenClassification.from_elmo(folder, id2label=LABELS)
    assert tagger.classifier.out_features == 3


def test_a_model_of_words_is_refused(tmp_path: Path) -> None:
    config = elmo.BiLMConfig(pretrained().bilm.config.lstm, None, n_words=5)
    model_folder.write(Pretrained(elmo.BiLM(config)), tmp_path / "words")
    with pytest.raises(ConfigError, match="the model does not read characters; transformers cannot use it"):
        AutoModel.from_pretrained(tmp_path / "words")


# The head


def test_the_head_is_the_formula(folder: Path) -> None:
    model = head(folder).eval()
    inputs = AutoTokenizer.from_pretrained(folder)(TEXTS[0], return_tensors="pt")
    labels = torch.tensor([[-100, 0, 1, 2, 0, 0, 1, 2, -100]])
    with torch.no_grad():
        output = model(**inputs, labels=labels, output_hidden_states=True)
    shares = np.exp([0.5, -1.0, 1.0]) / np.exp([0.5, -1.0, 1.0]).sum()
    mixed = np.tensordot(shares, fresh(words(TEXTS[0])), axes=1)
    logits = mixed @ model.classifier.weight.detach().numpy().T  # the bias is zero
    assert_close(output.logits[0, 1:-1].numpy(), logits)
    log_p = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    gold = labels[0, 1:-1].numpy()
    assert output.loss.item() == pytest.approx(-log_p[np.arange(len(gold)), gold].mean(), abs=1e-4)
    assert len(output.hidden_states) == N_LAYERS


def test_a_trained_head_comes_back_and_its_biLM_is_ours(folder: Path, tmp_path: Path) -> None:  # noqa: N802
    model = head(folder)
    model.bilm.requires_grad_(False)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    features = [
        {**tokenizer(text), "labels": [-100, *(place % 3 for place in range(len(words(text)))), -100]} for text in TEXTS
    ]
    batch = DataCollatorForTokenClassification(tokenizer)(features)
    assert batch["input_ids"].shape == (3, 9, C)
    assert batch["labels"].shape == batch["attention_mask"].shape == (3, 9)
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=0.05)
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.7 * losses[0]
    model.eval().save_pretrained(tmp_path / "tagger")
    again = AutoModelForTokenClassification.from_pretrained(tmp_path / "tagger")
    with torch.no_grad():
        assert torch.equal(again(**batch).logits, model(**batch).logits)
    assert again.config.id2label == LABELS
    assert_close(next(elmo.load(tmp_path / "tagger", device="cpu").embed([TEXTS[0]])), fresh(words(TEXTS[0])))
    card = (tmp_path / "tagger" / "README.md").read_text()
    assert "pipeline_tag: token-classification" in card and "labels O, B-PER, I-PER" in card


# Pipelines


def test_the_pipeline_of_features(folder: Path) -> None:
    features = pipeline("feature-extraction", model=str(folder))
    found = np.array(features(TEXTS[0]))
    assert_close(found[0, 1:-1], fresh(words(TEXTS[0]))[-1])


def test_the_pipeline_of_entities_knows_where_they_are(folder: Path) -> None:
    model = head(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tag = pipeline(
        "token-classification", model=model, tokenizer=tokenizer, pipeline_class=ElmoTokenClassificationPipeline
    )
    with torch.no_grad():
        best = model(**tokenizer(TEXTS[2], return_tensors="pt")).logits[0, 1:-1].softmax(-1).max(-1)
    tokens = tokenize(TEXTS[2])
    found = tag(TEXTS[2], ignore_labels=[])
    assert [(each["word"], each["start"], each["end"]) for each in found] == tokens
    assert [each["entity"] for each in found] == [LABELS[number] for number in best.indices.tolist()]
    assert_close(np.array([each["score"] for each in found]), best.values.numpy())
    for group in tag(TEXTS[2], aggregation_strategy="simple"):
        assert TEXTS[2][group["start"] : group["end"]].split()[0] in group["word"]


# The tokenizer


def test_ids_are_those_of_the_embedder() -> None:
    tokenizer = ElmoTokenizer(C)
    expected = embedder().ids(LINES)
    found = tokenizer(LINES, padding=True, return_tensors="pt")
    assert torch.equal(found["input_ids"], expected)
    assert torch.equal(found["attention_mask"].bool(), (expected > 0).any(-1))
    split = tokenizer([words(line) for line in LINES], is_split_into_words=True, padding=True, return_tensors="pt")
    assert torch.equal(split["input_ids"], expected)
    one = tokenizer(["The", "cat"], is_split_into_words=True, return_tensors="pt")
    assert torch.equal(one["input_ids"], embedder().ids([["The", "cat"]]))


def test_what_else_it_returns() -> None:
    tokenizer = ElmoTokenizer(C)
    found = tokenizer(TEXTS[0], return_special_tokens_mask=True, return_offsets_mapping=True, return_length=True)
    assert found["special_tokens_mask"] == [1, *[0] * 7, 1]
    assert found["offset_mapping"][1:-1] == [(token.start, token.end) for token in tokenize(TEXTS[0])]
    assert found["length"] == len(found["input_ids"]) == 9
    assert len(tokenizer(TEXTS[0], truncation=True, max_length=5)["input_ids"]) == 5
    assert tokenizer.decode(tokenizer(TEXTS[0], truncation=True, max_length=5)["input_ids"]) == "<S> The cat sat </S>"
    for shortest in (1, 2):  # less than the boundaries is not possible
        short = tokenizer(TEXTS[0], truncation=True, max_length=shortest)["input_ids"]
        assert tokenizer.decode(short) == "<S> </S>"
    assert len(tokenizer(TEXTS[0], add_special_tokens=False)["input_ids"]) == 7
    padded = tokenizer(TEXTS, padding="max_length", max_length=12, return_tensors="np")
    assert padded["input_ids"].shape == (3, 12, C)
    assert tokenizer(TEXTS, padding=True, pad_to_multiple_of=8, return_tensors="pt")["input_ids"].shape == (3, 16, C)
    assert "attention_mask" not in tokenizer(TEXTS[0], return_attention_mask=False)
    assert tokenizer.tokenize(TEXTS[0]) == words(TEXTS[0])
    ids = tokenizer(TEXTS, padding=True)["input_ids"]
    assert tokenizer.batch_decode(ids, skip_special_tokens=True)[1] == " ".join(words(TEXTS[1]))
    assert tokenizer.decode([]) == ""
    assert tokenizer.convert_tokens_to_ids("hi")[:4] == [259, 105, 106, 260]
    assert tokenizer([], padding=True)["input_ids"] == []


def test_its_settings_come_back(tmp_path: Path) -> None:
    ElmoTokenizer(C, model_max_length=7).save_pretrained(tmp_path)
    again = ElmoTokenizer.from_pretrained(tmp_path, max_characters=C)
    assert (again.max_characters, again.model_max_length) == (C, 7)
    assert len(again(TEXTS[0], truncation=True)["input_ids"]) == 7


def test_what_the_tokenizer_refuses() -> None:
    tokenizer = ElmoTokenizer(C)
    with pytest.raises(DataError, match="two texts for one input; a biLM reads one"):
        tokenizer("a", "b")
    with pytest.raises(DataError, match="the text is a string; expected a list of tokens with is_split_into_words"):
        tokenizer("a b", is_split_into_words=True)
    with pytest.raises(ConfigError, match="padding_side is 'left'"):
        ElmoTokenizer(C, padding_side="left")(TEXTS, padding=True)
    with pytest.raises(DataError, match=r"pad\(\) was given one sentence; expected a batch"):
        tokenizer.pad(tokenizer("a b"))


# The documentation


def test_the_example_in_the_documentation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shown = [block for block in section(ROOT / "docs" / "integrations.md", "transformers") if block[0] == "py"]
    assert shown
    names: dict[str, Any] = {}
    for _, code, expected in shown:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, "integrations.md", "exec"), names)
        assert printed.getvalue() == expected


def test_the_type_is_registered(folder: Path) -> None:
    assert type(AutoConfig.from_pretrained(folder)) is ElmoConfig
