"""BATCH ─▶ GRADIENTS ─▶ NEW WEIGHTS: one training step (bilm-tf's recipe).

Large tables, the softmax's and a word table's, are touched in a few thousand rows per step: those rows are taken out,
get the gradient, and are all that is exchanged between processes, clipped and updated.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn import functional

from elmo.model.bilm import BiLM, BiLMConfig, WordTable
from elmo.model.lstm import State
from elmo.pretrain.batch import Batch
from elmo.pretrain.distributed import World
from elmo.pretrain.loss import full_softmax, sampled_softmax


def tables_of(config: BiLMConfig, sampled: bool) -> set[str]:
    """The parameters whose gradient has a few rows only, by name."""
    tables = {"softmax.weight", "softmax.bias"} if sampled else set()
    if config.char_cnn is None and (sampled or not config.share_embedding_softmax):
        tables.add("token_encoder.embedding")
    return tables


@dataclass
class TableRows:
    """The rows of large tables that were taken out for this step, by the table."""

    taken: dict[nn.Parameter, list[tuple[Tensor, Tensor]]] = field(default_factory=lambda: defaultdict(list))

    def take(self, table: nn.Parameter, rows: Tensor) -> Tensor:
        """These rows, as a tensor whose gradient is kept."""
        values = table.detach().index_select(0, rows)
        if table.requires_grad:
            values.requires_grad_()
            self.taken[table].append((rows, values))
        return values

    def gradients(self) -> dict[nn.Parameter, tuple[Tensor, Tensor]]:
        """Rows and their gradients; a row may stand there more than once."""
        return {
            table: (torch.cat([rows for rows, _ in parts]), torch.cat([_gradient(values) for _, values in parts]))
            for table, parts in self.taken.items()
        }


def _gradient(tensor: Tensor) -> Tensor:
    assert tensor.grad is not None
    return tensor.grad


def losses(bilm: BiLM, batch: Batch, state: State, dropout: float, tables: TableRows) -> tuple[Tensor, State]:
    """Summed cross-entropy of each direction, (S,), and the state after the window."""
    encoder = bilm.token_encoder
    if isinstance(encoder, WordTable):
        words = tables.take(encoder.embedding, batch.spelled)
    else:
        words = encoder(batch.spelled.long())
    directions, n_tokens = batch.inputs.shape
    rows = state.h.shape[2]
    inputs = words.index_select(0, batch.inputs.view(-1)).view(directions, n_tokens, -1)
    layers, after = bilm.read(inputs, [rows] * (n_tokens // rows), state, dropout)
    hidden = functional.dropout(layers[-1].float() if layers[-1].dtype == torch.bfloat16 else layers[-1], dropout)
    assert bilm.softmax is not None
    if batch.predicted is None or batch.negatives is None or batch.log_q is None:
        weight: Tensor = bilm.softmax_weight()
        bias: Tensor = bilm.softmax.bias
        each = [full_softmax(h, target, weight, bias) for h, target in zip(hidden, batch.targets, strict=True)]
    else:
        if bilm.softmax.weight is not None:
            weight = tables.take(bilm.softmax.weight, batch.predicted)
        else:
            weight = tables.take(bilm.token_encoder.embedding, batch.predicted + 1)
        bias = tables.take(bilm.softmax.bias, batch.predicted)
        drawn = zip(hidden, batch.targets, batch.negatives, batch.log_q, strict=True)
        each = [sampled_softmax(*one, weight, bias) for one in drawn]
    return torch.stack(each), State(after.h.detach(), after.c.detach())


def accumulate(
    bilm: BiLM,
    parts: list[Batch],
    state: State,
    *,
    dropout: float,
    scale: float,
    world: World,
    precision: torch.dtype = torch.float32,
) -> tuple[Tensor, State]:
    """The gradient of `scale` × the mean loss, over all parts and processes, in every `.grad`; the mean losses (S,).

    Tables have sparse gradients: the rows that any process touched.
    """
    bilm.zero_grad(set_to_none=True)
    tables = TableRows()
    total = torch.zeros(bilm.config.directions, device=state.h.device)
    after = []
    n_tokens = sum(part.inputs.shape[1] for part in parts) * world.size
    states = [State(*rows) for rows in zip(*(torch.chunk(part, len(parts), dim=2) for part in state), strict=True)]
    for batch, before in zip(parts, states, strict=True):
        with torch.autocast(state.h.device.type, torch.bfloat16, enabled=precision == torch.bfloat16):
            each, end = losses(bilm, batch, before, dropout, tables)
        torch.autograd.backward(each.mean() * (scale / n_tokens))
        total += each.detach()
        after.append(end)
    sparse = {table: world.sum_rows(*rows) for table, rows in tables.gradients().items()}
    dense = [parameter.grad for parameter in bilm.parameters() if parameter.grad is not None]
    world.sum(dense)
    for table, (rows, values) in sparse.items():
        if table.grad is not None:  # a shared table under the full softmax
            table.grad.index_add_(0, rows, values)
        else:
            table.grad = sparse_rows(rows, values, table)
    world.sum([total])
    return total / n_tokens, State(*(torch.cat(ends, dim=2) for ends in zip(*after, strict=True)))


def sparse_rows(rows: Tensor, values: Tensor, like: Tensor) -> Tensor:
    """A sparse tensor of these rows, rising and each there once, which needs no check."""
    with torch.sparse.check_sparse_tensor_invariants(enable=False):  # type: ignore[no-untyped-call]
        return torch.sparse_coo_tensor(rows[None], values, like.shape, is_coalesced=True)


def clip(parameters: Sequence[Tensor], limit: float | None) -> Tensor:
    """Scale all gradients together so that their norm is at most `limit`; the norm before."""
    gradients = [
        parameter.grad._values() if parameter.grad.is_sparse else parameter.grad
        for parameter in parameters
        if parameter.grad is not None
    ]
    norm: Tensor = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(gradient) for gradient in gradients]))
    if limit is not None:
        factor = limit / torch.clamp(norm, min=limit)
        for gradient in gradients:
            gradient.mul_(factor)
    return norm
