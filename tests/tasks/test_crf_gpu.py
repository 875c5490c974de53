"""The CRF's Triton kernels against the reference in float64: by Triton's interpreter on a CPU, as they are on a GPU."""

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="needs Triton: pip install triton")

from elmo.tasks.layers.crf import CRF
from elmo.tasks.layers.crf_gpu import log_partition_gpu
from tasks.test_crf import CASES, Case, draw, every_case

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
pytestmark = [pytest.mark.gpu] if DEVICE == "cuda" else []


def results(crf: CRF, scores: Tensor, mask: Tensor, kernels: bool) -> dict[str, Tensor]:
    """log Z of each sequence, and the gradient of a weighted sum of them."""
    scores = scores.detach().requires_grad_()
    if kernels:
        tables = crf._legal_transitions(), crf._starts(), crf._ends()
        total = log_partition_gpu(scores, mask.sum(dim=1), *tables)
    else:
        total = crf.log_partition(scores, mask)
    weights = torch.linspace(0.5, -2, len(total), device=total.device, dtype=total.dtype)
    leaves = [scores, crf.transitions, crf.start, crf.end]
    gradients = torch.autograd.grad((weights * total).sum(), leaves, materialize_grads=True)
    return dict(zip(("total", "scores", "transitions", "start", "end"), (total.detach(), *gradients), strict=True))


def compare(crf: CRF, scores: Tensor, mask: Tensor) -> None:
    expected = results(crf, scores, mask, kernels=False)
    crf, scores, mask = crf.float().to(DEVICE), scores.float().to(DEVICE), mask.to(DEVICE)
    for name, found in results(crf, scores, mask, kernels=True).items():
        torch.testing.assert_close(found.double().cpu(), expected[name], rtol=1e-4, atol=1e-5, msg=name)


@every_case
@pytest.mark.parametrize("scale", [2.0, 30.0])
def test_the_kernels_compute_the_reference_and_its_gradient(case: Case, scale: float) -> None:
    compare(*draw(case, 0, scale))


def test_many_labels_and_long_sequences() -> None:
    case = Case([f"label {number}" for number in range(37)], CASES["anything"].legal, [60, 1, 33])
    compare(*draw(case, 1))


def test_what_is_beyond_a_sequence_has_no_influence() -> None:
    crf, scores, mask = draw(CASES["BIOUL"], 2)
    crf, mask = crf.float().to(DEVICE), mask.to(DEVICE)
    first = results(crf, scores.float().to(DEVICE), mask, kernels=True)
    scores = scores.masked_fill(~mask.cpu()[..., None], 1e6)
    for name, value in results(crf, scores.float().to(DEVICE), mask, kernels=True).items():
        assert torch.equal(value, first[name]), name
