"""ALL LAYERS OF A `HighwayLSTM` IN TWO LAUNCHES on a GPU: a forward and a backward CUDA graph, replayed for each batch.

8 layers of 30 steps are 480 kernels of a few microseconds each, less time than Python needs to launch them. A graph has
fixed sizes and reads fixed memory. So there is one for each number of steps, rounded up; the kernels find the steps of
a batch in a table, and have nothing to do in the steps that it lacks. All graphs use the same memory.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from elmo.model.device import without_autocast
from elmo.model.kernels import exact_backward
from elmo.tasks.layers.highway_lstm_kernel import (
    LayerMemory,
    Reading,
    Step,
    Steps,
    layer_backward,
    layer_forward,
    weight_gradients,
)

MAX_STEPS = 160  # longer batches are not recorded: they are rare, and need memory
ROUND_TO = 8  # steps


class RecordedLayers:
    """Runs the layers by replaying recordings of the largest batch size so far; new numbers of steps are recorded."""

    def __init__(self) -> None:
        self._memory: _Memory | None = None
        self._recordings: dict[int, _Recording] = {}

    def __call__(
        self,
        tokens: Tensor,  # (N, I) packed
        reading: Reading,
        masks: Tensor,  # (L, B, H)
        weights: Sequence[Tensor],  # weight_input, weight_hidden and bias of each layer
    ) -> Tensor | None:
        """Return the outputs of the last layer, (N, H); None if this batch is not recorded: it has other sizes."""
        n_steps = -(-len(reading.rows) // ROUND_TO) * ROUND_TO
        if n_steps > MAX_STEPS or (self._memory is not None and reading.rows[0] < self._memory.batch):
            return None
        if self._memory is None or not self._memory.fits(reading.rows[0], weights):
            self._recordings.clear()
            self._memory = _Memory(reading.rows[0], weights)
        with without_autocast(tokens), torch.cuda.device_of(tokens):  # type: ignore[no-untyped-call]
            if n_steps not in self._recordings:
                self._recordings[n_steps] = _Recording(self._memory, n_steps)
            outputs: Tensor = _Replay.apply(  # type: ignore[no-untyped-call]
                tokens, reading, masks, self._recordings[n_steps], *weights
            )
        return outputs

    def __deepcopy__(self, memo: dict[int, Any]) -> "RecordedLayers":
        return RecordedLayers()  # a copy of the weights is elsewhere in memory


class _Memory:
    """The memory that all recordings read and write: one row for each token, and a last one that stays zero."""

    def __init__(self, batch: int, weights: Sequence[Tensor]) -> None:
        self.batch = batch
        self.weights = list(zip(weights[::3], weights[1::3], weights[2::3], strict=True))
        self._places = [weight.data_ptr() for weight in weights]
        self.version = 0  # of the contents
        rows, (input_dim, _), size = batch * MAX_STEPS + 1, weights[0].shape, weights[1].shape[0]

        def zeros(*shape: int, dtype: torch.dtype = weights[0].dtype) -> Tensor:
            return torch.zeros(shape, dtype=dtype, device=weights[0].device)

        self.tokens, self.d_tokens = zeros(rows, input_dim), zeros(rows, input_dim)
        self.layers = [LayerMemory(zeros(rows, 6 * size), zeros(rows, size), zeros(rows, size)) for _ in self.weights]
        self.d_outputs = zeros(rows, size)
        self.masks = zeros(len(self.weights), batch, size)
        self.tables = zeros(2, MAX_STEPS + 1, len(Step._fields), dtype=torch.int32)
        self.earlier = zeros(rows, dtype=torch.int64)
        self.is_token = zeros(rows, 1)
        self.pool = torch.cuda.graph_pool_handle() if weights[0].is_cuda else None

    def fits(self, batch: int, weights: Sequence[Tensor]) -> bool:
        """Whether recordings in this memory compute a batch of this size with these weights."""
        return batch == self.batch and self._places == [weight.data_ptr() for weight in weights]

    def load(self, tokens: Tensor, reading: Reading, masks: Tensor, n_steps: int) -> None:
        """Write a batch into the memory; what an earlier one has left behind it has no effect."""
        self.version += 1
        empty = self.batch * n_steps  # the row that stays zero
        self.tokens[: len(tokens)] = tokens
        self.masks.copy_(masks)
        self.tables[:, len(reading.rows) : n_steps + 1] = 0
        for table, steps in zip(self.tables, (reading.forwards, reading.backwards), strict=True):
            table[: len(steps.table)] = steps.table
        self.earlier[: len(reading.earlier)] = reading.earlier
        self.earlier[len(reading.earlier) :] = empty
        self.is_token[: len(tokens)] = 1.0
        self.is_token[len(tokens) :] = 0.0


class _Recording:
    """The forward and the backward pass of up to `n_steps` steps. On a CPU nothing is recorded, only computed."""

    @torch.no_grad()
    def __init__(self, memory: _Memory, n_steps: int) -> None:
        self.memory = memory
        self.n_steps = n_steps
        self.gradients: Tensor  # of all weights, one after the other
        rows = memory.batch * n_steps + 1
        self._layers = [LayerMemory(*(part[:rows] for part in layer)) for layer in memory.layers]
        self._inputs = [memory.tokens[:rows], *(layer.outputs for layer in self._layers[:-1])]
        self._d_inputs = [memory.d_tokens[:rows], *(memory.d_outputs[:rows] for _ in self._layers[:-1])]
        every = n_steps * [Step(0, memory.batch, 0, 0)]  # how many programs are launched; the table has the steps
        self._steps = [Steps(every, table[: n_steps + 1]) for table in memory.tables]
        self.forward, self.backward = self._forward, self._backward
        if memory.tokens.is_cuda:
            self._forward_and_backward_once()
            self.forward, self.backward = self._recorded(self._forward), self._recorded(self._backward)

    def _forward(self) -> None:
        for number, (x, layer, weights) in enumerate(zip(self._inputs, self._layers, self.memory.weights, strict=True)):
            layer_forward(x, *weights, self.memory.masks[number], layer, self._steps[number % 2])

    def _backward(self) -> None:
        memory, rows = self.memory, len(self._inputs[0])
        gradients: list[Tensor] = []
        for number in reversed(range(len(self._layers))):
            layer, (weight_input, weight_hidden, _) = self._layers[number], memory.weights[number]
            mask, steps, backwards = memory.masks[number], self._steps[number % 2], number % 2 == 1
            layer_backward(memory.d_outputs[:rows], weight_hidden, mask, layer, steps)
            layer.gates.mul_(memory.is_token[:rows])
            earlier = memory.earlier[: rows - memory.batch]
            gradients = [*weight_gradients(self._inputs[number], layer, memory.batch, earlier, backwards), *gradients]
            torch.mm(layer.gates, weight_input.t(), out=self._d_inputs[number])
        self.gradients = torch.cat([gradient.flatten() for gradient in gradients])

    def _forward_and_backward_once(self) -> None:
        """Run without recording: it compiles kernels and starts libraries, which cannot be recorded."""
        side_stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side_stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side_stream):
            self._forward()
            self._backward()
        torch.cuda.current_stream().wait_stream(side_stream)

    def _recorded(self, run: Callable[[], None]) -> Callable[[], None]:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self.memory.pool):
            run()
        return graph.replay


class _Replay(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, tokens: Tensor, reading: Reading, masks: Tensor, recording: _Recording, *weights: Tensor
    ) -> Tensor:
        memory = recording.memory
        memory.load(tokens, reading, masks, recording.n_steps)
        recording.forward()
        ctx.settings = recording, memory.version, len(tokens), [weight.shape for weight in weights]
        return memory.layers[-1].outputs[: len(tokens)].clone()

    @staticmethod
    @exact_backward
    @once_differentiable
    def backward(ctx: Any, d_outputs: Tensor) -> tuple[Tensor | None, ...]:
        recording, version, n_tokens, shapes = ctx.settings
        memory = recording.memory
        if memory.version != version:
            raise RuntimeError("the backward pass of a recorded HighwayLSTM must come before its next forward pass")
        memory.version += 1  # refuse a second backward pass: the gates are overwritten
        memory.d_outputs[:n_tokens] = d_outputs
        recording.backward()
        pieces = recording.gradients.clone().split_with_sizes([shape.numel() for shape in shapes])
        gradients = (piece.view(shape) for piece, shape in zip(pieces, shapes, strict=True))
        return memory.d_tokens[:n_tokens].clone(), None, None, None, *gradients
