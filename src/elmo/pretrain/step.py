"""BATCH ─▶ GRADIENTS: the forward and backward pass of one training step, as in bilm-tf.

Of the large tables (the softmax and a word table) a step uses a few thousand rows. Only these rows are copied out, get
a gradient, and are exchanged between processes, clipped and updated.
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
    """Return the names of the parameters whose gradient has only a few rows."""
    tables = {"softmax.weight", "softmax.bias"} if sampled else set()
    if config.char_cnn is None and (sampled or not config.share_embedding_softmax):
        tables.add("token_encoder.embedding")
    return tables


@dataclass
class TableRows:
    """The rows of large tables that one part of a batch uses."""

    filled: int = 0  # padding rows at the end of what is predicted
    taken: list[tuple[nn.Parameter, Tensor, Tensor, bool]] = field(default_factory=list)

    def take(self, table: nn.Parameter, rows: Tensor, predicted: bool = False) -> Tensor:
        """Copy rows into a tensor that gets a gradient; `predicted` rows are sorted and distinct."""
        values = table.detach().index_select(0, rows)
        if table.requires_grad:
            self.taken.append((table, rows, values.requires_grad_(), predicted))
        return values


def table_gradients(parts: Sequence[TableRows], world: World) -> dict[nn.Parameter, tuple[Tensor, Tensor]]:
    """Return, for each table, the distinct rows that any part of any process used, and the sums of their gradients."""
    found: dict[nn.Parameter, list[tuple[Tensor, Tensor, bool]]] = defaultdict(list)
    for part in parts:
        for table, rows, values, predicted in part.taken:
            used = len(rows) - part.filled if predicted else len(rows)
            assert values.grad is not None
            found[table].append((rows[:used], values.grad[:used], predicted))
    sums = {}
    for table, taken in found.items():
        rows, values, predicted = taken[0]
        if len(taken) > 1 or world.size > 1 or not predicted:
            rows, values = world.sum_rows(torch.cat([rows for rows, *_ in taken]), torch.cat([v for _, v, _ in taken]))
        sums[table] = rows, values
    return sums


def losses(bilm: BiLM, batch: Batch, state: State, dropout: float, tables: TableRows) -> tuple[Tensor, State]:
    """Compute the summed cross-entropy of each direction, (S,), and the state after the window."""
    encoder = bilm.token_encoder
    if isinstance(encoder, WordTable):
        words = tables.take(encoder.embedding, batch.words)
    else:
        words = encoder(batch.words.long())
    directions, n_tokens = batch.inputs.shape
    rows = state.h.shape[2]
    # The gradient of a frequent word is a sum of thousands of terms: in float32, whatever the products' precision.
    words = words.float() if words.dtype == torch.bfloat16 else words
    inputs = words.index_select(0, batch.inputs.view(-1)).view(directions, n_tokens, -1)
    (*_, top), after = bilm.run_lstms(inputs, [rows] * (n_tokens // rows), state, dropout)
    hidden = functional.dropout(top.float() if top.dtype == torch.bfloat16 else top, dropout)
    assert bilm.softmax is not None
    if batch.predicted is None or batch.negatives is None or batch.log_q is None:
        weight: Tensor = bilm.softmax_weight()
        bias: Tensor = bilm.softmax.bias
        pairs = zip(hidden, batch.targets, strict=True)
        each = [full_softmax(*pair, weight, bias, bilm.reference) for pair in pairs]
    else:
        if bilm.softmax.weight is not None:
            weight = tables.take(bilm.softmax.weight, batch.predicted, predicted=True)
        else:
            weight = tables.take(bilm.word_table, batch.predicted + 1, predicted=True)
        bias = tables.take(bilm.softmax.bias, batch.predicted, predicted=True)
        drawn = zip(hidden, batch.targets, batch.negatives, batch.log_q, strict=True)
        each = [sampled_softmax(*one, weight, bias, bilm.reference) for one in drawn]
    return torch.stack(each), State(after.h.detach(), after.c.detach())


@dataclass(frozen=True)
class Pass:
    """A forward and backward pass over one part of a batch; it adds the gradient to every `.grad`."""

    bilm: BiLM
    dropout: float
    scale: float  # factor of the loss: the sum over tokens, averaged over directions
    precision: torch.dtype = torch.float32

    def __call__(self, batch: Batch, state: State) -> tuple[Tensor, State, TableRows]:
        """Return the losses (S,), the state after the window, and the rows of tables with their gradients."""
        tables = TableRows(batch.filled)
        low = self.precision == torch.bfloat16
        with torch.autocast(state.h.device.type, torch.bfloat16, enabled=low, cache_enabled=False):
            each, after = losses(self.bilm, batch, state, self.dropout, tables)
        torch.autograd.backward(each.mean() * self.scale)
        return each.detach(), after, tables


PassRunner = Callable[[Pass, Batch, State], tuple[Tensor, State, TableRows]]


def accumulate(
    bilm: BiLM,
    parts: list[Batch],
    state: State,
    *,
    dropout: float,
    scale: float,
    world: World,
    precision: torch.dtype = torch.float32,
    run_pass: PassRunner = Pass.__call__,
) -> tuple[Tensor, State]:
    """Set every `.grad` to the gradient of `scale` × the mean loss over all parts and processes.

    Returns the mean losses (S,) and the state after the window. Tables get sparse gradients, of the rows that any
    process used. `run_pass` runs a pass: directly by default, or by replaying a recording (graph.py).
    """
    n_tokens = sum(part.inputs.shape[1] for part in parts) * world.size
    one_pass = Pass(bilm, dropout, scale / n_tokens, precision)
    bilm.zero_grad(set_to_none=True)
    states = [State(*rows) for rows in zip(*(torch.chunk(part, len(parts), dim=2) for part in state), strict=True)]
    found = [run_pass(one_pass, *part) for part in zip(parts, states, strict=True)]
    each, after, tables = zip(*found, strict=True)
    total = torch.stack(each).sum(dim=0)
    sparse = table_gradients(tables, world)
    world.sum([parameter.grad for parameter in bilm.parameters() if parameter.grad is not None])
    for table, (rows, values) in sparse.items():
        if table.grad is not None:  # a shared table under the full softmax
            table.grad.index_add_(0, rows, values)
        else:
            table.grad = sparse_rows(rows, values, table)
    world.sum([total])
    return total / n_tokens, State(*(torch.cat(ends, dim=2) for ends in zip(*after, strict=True)))


def sparse_rows(rows: Tensor, values: Tensor, like: Tensor) -> Tensor:
    """Return a sparse tensor of rows that are sorted and distinct, so that PyTorch need not check them."""
    with torch.sparse.check_sparse_tensor_invariants(enable=False):  # type: ignore[no-untyped-call]
        return torch.sparse_coo_tensor(rows[None], values, like.shape, is_coalesced=True)


def clip(parameters: Sequence[Tensor], limit: float | None) -> Tensor:
    """Scale all gradients together so that their norm is at most `limit`; returns the norm before."""
    gradients = [
        parameter.grad._values() if parameter.grad.is_sparse else parameter.grad
        for parameter in parameters
        if parameter.grad is not None
    ]
    norm: Tensor = torch.nn.utils.get_total_norm(gradients)
    if limit is not None:
        torch._foreach_mul_(gradients, limit / torch.clamp(norm, min=limit))
    return norm
