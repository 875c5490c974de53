"""A biLM for inference on a CPU: its weights, packed once, and its work, divided among threads.

It computes what `BiLM` computes, from the weights as they are when it is made: whoever has one makes another after the
weights have changed (`embed/runner.py`).
"""

import torch
from torch import Tensor

from elmo.model.bilm import BiLM
from elmo.model.char_cnn import CharCNN
from elmo.model.kernels.char_cnn_cpu import PackedCharCNN
from elmo.model.kernels.lstm_cpu import PackedLSTM
from elmo.model.kernels.products import Int8Product, PackedProduct, Product, RoundedProduct, can_pack, can_pack_int8
from elmo.model.lstm import ProjectedLSTM, State
from elmo.model.packing import Packing
from elmo.model.threads import each


class PackedBiLM:
    """A biLM's token encoder and LSTMs with packed weights. Every matrix is packed at its first use.

    In int8, the LSTMs, the highways and the projections have int8 matrices. The convolutions are sums, not products;
    cells, gates, and everything else between two products, are float32.
    """

    @torch.inference_mode()
    def __init__(self, bilm: BiLM, int8: bool = False) -> None:
        product: type[Product] = PackedProduct
        if int8:
            product = Int8Product if can_pack_int8() else RoundedProduct
        self.config = bilm.config
        encoder = bilm.token_encoder
        self.encode = PackedCharCNN(encoder, product) if isinstance(encoder, CharCNN) else encoder
        self.stacks = [
            [PackedLSTM(lstm.layer, direction, product) for lstm in bilm.lstms if isinstance(lstm, ProjectedLSTM)]
            for direction in range(bilm.config.directions)
        ]

    def contextualize(self, tokens: Tensor, packing: Packing, state: State) -> tuple[list[Tensor], State]:
        """Run packed token vectors (N, D); return every layer (N, 2D), packed, and the state after each sentence."""
        order, mirror = torch.from_numpy(packing.order), torch.from_numpy(packing.mirror)
        one = len(packing.order) == 1
        h, c = state if one else State(state.h[:, :, order], state.c[:, :, order])
        layers = [tokens.new_empty(len(tokens), self.config.output_dim) for _ in range(self.config.n_layers)]

        def run(direction: int) -> tuple[Tensor, Tensor]:
            inputs = tokens[mirror] if direction else tokens
            part = slice(direction * tokens.shape[1], (direction + 1) * tokens.shape[1])
            layers[0][:, part] = tokens
            after = []
            for depth, lstm in enumerate(self.stacks[direction]):
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


def packed(bilm: BiLM, int8: bool = False) -> PackedBiLM | None:
    """Return the biLM packed, or None where its own operations compute: on a GPU, in other dtypes than float32."""
    weight = bilm.weight
    dtypes = {parameter.dtype for parameter in bilm.parameters()}
    if weight.device.type != "cpu" or dtypes != {torch.float32} or bilm.reference or not (int8 or can_pack()):
        return None
    return PackedBiLM(bilm, int8)
