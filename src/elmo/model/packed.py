"""A biLM for inference on a CPU: its weights, packed once, and its work, divided among threads.

It computes what `BiLM` computes, from the weights as they are when it is made: whoever has one makes another after the
weights have changed (`embed/runner.py`).

A packed float32 matrix has all values of the matrix itself. So the biLM's own can be released, which halves the memory,
and given back, equal to the bit. While it is released, a parameter has no values; it keeps its device and its dtype.
"""

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor, nn

from elmo.model.bilm import BiLM
from elmo.model.char_cnn import CharCNN, Highway
from elmo.model.device import without_autocast
from elmo.model.kernels.char_cnn_cpu import PackedCharCNN
from elmo.model.kernels.lstm_cpu import OfOne, OneSentence, PackedLSTM
from elmo.model.kernels.products import (
    SMALL,
    Int8Product,
    PackedProduct,
    Product,
    RoundedProduct,
    can_pack,
    can_pack_int8,
)
from elmo.model.lstm import ProjectedLSTM, State
from elmo.model.packing import Packing
from elmo.model.threads import available, each


class PackedBiLM:
    """A biLM's token encoder and LSTMs with packed weights. With `release`, a matrix is released when it is packed.

    In int8, the LSTMs, the highways and the projections have int8 matrices, and nothing is released. The convolutions
    are sums, not products; cells, gates, and everything else between two products, are float32.
    """

    @torch.inference_mode()
    def __init__(self, bilm: BiLM, int8: bool = False, release: bool = False) -> None:
        self.product: type[Product] = PackedProduct
        if int8:
            self.product = Int8Product if can_pack_int8() else RoundedProduct
        self.config = bilm.config
        self.released = release and not int8
        self.of_one: list[OneSentence] = []  # layers for one sentence, whose directions run together
        self._replaced: list[tuple[nn.Parameter, Callable[[], Tensor]]] = []  # parameters, and what computes them
        try:
            layers = [self._packed_layer(lstm) for lstm in bilm.lstms if isinstance(lstm, ProjectedLSTM)]
            self.stacks = [list(stack) for stack in zip(*layers, strict=True)]
            encoder = bilm.token_encoder
            self.encode = self._packed_encoder(encoder) if isinstance(encoder, CharCNN) else encoder
        except BaseException:  # out of memory, or Ctrl-C
            self.give_back()
            raise

    def _packed_layer(self, lstm: ProjectedLSTM) -> list[PackedLSTM]:
        layer = lstm.layer
        of_one = OfOne.pack(layer, self.product)
        both = each(lambda direction: PackedLSTM(layer, direction, self.product, of_one), range(self.config.directions))
        if of_one is not None and layer.weight_hidden[0].numel() <= SMALL:
            self.of_one.append(OneSentence(both, of_one))
        self._replace(lstm.weight_input, lambda: torch.stack(_matrices([one.from_inputs for one in both])))
        if not both[0].small:
            self._replace(lstm.weight_hidden, lambda: torch.stack(_matrices([one.gates for one in both])))
        if lstm.weight_projection is not None:
            doubled = [one.projection for one in both]
            self._replace(lstm.weight_projection, lambda: torch.stack(_matrices(doubled)).div_(2))
        return both

    def _packed_encoder(self, cnn: CharCNN) -> PackedCharCNN:
        encoder = PackedCharCNN(cnn, self.product)
        for highway, packed in zip(cnn.highways, encoder.highways, strict=True):
            assert isinstance(highway, Highway)
            self._replace(highway.weight, partial(_side_by_side, [packed.carry, packed.transform]))
        if cnn.projection is not None:
            self._replace(cnn.projection, lambda: _matrices([encoder.projection])[0].contiguous())
        return encoder

    def _replace(self, parameter: nn.Parameter, values: Callable[[], Tensor]) -> None:
        """Remember that a parameter is packed, and how its values are computed from the packed matrix."""
        if self.product is PackedProduct:
            self._replaced.append((parameter, values))
        if self.released:
            _empty(parameter)

    def release(self) -> None:
        """Release the biLM's matrices that are packed in float32."""
        self.released = bool(self._replaced)
        for parameter, _ in self._replaced:
            _empty(parameter)

    @torch.inference_mode(False)
    def give_back(self) -> None:
        """Give the biLM back the matrices that were released."""
        if self.released:
            for parameter, values in self._replaced:
                parameter.data = values()
            self.released = False

    def contextualize(self, tokens: Tensor, packing: Packing, state: State) -> tuple[list[Tensor], State]:
        """Run packed token vectors (N, D); return every layer (N, 2D), packed, and the state after each sentence.

        A state of the first k LSTM layers runs these alone: k + 1 layers are returned.
        """
        n_lstms = len(state.h)
        if not n_lstms:
            return [torch.cat([tokens] * self.config.directions, dim=1)], state
        order, mirror = torch.from_numpy(packing.order), torch.from_numpy(packing.mirror)
        one = len(packing.order) == 1
        # In float32, two threads with a direction each are faster; in int8 they are not: its operations are too short.
        if one and self.of_one and (self.product is not PackedProduct or available() == 1):
            return self._contextualize_one(tokens, state)
        h, c = state if one else State(state.h[:, :, order], state.c[:, :, order])
        layers = [tokens.new_empty(len(tokens), self.config.output_dim) for _ in range(n_lstms + 1)]

        def run(direction: int) -> tuple[Tensor, Tensor]:
            inputs = tokens[mirror] if direction else tokens
            part = slice(direction * tokens.shape[1], (direction + 1) * tokens.shape[1])
            layers[0][:, part] = tokens
            after = []
            for depth, lstm in enumerate(self.stacks[direction][:n_lstms]):
                outputs, *ended = lstm(inputs, packing.rows, h[depth, direction], c[depth, direction])
                if depth > 0 and self.config.lstm.use_skip_connections:
                    outputs += inputs
                layers[depth + 1][:, part] = outputs[mirror] if direction else outputs
                after.append(ended)
                inputs = outputs
            return torch.stack([h for h, _ in after]), torch.stack([c for _, c in after])

        ends = each(run, range(self.config.directions))
        after = State(*(torch.stack(parts, dim=1) for parts in zip(*ends, strict=True)))  # (L, S, B, ·)
        if one:
            return layers, after
        back = torch.argsort(order)
        return layers, State(after.h[:, :, back], after.c[:, :, back])

    def _contextualize_one(self, tokens: Tensor, state: State) -> tuple[list[Tensor], State]:
        """Run both directions of one sentence together, on one thread: equal to one after the other."""
        given = [tokens] * self.config.directions
        inputs, outputs, after = _mirrored(given, torch.stack), [torch.cat(given, dim=1)], []
        for depth, layer in enumerate(self.of_one[: len(state.h)]):
            x, *ended = layer(inputs, state.h[depth, :, 0], state.c[depth, :, 0])
            inputs = x + inputs if depth > 0 and self.config.lstm.use_skip_connections else x
            outputs.append(_mirrored(inputs.unbind(1), torch.cat))
            after.append(ended)
        h, c = (torch.stack(parts)[:, :, None] for parts in zip(*after, strict=True))
        return outputs, State(h, c)


def _mirrored(sides: Sequence[Tensor], join: Callable[..., Tensor]) -> Tensor:
    """Join the directions of one sentence, (T, D) each, the backward one from its end."""
    return join([side.flip(0) if direction else side for direction, side in enumerate(sides)], dim=1)


def _empty(parameter: nn.Parameter) -> None:
    parameter.data = parameter.data.new_empty(0)


def _matrices(products: Sequence[Product | None]) -> list[Tensor]:
    return [product.matrix() for product in products if isinstance(product, PackedProduct)]


def _side_by_side(products: Sequence[Product | None]) -> Tensor:
    return torch.cat(_matrices(products), dim=1)


def packed(bilm: BiLM, int8: bool = False, release: bool = False) -> PackedBiLM | None:
    """Return the biLM packed, or None where its own operations compute: on a GPU, in other dtypes than float32."""
    weight = bilm.weight
    dtypes = {parameter.dtype for parameter in bilm.parameters()}
    if weight.device.type != "cpu" or dtypes != {torch.float32} or bilm.reference or not (int8 or can_pack()):
        return None
    with without_autocast(weight):
        return PackedBiLM(bilm, int8, release)
