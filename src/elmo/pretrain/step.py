"""BATCH ─▶ GRADIENTS ─▶ NEW WEIGHTS: one training step (bilm-tf's recipe).

Large tables, the softmax's and a word table's, are touched in a few thousand rows per step: those rows are taken out,
get the gradient, and are all that is exchanged between processes, clipped and updated.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
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
    repeated: set[nn.Parameter] = field(default_factory=set)  # tables of which a row may have been taken twice

    def take(self, table: nn.Parameter, rows: Tensor, distinct: bool = False) -> Tensor:
        """These rows, as a tensor whose gradient is kept; `distinct` ones are rising, and each there once."""
        values = table.detach().index_select(0, rows)
        if table.requires_grad:
            values.requires_grad_()
            if self.taken[table] or not distinct:
                self.repeated.add(table)
            self.taken[table].append((rows, values))
        return values

    def gradients(self, world: World) -> dict[nn.Parameter, tuple[Tensor, Tensor]]:
        """Rows, each that any process took once, and the sums of their gradients."""
        sums = {}
        for table, parts in self.taken.items():
            rows, values = (torch.cat(each) for each in zip(*((r, _gradient(v)) for r, v in parts), strict=True))
            alone = world.size == 1 and table not in self.repeated
            sums[table] = (rows, values) if alone else world.sum_rows(rows, values)
        return sums


def _gradient(tensor: Tensor) -> Tensor:
    assert tensor.grad is not None
    return tensor.grad


Reader = Callable[[Tensor, State], tuple[Tensor, State]]  # inputs (S, N, D) ─▶ the top layer's outputs


def losses(
    bilm: BiLM, batch: Batch, state: State, dropout: float, tables: TableRows, read: Reader | None = None
) -> tuple[Tensor, State]:
    """Summed cross-entropy of each direction, (S,), and the state after the window. `read` replaces `bilm.read`."""
    encoder = bilm.token_encoder
    if isinstance(encoder, WordTable):
        words = tables.take(encoder.embedding, batch.spelled)
    else:
        words = encoder(batch.spelled.long())
    directions, n_tokens = batch.inputs.shape
    rows = state.h.shape[2]
    # A frequent word's gradient is the sum of thousands: in float32, whatever the products' precision.
    words = words.float() if words.dtype == torch.bfloat16 else words
    inputs = words.index_select(0, batch.inputs.view(-1)).view(directions, n_tokens, -1)
    if read is not None:
        top, after = read(inputs, state)
    else:
        (*_, top), after = bilm.read(inputs, [rows] * (n_tokens // rows), state, dropout)
    hidden = functional.dropout(top.float() if top.dtype == torch.bfloat16 else top, dropout)
    assert bilm.softmax is not None
    if batch.predicted is None or batch.negatives is None or batch.log_q is None:
        weight: Tensor = bilm.softmax_weight()
        bias: Tensor = bilm.softmax.bias
        pairs = zip(hidden, batch.targets, strict=True)
        each = [full_softmax(*pair, weight, bias, bilm.plain) for pair in pairs]
    else:
        if bilm.softmax.weight is not None:
            weight = tables.take(bilm.softmax.weight, batch.predicted, distinct=True)
        else:
            weight = tables.take(bilm.token_encoder.embedding, batch.predicted + 1)
        bias = tables.take(bilm.softmax.bias, batch.predicted, distinct=True)
        drawn = zip(hidden, batch.targets, batch.negatives, batch.log_q, strict=True)
        each = [sampled_softmax(*one, weight, bias, bilm.plain) for one in drawn]
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
    read: Reader | None = None,
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
            each, end = losses(bilm, batch, before, dropout, tables, read)
        torch.autograd.backward(each.mean() * (scale / n_tokens))
        total += each.detach()
        after.append(end)
    sparse = tables.gradients(world)
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
    norm: Tensor = torch.nn.utils.get_total_norm(gradients)
    if limit is not None:
        torch._foreach_mul_(gradients, limit / torch.clamp(norm, min=limit))
    return norm
