"""The CRF against brute force: every path of labels, one after the other, in float64."""

import math
from collections.abc import Callable
from itertools import pairwise, product
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.func import functional_call

from elmo.tasks.layers.crf import CRF
from elmo.tasks.ner.data import legal as bioul

Legal = Callable[[str | None, str | None], bool]

BIOUL = ["O", *(f"{mark}-{kind}" for kind in ("LOC", "PER") for mark in "BIUL")]
PLAIN = ["red", "green", "blue", "grey"]
SEEDS = range(3)


def anything(before: str | None, after: str | None) -> bool:
    return True


def not_twice(before: str | None, after: str | None) -> bool:
    """Legality of another kind: no label twice in a row, never red first, never blue last."""
    return before != after and (before, after) not in [(None, "red"), ("blue", None)]


class Case(NamedTuple):
    labels: list[str]
    legal: Legal
    lengths: list[int]


CASES = {
    "anything": Case(PLAIN, anything, [5, 1, 3, 5, 2, 4]),
    "not twice": Case(PLAIN, not_twice, [1, 4, 2, 5, 3]),
    "BIOUL": Case(BIOUL, bioul, [2, 4, 1, 3, 4]),
    "one label": Case(["only"], anything, [3, 1]),
    "one token": Case(BIOUL, bioul, [1, 1, 1]),
}
every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


def draw(case: Case, seed: int, scale: float = 2.0) -> tuple[CRF, Tensor, Tensor]:
    """A CRF with random numbers everywhere (at illegal places too), random scores (on padding too), and the mask."""
    torch.manual_seed(seed)
    crf = CRF(case.labels, case.legal).double()
    for parameter in crf.parameters():
        torch.nn.init.normal_(parameter)
    scores = scale * torch.randn(len(case.lengths), max(case.lengths), len(case.labels), dtype=torch.float64)
    return crf, scores, mask_of(case.lengths)


def mask_of(lengths: list[int]) -> Tensor:
    return torch.arange(max(lengths))[None, :] < torch.tensor(lengths)[:, None]


def is_legal(case: Case, path: tuple[int, ...] | list[int]) -> bool:
    edges = [None, *(case.labels[number] for number in path), None]
    return all(case.legal(before, after) for before, after in pairwise(edges))


class Brute:
    """All legal paths of one sentence and their scores."""

    def __init__(self, case: Case, crf: CRF, scores: Tensor) -> None:
        tables = (parameter.detach().numpy() for parameter in (crf.start, crf.transitions, crf.end))
        start, transitions, end = tables
        numbers = scores.numpy()
        every = product(range(len(case.labels)), repeat=len(numbers))
        self.paths = [path for path in every if is_legal(case, path)]
        self.scores = np.array([
            start[path[0]]
            + sum(numbers[place, label] for place, label in enumerate(path))
            + sum(transitions[before, after] for before, after in pairwise(path))
            + end[path[-1]]
            for path in self.paths
        ])  # fmt: skip
        self.log_partition = math.log(math.fsum(np.exp(self.scores)))

    def marginals(self, n_labels: int) -> np.ndarray:
        found = np.zeros((len(self.paths[0]), n_labels))
        for path, score in zip(self.paths, self.scores, strict=True):
            found[range(len(path)), path] += math.exp(score - self.log_partition)
        return found

    def best(self) -> list[int]:
        return list(self.paths[int(self.scores.argmax())])


def marginals(crf: CRF, scores: Tensor, mask: Tensor) -> Tensor:
    """p(label of token t = k), (B, T, K), by automatic differentiation of the partition."""
    (found,) = torch.autograd.grad(crf.log_partition(scores.requires_grad_(), mask).sum(), scores)
    scores.requires_grad_(False)
    return found


def brutes(case: Case, crf: CRF, scores: Tensor) -> list[Brute]:
    return [Brute(case, crf, row[:length]) for row, length in zip(scores, case.lengths, strict=True)]


# Against all paths


@every_case
@pytest.mark.parametrize("seed", SEEDS)
def test_the_partition_is_the_sum_over_all_legal_paths(case: Case, seed: int) -> None:
    crf, scores, mask = draw(case, seed)
    wanted = [brute.log_partition for brute in brutes(case, crf, scores)]
    np.testing.assert_allclose(crf.log_partition(scores, mask).detach(), wanted, rtol=1e-12, atol=1e-12)


@every_case
@pytest.mark.parametrize("seed", SEEDS)
def test_the_likelihood_of_a_path_is_its_share_of_the_sum(case: Case, seed: int) -> None:
    crf, scores, mask = draw(case, seed)
    rng = np.random.default_rng(seed)
    found_by_brute = brutes(case, crf, scores)
    for _ in range(5):
        labels = torch.zeros(mask.shape, dtype=torch.long)
        wanted = []
        for row, brute in enumerate(found_by_brute):
            chosen = int(rng.integers(len(brute.paths)))
            labels[row, : len(brute.paths[chosen])] = torch.tensor(brute.paths[chosen])
            wanted.append(brute.scores[chosen] - brute.log_partition)
        np.testing.assert_allclose(crf.log_likelihood(scores, labels, mask).detach(), wanted, rtol=1e-11, atol=1e-11)


@every_case
@pytest.mark.parametrize("seed", SEEDS)
def test_the_partition_s_gradient_is_the_sum_over_the_paths_through_a_label(case: Case, seed: int) -> None:
    """∂ log Z / ∂ score(t, k) = p(label of t is k)."""
    crf, scores, mask = draw(case, seed)
    found = marginals(crf, scores, mask)
    assert found.shape == scores.shape
    for row, (brute, length) in enumerate(zip(brutes(case, crf, scores), case.lengths, strict=True)):
        np.testing.assert_allclose(found[row, :length], brute.marginals(len(case.labels)), rtol=1e-10, atol=1e-14)
        np.testing.assert_allclose(found[row, :length].sum(dim=1), 1, rtol=1e-12)
        assert not found[row, length:].any()


@every_case
@pytest.mark.parametrize("seed", SEEDS)
def test_the_best_path_is_the_one_with_the_highest_score_of_all(case: Case, seed: int) -> None:
    crf, scores, mask = draw(case, seed)
    assert crf.best(scores, mask) == [brute.best() for brute in brutes(case, crf, scores)]


def test_transitions_decide_where_scores_do_not() -> None:
    """By hand: from red to green costs nothing, everything else 1; it begins at red (+0.5) and ends at red (+2)."""
    crf = CRF(["red", "green"], anything).double()
    with torch.no_grad():
        crf.transitions.copy_(torch.tensor([[-1.0, 0.0], [-1.0, -1.0]]))
        crf.start.copy_(torch.tensor([0.5, 0.0]))
        crf.end.copy_(torch.tensor([2.0, 0.0]))
    scores, mask = torch.zeros(1, 3, 2, dtype=torch.float64), torch.ones(1, 3, dtype=torch.bool)
    assert crf.best(scores, mask) == [[0, 1, 0]]  # 0.5 + 0 − 1 + 2
    by_hand = {"rrr": 0.5, "rrg": -0.5, "rgr": 1.5, "rgg": -0.5, "grr": 0, "grg": -1, "ggr": 0, "ggg": -2}
    wanted = math.log(sum(math.exp(score) for score in by_hand.values()))
    assert crf.log_partition(scores, mask).item() == pytest.approx(wanted, rel=1e-12)


# What is illegal


@pytest.mark.parametrize("name", ["not twice", "BIOUL"])
@pytest.mark.parametrize("length", [1, 2, 3])
def test_all_legal_paths_have_probability_one_together_and_the_others_none(name: str, length: int) -> None:
    case = CASES[name]
    crf, scores, _ = draw(case, length)
    paths = list(product(range(len(case.labels)), repeat=length))
    many = scores[:1, :length].expand(len(paths), -1, -1)
    mask = torch.ones(len(paths), length, dtype=torch.bool)
    found = crf.log_likelihood(many, torch.tensor(paths), mask).detach()
    right = torch.tensor([is_legal(case, path) for path in paths])
    assert 0 < right.sum() < len(paths)
    assert found[right].exp().sum().item() == pytest.approx(1, rel=1e-12)
    assert found[right].min() > -100
    assert found[~right].exp().sum() == 0
    assert found[~right].max() < -9000


@pytest.mark.parametrize(
    "path", [["I-PER"], ["B-PER"], ["B-PER", "O"], ["O", "L-PER"], ["B-PER", "L-LOC"], ["U-LOC", "I-LOC", "L-LOC"]]
)
def test_an_illegal_path_is_hugely_unlikely_even_if_all_scores_ask_for_it(path: list[str]) -> None:
    crf, _, _ = draw(CASES["BIOUL"], 0)
    labels = torch.tensor([[BIOUL.index(label) for label in path]])
    scores = 50.0 * torch.nn.functional.one_hot(labels, len(BIOUL)).double()
    mask = torch.ones_like(labels, dtype=torch.bool)
    assert crf.log_likelihood(scores, labels, mask).item() < -9000
    assert crf.best(scores, mask) != labels.tolist()
    assert is_legal(CASES["BIOUL"], crf.best(scores, mask)[0])


def test_labels_that_no_legal_path_passes_have_no_probability() -> None:
    """Alone in its sentence a token is O or a unit; of two, the first neither goes on nor ends an entity."""
    crf, scores, mask = draw(Case(BIOUL, bioul, [1, 2]), 0)
    found = marginals(crf, scores, mask)
    some = {(row, place): [label for label, p in zip(BIOUL, found[row, place], strict=True) if p > 0]
            for row, place in [(0, 0), (1, 0), (1, 1)]}  # fmt: skip
    assert some[0, 0] == ["O", "U-LOC", "U-PER"]
    assert some[1, 0] == ["O", "B-LOC", "U-LOC", "B-PER", "U-PER"]
    assert some[1, 1] == ["O", "U-LOC", "L-LOC", "U-PER", "L-PER"]


@pytest.mark.parametrize("scale", [1.0, 30.0, 1000.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_best_path_is_legal_and_as_long_as_its_sentence(scale: float, dtype: torch.dtype) -> None:
    lengths = [40, 1, 7, 2, 23, 39] * 5
    case = Case(BIOUL, bioul, lengths)
    crf, scores, mask = draw(case, 5, scale)
    paths = crf.to(dtype).best(scores.to(dtype), mask)
    assert [len(path) for path in paths] == lengths
    assert all(is_legal(case, path) for path in paths)
    greedy = [row[:length].tolist() for row, length in zip(scores.argmax(dim=2), lengths, strict=True)]
    assert not all(is_legal(case, path) for path in greedy)  # so it was not for free


def test_what_is_illegal_does_not_depend_on_what_was_learned() -> None:
    crf, scores, mask = draw(CASES["BIOUL"], 0)
    before, paths = crf.log_partition(scores, mask).detach(), crf.best(scores, mask)
    illegal = torch.tensor([[not bioul(a, b) for b in BIOUL] for a in BIOUL])
    with torch.no_grad():
        crf.transitions[illegal] = 1e6
        crf.start[torch.tensor([not bioul(None, a) for a in BIOUL])] = 1e6
        crf.end[torch.tensor([not bioul(a, None) for a in BIOUL])] = 1e6
    assert torch.equal(crf.log_partition(scores, mask), before)
    assert crf.best(scores, mask) == paths


# Gradients


@pytest.mark.parametrize("name", ["anything", "not twice", "BIOUL"])
def test_the_likelihoods_gradient_is_that_of_finite_differences(name: str) -> None:
    case = CASES[name]._replace(lengths=[3, 1, 2])
    crf, scores, mask = draw(case, 1)
    labels = torch.zeros(mask.shape, dtype=torch.long)
    for row, brute in enumerate(brutes(case, crf, scores)):
        labels[row, : case.lengths[row]] = torch.tensor(brute.paths[-1])

    class Likelihood(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.crf = crf

        def forward(self, scores: Tensor) -> Tensor:
            return self.crf.log_likelihood(scores, labels, mask)

    whole = Likelihood()
    names = ["transitions", "start", "end"]

    def likelihood(scores: Tensor, *values: Tensor) -> Tensor:
        named = {f"crf.{name}": value for name, value in zip(names, values, strict=True)}
        found: Tensor = functional_call(whole, named, (scores,))
        return found

    leaves = [scores, *(getattr(crf, name).detach().clone() for name in names)]
    assert torch.autograd.gradcheck(likelihood, [leaf.requires_grad_() for leaf in leaves], eps=1e-6, atol=1e-7)


def test_padding_and_illegal_transitions_have_no_gradient() -> None:
    case = CASES["BIOUL"]
    crf, scores, mask = draw(case, 2)
    crf.log_likelihood(scores.requires_grad_(), torch.zeros(mask.shape, dtype=torch.long), mask).sum().backward()
    assert scores.grad is not None and crf.transitions.grad is not None
    assert crf.start.grad is not None and crf.end.grad is not None
    assert torch.equal(scores.grad.ne(0).any(dim=2), mask)
    assert crf.transitions.grad.ne(0).tolist() == [[bioul(before, after) for after in BIOUL] for before in BIOUL]
    assert crf.start.grad.ne(0).tolist() == [bioul(None, label) for label in BIOUL]
    assert crf.end.grad.ne(0).tolist() == [bioul(label, None) for label in BIOUL]


# Neighbours and padding


@every_case
def test_a_sentences_results_are_the_same_alone_and_among_others(case: Case) -> None:
    crf, scores, mask = draw(case, 4)
    labels = torch.zeros(mask.shape, dtype=torch.long)
    for row, path in enumerate(crf.best(scores, mask)):
        labels[row, : len(path)] = torch.tensor(path)
    likelihood, partition = crf.log_likelihood(scores, labels, mask), crf.log_partition(scores, mask)
    best = crf.best(scores, mask)
    for row, length in enumerate(case.lengths):
        alone, whole = scores[row : row + 1, :length], torch.ones(1, length, dtype=torch.bool)
        pairs = [
            (crf.log_partition(alone, whole)[0], partition[row]),
            (crf.log_likelihood(alone, labels[row : row + 1, :length], whole)[0], likelihood[row]),
        ]
        for found, wanted in pairs:
            torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)
        assert crf.best(alone, whole) == [best[row]]


def padded_results(content: float, label: int) -> list[Tensor | list[list[int]]]:
    """All results for sentences that have some scores and a label on their padding, and two more places of it."""
    crf, scores, mask = draw(CASES["BIOUL"], 6)
    scores = torch.nn.functional.pad(scores, (0, 0, 0, 2))
    mask = torch.nn.functional.pad(mask, (0, 2))
    scores[~mask] = content
    labels = torch.zeros(mask.shape, dtype=torch.long).masked_fill(~mask, label)
    likelihood = crf.log_likelihood(scores, labels, mask)
    (gradient,) = torch.autograd.grad(likelihood.sum(), crf.transitions)
    return [
        likelihood.detach(), gradient, crf.log_partition(scores, mask).detach(), crf.best(scores, mask),
    ]  # fmt: skip


def assert_as_if_padded_with_zeros(content: float, label: int) -> None:
    for found, wanted in zip(padded_results(content, label), padded_results(0.0, 0), strict=True):
        if isinstance(found, Tensor):
            torch.testing.assert_close(found, wanted, rtol=0, atol=0)
        else:
            assert found == wanted


@pytest.mark.parametrize(("content", "label"), [(1.0, 1), (-77.0, 8), (1e6, -1), (-1e6, -100), (1e300, 10**9)])
def test_what_stands_on_the_padding_does_not_matter(content: float, label: int) -> None:
    assert_as_if_padded_with_zeros(content, label)


@pytest.mark.parametrize("content", [math.nan, math.inf, -math.inf])
def test_not_even_infinite_numbers_on_the_padding_matter(content: float) -> None:
    assert_as_if_padded_with_zeros(content, 0)


# The rest


def test_float32_is_near_float64_in_long_sentences() -> None:
    case = Case(BIOUL, bioul, [100, 63])
    crf, scores, mask = draw(case, 7)
    partition = crf.log_partition(scores, mask)
    best = crf.best(scores, mask)
    crf, scores = crf.float(), scores.float()
    torch.testing.assert_close(crf.log_partition(scores, mask).double(), partition, rtol=1e-5, atol=0)
    assert crf.best(scores, mask) == best


def test_only_what_is_learned_is_stored() -> None:
    crf = CRF(BIOUL, bioul)
    assert {name: tuple(tensor.shape) for name, tensor in crf.state_dict().items()} == {
        "transitions": (9, 9), "start": (9,), "end": (9,),
    }  # fmt: skip
    assert sorted(name for name, _ in crf.named_parameters()) == ["end", "start", "transitions"]


def test_looking_for_the_best_path_keeps_nothing_for_gradients_and_changes_nothing() -> None:
    crf, scores, mask = draw(CASES["BIOUL"], 8)
    before = {name: tensor.clone() for name, tensor in crf.state_dict().items()}
    unchanged, kept = scores.clone(), []

    def keep(tensor: Tensor) -> Tensor:
        kept.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, keep):
        paths = crf.best(scores.requires_grad_(), mask)
        assert not kept
        crf.log_partition(scores, mask)
        assert kept  # it would have been seen
    assert all(isinstance(label, int) for path in paths for label in path)
    assert torch.equal(scores, unchanged)
    assert all(torch.equal(tensor, before[name]) for name, tensor in crf.state_dict().items())


def test_gradients_are_the_same_every_time_on_two_threads() -> None:
    """Also of a batch with more transitions than PyTorch leaves to one thread (32,768)."""
    torch.manual_seed(0)
    crf = CRF(["a", "b", "c"], anything)
    scores, labels = torch.randn(5000, 8, 3), torch.randint(0, 3, (5000, 8))
    mask, weights = mask_of([8] * 5000), torch.rand(5000)  # equal ones would be summed exactly in any order
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        sums = [(weights * crf.log_likelihood(scores, labels, mask)).sum() for _ in range(4)]
        found = [torch.autograd.grad(one, crf.transitions)[0] for one in sums]
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(gradient, found[0]) for gradient in found)
