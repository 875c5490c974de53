"""A MODEL ─▶ TWO ONNX FILES, to run it without PyTorch. Needs the extra `onnx`; running them needs onnxruntime only.

    token_encoder.onnx    ids (words, C) of distinct words                        ─▶ vectors (words, D)
    lstms.onnx            tokens (B, T, D), boundaries included; lengths (B,)      ─▶ layers (L+1, B, T, 2D)

There are two because a word is encoded once, however often it occurs. All axes but the widths may have any size. The
LSTMs start from zeros in every sentence, as with `state="fresh"`; where there is no token, the layers are zero.

The graphs are written operation by operation, not traced: ONNX's LSTM has neither a projection nor clips, so every
layer and direction is a Scan over the tokens. The backward one scans from the end; a sentence that has not begun keeps
its state of zeros.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from elmo.errors import ElmoError
from elmo.files import new_folder, refuse_existing
from elmo.model.bilm import BiLM, WordTable
from elmo.model.char_cnn import CharCNN, Highway
from elmo.model.lstm import FORGET_BIAS, ProjectedLSTM
from elmo.model.many_langs_encoder import ManyLangsEncoder

TOKEN_ENCODER, LSTMS = "token_encoder.onnx", "lstms.onnx"
Inputs = dict[str, tuple[str, list[int | str]]]  # the type and the sizes of each; a name is an axis of any size
MAX_BYTES = 2_000_000_000  # of weights in one file
OPSET, IR_VERSION = 17, 8  # read by every onnxruntime since 1.12 (2022)


def export_onnx(bilm: BiLM, folder: Path) -> tuple[Path, Path]:
    """Write both files into a new folder, in float32; return where they are."""
    refuse_existing(folder)
    models = {TOKEN_ENCODER: token_encoder(bilm), LSTMS: lstms(bilm)}
    with new_folder(folder) as temporary:
        for name, model in models.items():
            (temporary / name).write_bytes(model.SerializeToString())
    return folder / TOKEN_ENCODER, folder / LSTMS


def token_encoder(bilm: BiLM) -> Any:
    """Return the graph of the token encoder, an `onnx.ModelProto`."""
    graph = _Graph("token_encoder")
    encoder, width = bilm.token_encoder, len(bilm.config.last_ids)
    sizes: list[int | str] = ["words", width]
    if isinstance(encoder, WordTable):
        vectors = graph.add("Gather", graph.weight(encoder.embedding), "ids")
        sizes = ["words"]
    elif isinstance(encoder, CharCNN):
        vectors = _char_cnn(graph, encoder, "ids")
    else:
        vectors = _many_langs(graph, encoder, "ids", width)
    return graph.model({"ids": ("int64", sizes)}, vectors, "vectors", ["words", bilm.config.lstm.projection_dim])


def lstms(bilm: BiLM) -> Any:
    """Return the graph of the LSTMs, an `onnx.ModelProto`."""
    config, dim = bilm.config, bilm.config.lstm.projection_dim
    graph = _Graph("lstms")
    shape = graph.add("Shape", "tokens")
    batch, time = (graph.add("Gather", shape, graph.integers([k])) for k in (0, 1))
    steps = graph.add("Range", graph.integers(0), graph.add("Squeeze", time), graph.integers(1))
    mask = graph.add("Less", graph.add("Unsqueeze", steps, graph.integers([1])), "lengths")  # (T, B)
    mask = graph.add("Unsqueeze", mask, graph.integers([2]))
    present = graph.add("Cast", mask, to=1)  # (T, B, 1), a float
    tokens = graph.add("Mul", graph.add("Transpose", "tokens", perm=[1, 0, 2]), present)  # (T, B, D)
    layers = [[tokens] * config.directions]
    for depth, lstm in enumerate(bilm.lstms):
        assert isinstance(lstm, ProjectedLSTM)
        outputs = []
        for direction, below in enumerate(layers[-1]):
            output = _scan(graph, lstm, direction, below, mask, present, batch)
            if depth > 0 and config.lstm.use_skip_connections:
                output = graph.add("Add", output, below)
            outputs.append(output)
        layers.append(outputs)
    # (1, T, B, 2D) each
    wide = [graph.add("Unsqueeze", graph.add("Concat", *both, axis=2), graph.integers([0])) for both in layers]
    stacked = graph.add("Transpose", graph.add("Concat", *wide, axis=0), perm=[0, 2, 1, 3])
    taken: Inputs = {"tokens": ("float32", ["batch", "time", dim]), "lengths": ("int64", ["batch"])}
    return graph.model(taken, stacked, "layers", [config.n_layers, "batch", "time", config.output_dim])


def _scan(
    graph: "_Graph", lstm: ProjectedLSTM, direction: int, inputs: str, mask: str, present: str, batch: str
) -> str:
    """Add one LSTM of one direction: inputs (T, B, D) ─▶ outputs (T, B, D), zero where there is no token."""
    cell, dim = lstm.config.dim, lstm.config.projection_dim
    bias = lstm.bias[direction].detach().clone()
    bias[cell : 2 * cell] += FORGET_BIAS
    gates = graph.add("MatMul", inputs, graph.weight(lstm.weight_input[direction]))
    gates = graph.add("Add", gates, graph.weight(bias))
    sizes = [graph.add("Concat", batch, graph.integers([width]), axis=0) for width in (dim, cell)]
    start = [graph.add("Expand", graph.floats([[0.0]]), size) for size in sizes]
    body = _Graph(f"{inputs}_step", within=graph)
    h, c, gates_now, mask_now = (body.name(part) for part in ("h", "c", "gates", "mask"))
    both = body.add("Add", gates_now, body.add("MatMul", h, graph.weight(lstm.weight_hidden[direction])))
    i, f, o, candidate = body.split(both, 4)
    kept = body.add("Mul", body.add("Sigmoid", f), c)
    new_c = body.add("Add", kept, body.add("Mul", body.add("Sigmoid", i), body.add("Tanh", candidate)))
    new_c = _clip(body, new_c, lstm.config.cell_clip)
    new_h = body.add("Mul", body.add("Sigmoid", o), body.add("Tanh", new_c))
    if lstm.weight_projection is not None:
        new_h = body.add("MatMul", new_h, graph.weight(lstm.weight_projection[direction]))
        new_h = _clip(body, new_h, lstm.config.proj_clip)
    after = [body.add("Where", mask_now, new, old) for new, old in ((new_h, h), (new_c, c))]
    step = body.body(
        {h: ("float32", dim), c: ("float32", cell), gates_now: ("float32", 4 * cell), mask_now: ("bool", 1)},
        [(after[0], dim), (after[1], cell), (new_h, dim)],
    )
    *_, outputs = graph.add_many(
        "Scan",
        [*start, gates, mask],
        3,
        body=step,
        num_scan_inputs=2,
        scan_input_directions=[direction] * 2,
        scan_output_directions=[direction],
    )
    return graph.add("Mul", outputs, present)


def _char_cnn(graph: "_Graph", cnn: CharCNN, ids: str) -> str:
    """Add a character CNN: ids (N, C) ─▶ vectors."""
    # Behind the longest word, as many positions of padding as the widest filter has are enough: see CharCNN.convolve.
    spelled = graph.add("Cast", graph.add("Not", graph.add("Equal", ids, graph.integers(cnn.padding_id))), to=7)
    longest = graph.add("ReduceMax", graph.add("ReduceSum", spelled, graph.integers([1]), keepdims=0), keepdims=1)
    end = graph.add("Add", longest, graph.integers([cnn.config.widest]))
    ids = graph.add("Slice", ids, graph.integers([0]), end, graph.integers([1]))
    characters = graph.add("Gather", graph.weight(cnn.embedding), ids)  # (N, C', E)
    characters = graph.add("Transpose", characters, perm=[0, 2, 1])
    pooled = []
    for (width, count), weight, bias in zip(cnn.config.filters, cnn.filters, cnn.biases, strict=True):
        kernel = weight.detach().view(width, cnn.config.embedding_dim, count).permute(2, 1, 0)
        scores = graph.add("Conv", characters, graph.weight(kernel), graph.weight(bias))
        pooled.append(graph.add("ReduceMax", scores, axes=[2], keepdims=0))
    x = graph.add("Relu" if cnn.config.activation == "relu" else "Tanh", graph.add("Concat", *pooled, axis=1))
    for highway in cnn.highways:
        assert isinstance(highway, Highway)
        weight, bias = (graph.weight(parameter) for parameter in (highway.weight, highway.bias))
        carry, transform = graph.split(graph.add("Gemm", x, weight, bias), 2)
        gate = graph.add("Sigmoid", carry)
        change = graph.add("Sub", graph.add("Relu", transform), x)
        x = graph.add("Add", x, graph.add("Mul", gate, change))
    if cnn.projection is not None and cnn.projection_bias is not None:
        x = graph.add("Gemm", x, graph.weight(cnn.projection), graph.weight(cnn.projection_bias))
    return x


def _many_langs(graph: "_Graph", encoder: ManyLangsEncoder, ids: str, width: int) -> str:
    """Add the encoder of ELMoForManyLangs: ids (N, 1 + C) ─▶ vectors."""
    parts = []
    first = 0
    if encoder.word_embedding is not None:
        words = graph.add("Gather", ids, graph.integers(0), axis=1)
        parts.append(graph.add("Gather", graph.weight(encoder.word_embedding), words))
        first = 1
    if encoder.char_cnn is not None:
        columns = (graph.integers([number]) for number in (first, width, 1))
        parts.append(_char_cnn(graph, encoder.char_cnn, graph.add("Slice", ids, *columns)))
    x = graph.add("Concat", *parts, axis=1)
    return graph.add("Gemm", x, graph.weight(encoder.projection), graph.weight(encoder.projection_bias))


def _clip(graph: "_Graph", x: str, limit: float | None) -> str:
    return x if limit is None else graph.add("Clip", x, graph.floats(-limit), graph.floats(limit))


class _Graph:
    """A graph in the making: operations are added one by one, and every result gets a name of its own.

    A graph `within` another, the body of a Scan, uses the weights of the outer one.
    """

    def __init__(self, name: str, within: "_Graph | None" = None) -> None:
        try:
            import onnx
        except ImportError as error:
            raise ElmoError("exporting needs a package that is not here; pip install 'elmo-torch[onnx]'") from error
        self._onnx = onnx
        self._name = name
        self._outer = within or self
        self._nodes: list[Any] = []
        if within is None:
            self._weights: list[Any] = []
            self._count = 0

    def name(self, part: str) -> str:
        """Return a new name."""
        self._outer._count += 1
        return f"{part}_{self._outer._count}"

    def add(self, operation: str, *inputs: str, **attributes: Any) -> str:
        """Add an operation with one result; return the result's name."""
        return self.add_many(operation, inputs, 1, **attributes)[0]

    def add_many(self, operation: str, inputs: Sequence[str], count: int, **attributes: Any) -> list[str]:
        """Add an operation with several results; return their names."""
        results = [self.name(operation.lower()) for _ in range(count)]
        self._nodes.append(self._onnx.helper.make_node(operation, list(inputs), results, **attributes))
        return results

    def split(self, x: str, parts: int) -> list[str]:
        """Split the last axis into equal parts; return their names."""
        return self.add_many("Split", [x], parts, axis=-1)

    def weight(self, parameter: Tensor) -> str:
        """Add a parameter; return its name."""
        return self.floats(parameter.detach().float().cpu().numpy())

    def floats(self, values: npt.ArrayLike) -> str:
        """Add constant floats; return their name."""
        return self._constant(np.ascontiguousarray(values, dtype=np.float32).reshape(np.shape(values)))

    def integers(self, values: int | Sequence[int]) -> str:
        """Add constant integers; return their name."""
        return self._constant(np.array(values, dtype=np.int64))

    def _constant(self, array: npt.NDArray[Any]) -> str:
        name = self.name("constant")
        self._outer._weights.append(self._onnx.numpy_helper.from_array(array, name))
        return name

    def body(self, inputs: dict[str, tuple[str, int]], outputs: Sequence[tuple[str, int]]) -> Any:
        """Return the graph as the body of a Scan; inputs and outputs are (B, width)."""
        helper = self._onnx.helper
        return helper.make_graph(
            self._nodes,
            self._name,
            [self._value(name, dtype, ["batch", width]) for name, (dtype, width) in inputs.items()],
            [self._value(name, "float32", ["batch", width]) for name, width in outputs],
        )

    def model(self, inputs: Inputs, result: str, output: str, shape: Sequence[int | str]) -> Any:
        """Return the model; `result` is the name of the result that becomes its output."""
        size = sum(len(weight.raw_data) for weight in self._weights)
        if size > MAX_BYTES:
            raise ElmoError(f"{self._name}: has {size:,} bytes of weights; an ONNX file has at most {MAX_BYTES:,}")
        self._nodes.append(self._onnx.helper.make_node("Identity", [result], [output]))
        graph = self._onnx.helper.make_graph(
            self._nodes,
            self._name,
            [self._value(name, dtype, sizes) for name, (dtype, sizes) in inputs.items()],
            [self._value(output, "float32", shape)],
            initializer=self._weights,
        )
        versions = [self._onnx.helper.make_opsetid("", OPSET)]
        model = self._onnx.helper.make_model(graph, opset_imports=versions, producer_name="elmo-torch")
        model.ir_version = IR_VERSION
        self._onnx.checker.check_model(model, full_check=True)
        return model

    def _value(self, name: str, dtype: str, shape: Sequence[int | str]) -> Any:
        types = {"float32": self._onnx.TensorProto.FLOAT, "int64": self._onnx.TensorProto.INT64}
        kind = types.get(dtype, self._onnx.TensorProto.BOOL)
        return self._onnx.helper.make_tensor_value_info(name, kind, list(shape))
