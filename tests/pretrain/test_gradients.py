"""The gradient of the whole loss against central finite differences in float64: characters to softmax, clips biting."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from corpora import write_corpus
from elmo.model.bilm import BiLM, BiLMConfig
from elmo.model.char_cnn import CharCNNConfig
from elmo.model.lstm import LSTMConfig, State
from elmo.pretrain.batch import Batch, Batches
from elmo.pretrain.corpus import Corpus
from elmo.pretrain.distributed import World
from elmo.pretrain.step import TableRows, accumulate, losses
from elmo.pretrain.streams import Streams
from elmo.text.characters import word_ids

BATCH, UNROLL, WORDS = 4, 5, 13
SCALE = 20.0  # the original's: the gradient is that of loss × T
STEP = 1e-7  # small, because clips, maxima and ReLUs have kinks; the slope's rounding is then some 1e-7
CNN = CharCNNConfig(embedding_dim=3, filters=((1, 2), (2, 3), (3, 4)), n_highway=1, max_characters_per_token=9)
LSTM: dict[str, Any] = {"dim": 7, "projection_dim": 4, "cell_clip": 0.3, "proj_clip": 0.35}

CONFIGS = {
    "characters": BiLMConfig(LSTMConfig(**LSTM), CNN, n_softmax=WORDS),
    "characters by tanh": BiLMConfig(
        LSTMConfig(**LSTM), CharCNNConfig("tanh", 3, ((1, 2), (4, 3)), 2, 9), n_softmax=WORDS
    ),
    "F == D": BiLMConfig(LSTMConfig(**LSTM | {"projection_dim": 9}), CNN, n_softmax=WORDS),
    "word table": BiLMConfig(LSTMConfig(**LSTM), None, n_words=WORDS, n_softmax=WORDS),
    "shared table": BiLMConfig(LSTMConfig(**LSTM), None, n_words=WORDS, n_softmax=WORDS, share_embedding_softmax=True),
    "one direction": BiLMConfig(LSTMConfig(**LSTM), CNN, n_softmax=WORDS, bidirectional=False),
    "no projection": BiLMConfig(LSTMConfig(**LSTM | {"dim": 4}), CNN, n_softmax=WORDS),
    "no clips": BiLMConfig(LSTMConfig(**LSTM | {"cell_clip": None, "proj_clip": None}), CNN, n_softmax=WORDS),
    "only the cell clipped": BiLMConfig(LSTMConfig(**LSTM | {"proj_clip": None}), CNN, n_softmax=WORDS),
    "three layers, no skip": BiLMConfig(
        LSTMConfig(**LSTM | {"n_layers": 3, "use_skip_connections": False}), CNN, n_softmax=WORDS
    ),
}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """Thirteen words, ten of them predicted, of one byte to more than fit; many equal words in a window."""
    words = ["a", "of", "thé", "cat", "日本", "bird", "house", "window", "gradient", "syllable", "rare", "x", "z" * 9]
    rng = np.random.default_rng(0)
    text = [[words[k] for k in rng.integers(0, len(words), size=rng.integers(0, 9))] for _ in range(40)]
    return Corpus.open(write_corpus(tmp_path_factory.mktemp("gradients") / "corpus", [text], [], WORDS))


def model(name: str, seed: int = 0) -> BiLM:
    """Weights large enough for the clips, and no bias zero."""
    torch.manual_seed(seed)
    bilm = BiLM(CONFIGS[name]).double()
    with torch.no_grad():
        for parameter in bilm.parameters():
            if parameter.dim() == 1:
                parameter.add_(0.1 * torch.randn_like(parameter))
        for lstm in bilm.lstms:
            lstm.weight_input.mul_(1.5)
            if lstm.weight_projection is not None:
                lstm.weight_projection.mul_(2.0)
            lstm.bias.add_(0.3 * torch.randn_like(lstm.bias))
        encoder: Any = bilm.token_encoder
        if bilm.config.char_cnn is not None:
            for weight in encoder.filters:
                weight.mul_(8.0)
    return bilm


def batches(
    bilm: BiLM, corpus: Corpus, negatives: int | None, parts: int = 1, step: int = 1, round_to: int = 1
) -> list[Batch]:
    streams = Streams(corpus, BATCH, UNROLL, seed=5, directions=bilm.config.directions)
    cnn = bilm.config.char_cnn
    return Batches(
        corpus,
        streams,
        corpus.vocabulary,
        max_characters=cnn.max_characters_per_token if cnn is not None else None,
        negatives=negatives,
        accumulate=parts,
        round_to=round_to,
    ).of_step(step)


def carried(bilm: BiLM, seed: int = 1) -> State:
    """A state as a window before may have left it, some of it at the clips."""
    torch.manual_seed(seed)
    zero = bilm.zero_state(BATCH)
    lstm = bilm.config.lstm
    h, c = (torch.randn_like(part) * 0.4 for part in zero)
    if lstm.cell_clip is not None:
        c = c.clamp(-lstm.cell_clip, lstm.cell_clip)
    if lstm.proj_clip is not None:
        h = h.clamp(-lstm.proj_clip, lstm.proj_clip)
    return State(h, c)


def value(bilm: BiLM, batch: Batch, state: State) -> float:
    """SCALE × the mean over directions of the mean loss, without any gradient."""
    with torch.no_grad():
        each, _ = losses(bilm, batch, state, 0.0, TableRows())
    return float(each.mean()) * SCALE / batch.inputs.shape[1]


def dense(gradient: Tensor | None) -> Tensor:
    assert gradient is not None
    return gradient.to_dense() if gradient.is_sparse else gradient


def at_the_limit(values: Tensor, limit: float) -> float:
    assert values.abs().max() < limit + 1e-12
    return float((values.abs() > limit - 1e-12).double().mean())


def entries(gradient: Tensor, rng: np.random.Generator) -> list[int]:
    """The two largest of a gradient, and two at random."""
    largest = gradient.abs().flatten().topk(2).indices.tolist()
    return sorted({*largest, *rng.integers(0, gradient.numel(), size=2).tolist()})


@pytest.mark.parametrize("negatives", [None, 6], ids=["full", "sampled"])
@pytest.mark.parametrize("name", CONFIGS)
def test_every_parameter_s_gradient_is_the_loss_s_slope(name: str, negatives: int | None, corpus: Corpus) -> None:
    bilm = model(name)
    (batch,) = batches(bilm, corpus, negatives)
    state = carried(bilm)
    mean, _ = accumulate(bilm, [batch], state, dropout=0.0, scale=SCALE, world=World())
    assert float(mean.double().mean()) * SCALE == pytest.approx(value(bilm, batch, state), rel=1e-6)
    rng = np.random.default_rng(2)
    for which, parameter in bilm.named_parameters():
        gradient = dense(parameter.grad)
        assert gradient.abs().max() > 1e-4, which
        flat = parameter.detach().view(-1)
        for entry in entries(gradient, rng):
            before = flat[entry].item()
            flat[entry] = before + STEP
            above = value(bilm, batch, state)
            flat[entry] = before - STEP
            slope = (above - value(bilm, batch, state)) / (2 * STEP)
            flat[entry] = before
            assert gradient.view(-1)[entry].item() == pytest.approx(slope, rel=1e-4, abs=1e-6), f"{which}[{entry}]"


@pytest.mark.parametrize("negatives", [None, 6], ids=["full", "sampled"])
@pytest.mark.parametrize("name", CONFIGS)
def test_the_loss_is_that_of_the_text(name: str, negatives: int | None, corpus: Corpus) -> None:
    """From the window's words alone: each is spelled or looked up, read in its row, and predicts the next one."""
    bilm = model(name)
    directions, known = bilm.config.directions, corpus.vocabulary.words
    window = Streams(corpus, BATCH, UNROLL, seed=5, directions=directions).window(1)
    text = [[[corpus.words[row] for row in line] for line in way] for way in window]
    with torch.no_grad():
        encoder, softmax = bilm.token_encoder, bilm.softmax
        assert softmax is not None

        def vector(word: str) -> Tensor:
            if bilm.config.char_cnn is not None:
                return encoder(torch.from_numpy(word_ids([word], 9)))[0]
            return encoder.embedding[1 + known.index(word if word in known else "<UNK>")]

        read = [torch.stack([vector(line[t]) for t in range(UNROLL) for line in way]) for way in text]
        hidden = bilm.run_lstms(torch.stack(read), [BATCH] * UNROLL, carried(bilm))[0][-1]
        table = encoder.embedding[1:] if softmax.weight is None else softmax.weight
        wanted = torch.zeros(directions, dtype=torch.float64)
        for direction, way in enumerate(text):
            rng = np.random.default_rng([5, 2, 1, direction])
            drawn, tries = one_by_one(rng, WORDS, negatives) if negatives else (list(range(WORDS)), None)
            for place, h in enumerate(hidden[direction]):
                word = way[place % BATCH][place // BATCH + 1]
                target = known.index(word if word in known else "<UNK>")
                words = [target, *(k for k in drawn if k != target)]
                scores = table[words] @ h + softmax.bias[words]
                if tries is not None:
                    p = np.log((np.array(words) + 2) / (np.array(words) + 1)) / np.log(WORDS + 1)
                    scores -= torch.from_numpy(np.log(1 - (1 - p) ** tries))
                wanted[direction] -= torch.log_softmax(scores, dim=0)[0]
    (batch,) = batches(bilm, corpus, negatives)
    each, _ = losses(bilm, batch, carried(bilm), 0.0, TableRows())
    torch.testing.assert_close(each, wanted, rtol=1e-6 if negatives else 1e-12, atol=0.0)  # log Q is float32


def one_by_one(rng: np.random.Generator, n_words: int, n: int) -> tuple[list[int], int]:
    """Log-uniform words until n distinct ones were seen, and how many tries that took."""
    seen: set[int] = set()
    tries = 0
    while len(seen) < n:
        seen.add(min(int(np.exp(rng.random() * np.log(n_words + 1))) - 1, n_words - 1))
        tries += 1
    return sorted(seen), tries


@pytest.mark.parametrize("name", CONFIGS)
def test_the_clips_bite(name: str, corpus: Corpus) -> None:
    """Some values are held, some are not, in every layer: the finite differences meet both."""
    bilm = model(name)
    lstm = bilm.config.lstm
    (batch,) = batches(bilm, corpus, None)
    with torch.no_grad():
        words: Any = bilm.token_encoder(batch.words.long())
        inputs = words[batch.inputs]
        layers, after = bilm.run_lstms(inputs, [BATCH] * UNROLL, carried(bilm))
    projected = lstm.dim != lstm.projection_dim
    for depth, output in enumerate(layers):
        if lstm.cell_clip is not None:
            assert 0.05 < at_the_limit(after.c[depth], lstm.cell_clip) < 0.95
        if lstm.proj_clip is not None and projected:
            skipped = layers[depth - 1] if depth and lstm.use_skip_connections else 0.0
            assert 0.02 < at_the_limit(output - skipped, lstm.proj_clip) < 0.95


@pytest.mark.parametrize("negatives", [None, 6], ids=["full", "sampled"])
@pytest.mark.parametrize("name", CONFIGS)
def test_parts_give_the_gradients_of_the_whole(name: str, negatives: int | None, corpus: Corpus) -> None:
    found = {}
    for parts in (1, 2, 4):
        bilm = model(name)
        some = batches(bilm, corpus, negatives, parts)
        assert len(some) == parts
        mean, state = accumulate(bilm, some, carried(bilm), dropout=0.0, scale=SCALE, world=World())
        named = {which: dense(parameter.grad) for which, parameter in bilm.named_parameters()}
        found[parts] = {**named, "mean": mean, "state.h": state.h, "state.c": state.c}
    for parts in (2, 4):
        assert found[parts].keys() == found[1].keys()
        for which, whole in found[1].items():
            tolerance = 1e-6 if whole.dtype == torch.float32 else 1e-12
            torch.testing.assert_close(found[parts][which], whole, rtol=tolerance, atol=tolerance, msg=which)


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("negatives", [None, 6], ids=["full", "sampled"])
@pytest.mark.parametrize("name", CONFIGS)
def test_words_that_only_fill_up_change_nothing(name: str, negatives: int | None, parts: int, corpus: Corpus) -> None:
    """Neither a loss nor a gradient, nor which rows of a table have one."""
    found = []
    for round_to in (1, 16):
        bilm = model(name)
        some = batches(bilm, corpus, negatives, parts, round_to=round_to)
        if round_to == 16:
            assert {len(part.words) % 16 for part in some} == {0}
            assert all(part.predicted is None or (len(part.predicted) == 16 and part.filled > 0) for part in some)
        mean, state = accumulate(bilm, some, carried(bilm), dropout=0.0, scale=SCALE, world=World())
        given = {which: parameter.grad for which, parameter in bilm.named_parameters()}
        rows = {which: d.coalesce().indices().tolist() for which, d in given.items() if d is not None and d.is_sparse}
        values = {which: dense(gradient) for which, gradient in given.items()}
        found.append((rows, {**values, "mean": mean, "state.h": state.h, "state.c": state.c}))
    assert found[0][0] == found[1][0]
    for which, wanted in found[0][1].items():
        tolerance = 1e-6 if wanted.dtype == torch.float32 else 1e-12
        torch.testing.assert_close(found[1][1][which], wanted, rtol=tolerance, atol=tolerance, msg=which)


@pytest.mark.parametrize("name", CONFIGS)
def test_the_kernels_gradient_is_what_pytorch_records(name: str, corpus: Corpus) -> None:
    found = []
    for plain in (True, False):
        bilm = model(name)
        for lstm in bilm.lstms:
            lstm.reference = plain
        accumulate(bilm, batches(bilm, corpus, 6), carried(bilm), dropout=0.0, scale=SCALE, world=World())
        found.append({which: dense(parameter.grad) for which, parameter in bilm.named_parameters()})
    for which, wanted in found[0].items():
        torch.testing.assert_close(found[1][which], wanted, rtol=1e-10, atol=1e-12, msg=which)


def test_gradients_of_a_step_do_not_add_to_those_before(corpus: Corpus) -> None:
    bilm = model("word table")
    state = carried(bilm)
    (batch,) = batches(bilm, corpus, 6)
    accumulate(bilm, batches(bilm, corpus, 6, step=3), state, dropout=0.0, scale=SCALE, world=World())
    accumulate(bilm, [batch], state, dropout=0.0, scale=SCALE, world=World())
    twice = {which: dense(parameter.grad).clone() for which, parameter in bilm.named_parameters()}
    other = model("word table")
    accumulate(other, [batch], state, dropout=0.0, scale=SCALE, world=World())
    for which, parameter in other.named_parameters():
        assert torch.equal(twice[which], dense(parameter.grad)), which


def test_no_gradient_leaves_the_window(corpus: Corpus) -> None:
    """State is carried, gradients are cut: what comes out has no history, and what goes in gets no gradient."""
    bilm = model("characters")
    _, after = accumulate(bilm, batches(bilm, corpus, 6), carried(bilm), dropout=0.0, scale=SCALE, world=World())
    assert not after.h.requires_grad and not after.c.requires_grad
    assert after.h.grad_fn is None and after.c.grad_fn is None


def test_a_state_carried_on_is_one_long_window(corpus: Corpus) -> None:
    """Losses of two windows of T are those of one of 2T, since windows follow each other along their rows."""
    bilm = model("characters")
    state, each = carried(bilm), []
    streams = Streams(corpus, BATCH, 2 * UNROLL, seed=5)
    for step in (2, 3):
        (batch,) = batches(bilm, corpus, None, step=step)
        mean, state = accumulate(bilm, [batch], state, dropout=0.0, scale=SCALE, world=World())
        each.append(mean)
    (long,) = Batches(corpus, streams, corpus.vocabulary, max_characters=9, negatives=None).of_step(1)
    mean, after = accumulate(bilm, [long], carried(bilm), dropout=0.0, scale=SCALE, world=World())
    torch.testing.assert_close(torch.stack(each).mean(dim=0), mean, rtol=1e-6, atol=0.0)
    torch.testing.assert_close(state.c, after.c, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("sampled", [True, False])
@pytest.mark.parametrize("name", ["word table", "shared table"])
def test_a_table_s_gradient_has_the_rows_that_were_touched(name: str, sampled: bool, corpus: Corpus) -> None:
    bilm = model(name)
    (batch,) = batches(bilm, corpus, 6 if sampled else None)
    accumulate(bilm, [batch], carried(bilm), dropout=0.0, scale=SCALE, world=World())
    table: Any = bilm.token_encoder
    gradient = table.embedding.grad
    read = set(batch.words[batch.inputs].flatten().tolist())
    if name == "shared table":
        predicted = batch.predicted if batch.predicted is not None else torch.arange(WORDS)
        read |= {word + 1 for word in predicted.tolist()}
    assert {row for row in range(WORDS + 1) if dense(gradient)[row].abs().max() > 0} == read
    assert gradient.is_sparse == (sampled or name == "word table")
    if gradient.is_sparse:
        assert gradient.coalesce().indices()[0].tolist() == sorted(read)
        assert gradient._indices()[0].tolist() == sorted(read)
    if name == "word table" and batch.predicted is not None:
        assert bilm.softmax.weight.grad.coalesce().indices()[0].tolist() == batch.predicted.tolist()


@pytest.mark.parametrize("precision", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("limit", [0.3, 0.5, 0.7, 3.0])  # 0.3 and 0.7 lie between two bfloat16 numbers
def test_nothing_flows_through_what_is_clipped(limit: float, precision: torch.dtype, corpus: Corpus) -> None:
    """Cells far above their clip, projections far above theirs: no LSTM has a gradient, nor has what they read."""
    lstms = LSTMConfig(**LSTM | {"proj_clip": limit, "use_skip_connections": False})
    bilm = BiLM(BiLMConfig(lstms, CNN, n_softmax=WORDS))
    bilm.to(torch.float64 if precision == torch.float64 else torch.float32)
    with torch.no_grad():
        for lstm in bilm.lstms:
            lstm.bias.fill_(5.0)
            lstm.weight_input.mul_(0.01)
            lstm.weight_hidden.mul_(0.01)
            lstm.weight_projection.fill_(20.0)
    some, state = batches(bilm, corpus, 6), bilm.zero_state(BATCH)
    accumulate(bilm, some, state, dropout=0.0, scale=SCALE, world=World(), precision=precision)
    for which, parameter in bilm.named_parameters():
        largest = dense(parameter.grad).abs().max()
        assert largest > 0 if which.startswith("softmax.") else largest == 0, which


def test_bfloat16_gradients_are_close_to_float32_s(corpus: Corpus) -> None:
    """With the published clips: gradients within 5 % of their norm."""
    torch.manual_seed(0)
    bilm = BiLM(BiLMConfig(LSTMConfig(dim=64, projection_dim=24), CNN, n_softmax=WORDS))
    found = []
    for precision in (torch.float32, torch.bfloat16):
        state = bilm.zero_state(BATCH)
        mean, _ = accumulate(
            bilm, batches(bilm, corpus, 6), state, dropout=0.0, scale=SCALE, world=World(), precision=precision
        )
        found.append((mean, {which: dense(parameter.grad) for which, parameter in bilm.named_parameters()}))
    assert found[1][0].tolist() == pytest.approx(found[0][0].tolist(), rel=0.01)
    assert found[1][0].tolist() != found[0][0].tolist()
    for which, wanted in found[0][1].items():
        assert found[1][1][which].dtype == torch.float32
        assert (found[1][1][which] - wanted).norm() < 0.05 * wanted.norm(), which
