"""How much memory a training step will need, before the first one is tried."""

from elmo.model.bilm import BiLM
from elmo.model.softmax import SCORES_AT_ONCE
from elmo.pretrain.config import PretrainConfig

# Numbers kept for the gradient, as multiples of a layer's width: counted in `ProjectedLSTM.forward` and `CharCNN`, and
# compared with what was measured (benchmarks/RESULTS.md).
CELLS_PER_TOKEN = 18  # of H: gates before and after, cells, outputs
FILTERS_PER_WORD = 12  # of F: filters, highways and their gradients
OPTIMIZER_COPIES = {"adagrad": 1, "adam": 2, "adamw": 2}


def bytes_needed(config: PretrainConfig, bilm: BiLM, device: str, processes: int = 1) -> int:
    """An estimate for one process: weights, gradients, the optimiser's state, and what one part of a batch keeps."""
    tables = sum(p.numel() for name, p in bilm.named_parameters() if name.startswith("softmax."))
    weights = sum(p.numel() for p in bilm.parameters()) - tables
    copies = 2 + OPTIMIZER_COPIES[config.optimizer.name]  # a table has no dense gradient if it is sampled
    sampled = bilm.config.n_softmax is not None and config.sampled(bilm.config.n_softmax) is not None
    lstm, cnn = bilm.config.lstm, bilm.config.char_cnn
    tokens = config.batch.size * config.batch.unroll // (config.batch.accumulate * processes) * bilm.config.directions
    kept = tokens * lstm.n_layers * (CELLS_PER_TOKEN * lstm.dim + 8 * lstm.projection_dim)
    if cnn is not None:
        words = min(tokens, int(12 * tokens**0.68))  # distinct words grow slower than text
        kept += words * cnn.n_filters * (FILTERS_PER_WORD + 6 * cnn.n_highway)
    scores = 3 * SCORES_AT_ONCE.get(device, SCORES_AT_ONCE["cpu"])
    return 4 * (weights * copies + tables * (copies - sampled) + kept + scores)
