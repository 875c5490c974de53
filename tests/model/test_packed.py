"""Packed weights: the same layers as the reference, and rows that do not depend on the batch."""

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

import elmo.model.kernels.lstm_cpu as lstm_cpu
from elmo.embed.embedder import Embedder
from elmo.errors import ConfigError
from elmo.model.bilm import BiLM, BiLMConfig
from elmo.model.char_cnn import CharCNN, CharCNNConfig
from elmo.model.kernels.char_cnn_cpu import PackedCharCNN
from elmo.model.kernels.products import (
    Int8Product,
    Int8SingleRows,
    PackedProduct,
    RoundedProduct,
    can_pack,
    can_pack_int8,
    onednn_products,
    product,
    rounded_down,
    rounded_up,
)
from elmo.model.lstm import LSTMConfig, State
from elmo.model.packed import PackedBiLM, packed
from elmo.model.packing import Packing
from elmo.weights.folder import Pretrained
from elmo.weights.int8 import dequantize, quantize
from embedders import assert_close, assert_same_bits, embedder, fresh
from models import ids_of, random_sentences, small

needs_packing = pytest.mark.skipif(not can_pack(), reason="this PyTorch cannot pack matrices for oneDNN")
needs_int8 = pytest.mark.skipif(not can_pack_int8(), reason="this PyTorch or this processor has no exact int8 products")
KINDS = [pytest.param(Int8Product, marks=needs_int8), RoundedProduct]


@needs_packing
@pytest.mark.parametrize(("inner", "columns"), [(3, 5), (128, 512), (300, 40)])
def test_products_are_right_and_a_row_does_not_depend_on_the_others(inner: int, columns: int) -> None:
    torch.manual_seed(0)
    x, matrix, other = torch.randn(70, inner), torch.randn(inner, columns), torch.randn(70, columns)
    product = PackedProduct(matrix)
    exact = x.double() @ matrix.double()
    assert_close(product(x).numpy(), exact.numpy(), 1e-4)
    assert_close(product(x, other[0]).numpy(), (exact + other[0]).numpy(), 1e-4)
    assert_close(product.plus(x, other).numpy(), (exact + other).numpy(), 1e-4)
    for rows in (1, 2, 5, 16, 33, 64):
        assert torch.equal(product(x[:rows], other[0]), product(x, other[0])[:rows])
        assert torch.equal(product.plus(x[:rows], other[:rows]), product.plus(x, other)[:rows])


@needs_packing
@pytest.mark.parametrize(("inner", "columns"), [(3, 5), (128, 512), (300, 40)])
def test_a_product_that_is_not_packed_is_right_too(inner: int, columns: int) -> None:
    torch.manual_seed(0)
    x, weight, bias = torch.randn(70, inner), torch.randn(columns, inner), torch.randn(columns)
    found = product(x, weight, bias)
    assert_close(found.numpy(), (x.double() @ weight.double().t() + bias).numpy(), 1e-4)
    for rows in (1, 2, 5, 64):
        assert torch.equal(product(x[:rows], weight, bias), found[:rows])
    assert_close(product(x.double(), weight.double(), bias.double()).numpy(), found.numpy(), 1e-4)


@pytest.mark.parametrize("precision", ["highest", "high", "medium"])
def test_products_of_a_training_step_are_exact_and_the_program_keeps_its_setting(precision: str) -> None:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        with pytest.raises(KeyError), onednn_products(torch.device("cpu")):
            x, y = torch.randn(2, 128, 128, generator=torch.Generator().manual_seed(0))
            if precision == "highest":  # in the others the program itself lets products be rounded
                torch.testing.assert_close((x @ y).double(), x.double() @ y.double(), rtol=0, atol=1e-4)
            raise KeyError
        with onednn_products(torch.device("meta")):
            assert torch.get_float32_matmul_precision() == precision
        assert torch.get_float32_matmul_precision() == precision
    finally:
        torch.set_float32_matmul_precision(before)


@needs_packing
@pytest.mark.parametrize("joined", [True, False])
@pytest.mark.parametrize(
    "config",
    [
        LSTMConfig(24, 10, cell_clip=0.2, proj_clip=0.1),
        LSTMConfig(24, 10, n_layers=3, cell_clip=None, proj_clip=None, use_skip_connections=False),
        LSTMConfig(16, 16),
    ],
)
@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize("lengths", [[5, 9, 1, 9, 3], [7], [2, 2]])
def test_layers_and_states_are_those_of_the_reference(
    joined: bool, config: LSTMConfig, bidirectional: bool, lengths: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lstm_cpu, "JOINED_BYTES", 1 << 30 if joined else 0)
    torch.manual_seed(0)
    bilm = BiLM(BiLMConfig(config, CharCNNConfig(filters=((1, 4),), n_highway=0), bidirectional=bidirectional))
    bilm.requires_grad_(False)
    for lstm in bilm.lstms:
        lstm.bias.normal_()
    bilm.reference = True
    packing, tokens = Packing.of(lengths), torch.randn(sum(lengths), config.projection_dim)
    shape = config.n_layers, bilm.config.directions, len(lengths)
    state = State(torch.randn(*shape, config.projection_dim), torch.randn(*shape, config.dim))
    wanted, after = bilm.contextualize(tokens, packing, state)
    before = [part.clone() for part in state]
    layers, end = PackedBiLM(bilm).contextualize(tokens, packing, state)
    for layer, expected in zip([*layers, *end], [*wanted, *after], strict=True):
        torch.testing.assert_close(layer, expected, rtol=0, atol=2e-6)
    for part, kept in zip(state, before, strict=True):
        assert torch.equal(part, kept)


@needs_packing
@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("longest", [9, 8])
def test_words_are_encoded_as_by_the_reference(activation: str, longest: int) -> None:
    """Also words that fill all their characters, which have no window of padding only."""
    torch.manual_seed(0)
    config = CharCNNConfig(activation, 5, ((1, 3), (4, 6), (7, 8)), 2, max_characters_per_token=9)
    cnn = CharCNN(config, 12).requires_grad_(False)
    for bias in cnn.biases:
        bias.normal_()
    ids = torch.randint(1, 257, (150, 9))
    for row, length in zip(ids, torch.randint(3, longest + 1, (150,)), strict=True):
        row[length:] = 261
    torch.testing.assert_close(PackedCharCNN(cnn)(ids), cnn(ids), rtol=0, atol=2e-6)


@needs_packing
def test_a_word_has_the_same_vector_alone_and_beside_others() -> None:
    torch.manual_seed(0)
    cnn = CharCNN(CharCNNConfig(filters=((1, 1024), (2, 1024)), n_highway=1), 16).requires_grad_(False)
    encode, ids = PackedCharCNN(cnn), torch.randint(1, 257, (65, 50))
    together = encode(ids)
    for size in (1, 2, 64):
        assert_same_bits([encode(ids[:size]).numpy()], [together[:size].numpy()])
    assert_same_bits([encode(ids[-1:]).numpy()], [together[-1:].numpy()])  # the 65th is the first of a second group


@needs_packing
def test_what_can_be_packed(tmp_path: Path) -> None:
    bilm, _ = small(tmp_path)
    assert packed(bilm) is not None
    bilm.reference = True
    assert packed(bilm) is None
    bilm.reference = False
    assert packed(bilm.double()) is None
    assert packed(bilm.bfloat16()) is None


def test_without_the_operators_the_biLM_s_own_compute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: N802
    monkeypatch.setattr("elmo.model.packed.can_pack", lambda: False)
    model = embedder()
    sentences = random_sentences(np.random.default_rng(3), 5)
    for array, sentence in zip(model.embed(sentences), sentences, strict=True):
        assert_close(array, fresh(sentence))


@needs_packing
def test_the_reference_can_be_switched_on_at_any_time(tmp_path: Path) -> None:
    model = embedder()
    (first,) = model.embed([["one", "two"]])
    model.bilm.reference = True
    (second,) = model.embed([["one", "two"]])
    layers, _ = model.bilm(ids_of(model.bilm, [["one", "two"]]))
    assert_close(first, second)
    assert_close(second, layers.without_boundaries().activations[:, 0].numpy())


@needs_packing
@pytest.mark.parametrize(("inner", "columns"), [(3, 5), (128, 512), (300, 40)])
def test_a_packed_matrix_is_given_back_to_the_bit(inner: int, columns: int) -> None:
    torch.manual_seed(0)
    matrix = torch.randn(inner, columns)
    assert torch.equal(PackedProduct(matrix).matrix(), matrix)
    assert torch.equal(PackedProduct(matrix[:, 1::2]).matrix(), matrix[:, 1::2])


def test_numbers_of_rows_are_few() -> None:
    computed = {rows: rounded_up(rows) for rows in range(1, 400)}
    assert all(rows <= more and rounded_down(more) == more for rows, more in computed.items())
    assert all(more == rows or more < 2 * rows for rows, more in computed.items())
    assert all(rounded_up(rounded_down(rows)) == rounded_down(rows) <= rows for rows in computed)
    assert len(set(computed.values())) < 20


@needs_packing
@pytest.mark.parametrize("joined", [True, False])
def test_matrices_are_released_and_given_back(joined: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lstm_cpu, "JOINED_BYTES", 1 << 30 if joined else 0)
    torch.manual_seed(0)
    bilm = BiLM(BiLMConfig(LSTMConfig(24, 10), CharCNNConfig(filters=((1, 4), (2, 6)), n_highway=2)))
    bilm.requires_grad_(False)
    before = {name: values.clone() for name, values in bilm.state_dict().items()}
    packing, tokens, state = Packing.of([4, 2, 7]), torch.randn(13, 10), bilm.zero_state(3)
    wanted, _ = PackedBiLM(bilm).contextualize(tokens, packing, state)
    released = PackedBiLM(bilm, release=True)
    empty = {name for name, parameter in bilm.named_parameters() if not parameter.numel()}
    kept = {"weight_hidden"} if joined else set()
    matrices = {"weight_input", "weight_hidden", "weight_projection"} - kept
    highways = {f"token_encoder.highways.{k}.weight" for k in (0, 1)}
    assert empty == {f"lstms.{k}.{name}" for k in (0, 1) for name in matrices} | highways
    layers, _ = released.contextualize(tokens, packing, state)
    assert all(map(torch.equal, layers, wanted))
    for _ in range(2):
        released.give_back()
        assert all(torch.equal(values, before[name]) for name, values in bilm.state_dict().items())
        assert not any(parameter.is_inference() for parameter in bilm.parameters())
        released.release()
    assert not bilm.weight.numel()


@needs_packing
def test_matrices_are_given_back_if_packing_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    bilm = BiLM(BiLMConfig(LSTMConfig(24, 10), CharCNNConfig(filters=((1, 4),), n_highway=1))).requires_grad_(False)
    before = {name: values.clone() for name, values in bilm.state_dict().items()}

    def fail(*_: object) -> None:
        assert not bilm.weight.numel()
        raise MemoryError

    monkeypatch.setattr("elmo.model.packed.PackedCharCNN", fail)
    with pytest.raises(MemoryError):
        PackedBiLM(bilm, release=True)
    assert all(torch.equal(values, before[name]) for name, values in bilm.state_dict().items())


# int8


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("inner", "columns"), [(3, 5), (128, 512), (2048, 40)])
def test_an_int8_product_is_the_one_of_integers(kind: type[Int8Product], inner: int, columns: int) -> None:
    rng = np.random.default_rng(0)
    x, matrix, other = (rng.standard_normal(shape) for shape in ((70, inner), (inner, columns), (70, columns)))
    x[3], matrix[:, 2], x[4] = 0.0, 0.0, 1e-20 * x[4]
    x, matrix, other = (array.astype(np.float32) for array in (x, matrix, other))

    def integers(values: np.ndarray, axis: int) -> tuple[np.ndarray, np.ndarray]:
        scale = np.maximum(np.abs(values).max(axis, keepdims=True), 1e-37) / np.float32(127)
        return np.round(values / scale).astype(np.int64), scale.astype(np.float64)

    (rows, row_scale), (values, scale) = integers(x, 1), integers(matrix, 0)
    wanted = (rows @ values) * row_scale * scale
    product = kind(torch.from_numpy(matrix))
    given, more = torch.from_numpy(x), torch.from_numpy(other)
    assert_close(product(given).numpy(), wanted, 1e-4)
    assert_close(product(given, more[0]).numpy(), wanted + other[0], 1e-4)
    assert_close(product.plus(given, more).numpy(), wanted + other, 1e-4)


@needs_int8
def test_a_row_of_an_int8_product_does_not_depend_on_the_others() -> None:
    torch.manual_seed(0)
    x, matrix, other = torch.randn(70, 300), torch.randn(300, 96), torch.randn(70, 96)
    product = Int8Product(matrix)
    for rows in (1, 2, 5, 16, 33, 64):
        assert torch.equal(product.plus(x[:rows], other[:rows]), product.plus(x, other)[:rows])


@needs_int8
@pytest.mark.parametrize(("inner", "columns"), [(300, 96), (48, 320)])
def test_int8_products_of_single_rows_are_those_of_many(inner: int, columns: int) -> None:
    torch.manual_seed(0)
    x, matrices, other = torch.randn(2, 1, inner), torch.randn(2, inner, columns), torch.randn(2, 1, columns)
    products = Int8SingleRows(matrices)
    wanted = [Int8Product(matrix).plus(row, more) for matrix, row, more in zip(matrices, x, other, strict=True)]
    assert torch.equal(products.plus(x, other, torch.empty(2, 1, columns)), torch.stack(wanted))
    for k, matrix in enumerate(matrices):
        assert torch.equal(products(x)[k], Int8Product(matrix)(x[k]))
        assert torch.equal(products.of(k)(x[k : k + 1])[0], Int8Product(matrix)(x[k]))


@pytest.mark.parametrize("kind", KINDS)
def test_the_int8_values_of_a_folder_are_found_again(kind: type[Int8Product]) -> None:
    torch.manual_seed(0)
    matrix = torch.randn(40, 30)
    stored = dequantize(*quantize(matrix, 0))
    assert_close(kind(stored)(torch.eye(40)).numpy(), stored.numpy(), 1e-6)
    assert_close(kind(matrix)(torch.eye(40)).numpy(), stored.numpy(), 1e-6)


@pytest.mark.parametrize("exact", [pytest.param(True, marks=needs_int8), False])
def test_int8_vectors_are_close_and_the_same_in_any_batch(exact: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("elmo.model.packed.can_pack_int8", lambda: exact)
    torch.manual_seed(0)
    cnn = CharCNNConfig(filters=((1, 8), (3, 24)), n_highway=1)
    bilm = BiLM(BiLMConfig(LSTMConfig(64, 32), cnn))
    sentences = random_sentences(np.random.default_rng(0), 30, 12)
    model, rounded = Embedder(Pretrained(bilm)), Embedder(Pretrained(bilm), precision="int8")
    arrays = list(rounded.embed(sentences))
    for array, wanted in zip(arrays, model.embed(sentences), strict=True):
        if array.size:
            assert 1e-5 < np.abs(array - wanted).max() < 0.05 * np.abs(wanted).max()
    rounded.cache.clear()
    alone = [next(rounded.embed([sentence])) for sentence in sentences]
    if exact:
        assert_same_bits(alone, arrays)
    assert repr(model).endswith(", float32 on cpu)")
    assert repr(rounded).endswith(", int8 on cpu)")
    assert model.fingerprint() != rounded.fingerprint()


def test_int8_is_for_a_cpu_and_a_copy_keeps_it() -> None:
    message = r"^precision is 'int8' and the device 'cuda'; int8 is for a CPU: choose device='cpu'$"
    with pytest.raises(ConfigError, match=message):
        embedder(device="cuda", precision="int8")
    model = embedder(precision="int8")
    twin = pickle.loads(pickle.dumps(model))
    assert repr(twin) == repr(model)
    sentence = ["one", "two", "three"]
    assert_same_bits(list(twin.embed([sentence])), list(model.embed([sentence])))


def test_changed_weights_are_quantised_again() -> None:
    model = embedder(precision="int8")
    (before,) = model.embed([["one", "two"]])
    with torch.no_grad():
        for parameter in model.bilm.parameters():
            parameter.mul_(1.1)
    (after,) = model.embed([["one", "two"]])
    (wanted,) = embedder(precision="int8").embed([["one", "two"]])
    assert_same_bits([before], [wanted])
    assert np.abs(after - before).max() > 1e-3
