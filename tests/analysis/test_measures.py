"""Correlations, neighbours, most frequent tags, claims and updates, against brute force and by hand."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from analysis import mini
from elmo.analysis import anisotropy, figures, neighbours, pos, sample_efficiency, state
from elmo.analysis.anisotropy import Tokens
from elmo.analysis.probe import LinearProbe
from elmo.analysis.sentences import read_pairs
from elmo.analysis.tables import markdown, mean_sd
from elmo.analysis.vectors import unit
from elmo.errors import ConfigError, DataError
from elmo.tasks.sentences import metric
from elmo.tasks.train_config import TrainConfig

RNG = np.random.default_rng(3)


def test_ranks_share_ties() -> None:
    values = np.array([3.0, 1.0, 3.0, 2.0, 3.0])
    assert metric.ranks(values).tolist() == [4, 1, 4, 2, 4]
    brute = [
        1 + sum(other < one for other in values) + (sum(other == one for other in values) - 1) / 2 for one in values
    ]
    assert metric.ranks(values).tolist() == brute


def test_correlations_are_numpy_s() -> None:
    x, y = RNG.normal(size=50), RNG.normal(size=50)
    assert metric.pearson(x, x**3 + y) == pytest.approx(np.corrcoef(x, x**3 + y)[0, 1])
    assert metric.pearson(metric.ranks(x), metric.ranks(np.exp(x))) == pytest.approx(1)
    assert metric.pearson(x, np.ones(50)) == 0.0


def test_neighbours_are_those_of_brute_force() -> None:
    vectors = unit(RNG.normal(size=(40, 5)).astype(np.float32))
    tokens = Tokens(
        [str(w) for w in RNG.choice(["a", "b", "c"], 40)],
        [str(t) for t in RNG.choice(["X", "Y"], 40)],
        [k // 4 for k in range(40)],
    )
    found = anisotropy.neighbours(vectors, tokens)
    chosen, same_word, same_tag, others = Counter(), 0, 0, 0
    for a in range(40):
        cosines = [(float(vectors[a] @ vectors[b]), b) for b in range(40) if tokens.sentences[a] != tokens.sentences[b]]
        for _, b in sorted(cosines, reverse=True)[:10]:
            chosen[b] += 1
            same_word += tokens.words[a] == tokens.words[b]
            others += tokens.words[a] != tokens.words[b]
            same_tag += tokens.words[a] != tokens.words[b] and tokens.tags[a] == tokens.tags[b]
    assert found["same word"] == pytest.approx(same_word / 400)
    assert found["same tag"] == pytest.approx(same_tag / others)
    assert found["hub"] == pytest.approx(max(chosen.values()) / 10)


def test_a_probe_is_chosen_by_dev_alone() -> None:
    """On dev all epochs are alike: its examples are equal, and one of three is right. So the first epoch counts."""
    classes = RNG.integers(3, size=300)
    rows = (RNG.normal(size=(3, 4))[classes] + RNG.normal(size=(300, 4))).astype(np.float32)
    probe = LinearProbe([rows, rows[[0, 0, 0]], rows], [classes, np.arange(3), classes], 3)
    first = probe.train(1, seed=0)
    assert first[0] == pytest.approx(1 / 3)
    assert probe.train(20, seed=0) == first  # although the last epochs are better on test


def test_the_mean_cosine_of_all_pairs() -> None:
    vectors = unit(RNG.normal(size=(5, 3)).astype(np.float32))
    pairs = np.array([(a, b) for a in range(5) for b in range(5) if a != b])
    total = np.square(vectors.sum(axis=0)).sum()  # of all 25 cosines, five of which are 1
    assert anisotropy.mean_cosine(vectors, pairs) == pytest.approx((total - 5) / 20, abs=1e-6)


def test_the_most_frequent_tag() -> None:
    train = [(["the", "run", "run", "run"], ["DT", "NN", "VB", "VB"])]
    assert pos.most_frequent(train, [(["the", "run", "cat", "the"], ["DT", "VB", "NN", "NN"])]) == 0.75


def test_joined_and_unspoken_words_are_left_out(tmp_path: Path) -> None:
    rows = ["# text", "1-2\tdon't\t_\t_\t_\t_", "1\tdo\t_\t_\tVB\t_", "2\tn't\t_\t_\tRB\t_", "2.1\tx\t_\t_\tY\t_", ""]
    (tmp_path / "en-dev.conllu").write_text("\n".join([*rows, *rows[2:3]]))
    assert pos.read(tmp_path, "dev") == [(["do", "n't"], ["VB", "RB"]), (["do"], ["VB"])]
    (tmp_path / "en-dev.conllu").write_text("1 do\n")
    with pytest.raises(DataError, match=r"en-dev\.conllu:1: '1 do'; expected the columns of CoNLL-U"):
        pos.read(tmp_path, "dev")


def test_pairs_are_read_and_refused(tmp_path: Path) -> None:
    file = tmp_path / "sts-dev.csv"
    file.write_text('a\tb\tc\t1\t4.5\tA "dog" ran.\tDogs run.\n')
    pairs = read_pairs(file)
    assert pairs.scores.tolist() == [4.5]
    assert pairs.sentences == [["A", '"', "dog", '"', "ran", "."], ["Dogs", "run", "."]]
    file.write_text("a\tb\n")
    with pytest.raises(DataError, match=r"sts-dev\.csv:1: .* expected tabs between genre, file, year, id, score"):
        read_pairs(file)


def test_updates_to_the_score_of_the_baseline() -> None:
    without = {"dev": [50.0, 60.0], "best_epochs": [3, 5], "updates_per_epoch": 10}
    curves = [[40.0, 55.0, 70.0], [10.0, 54.9, 54.8]]
    found = sample_efficiency.updates_to_pass(without, {"curves": curves, "updates_per_epoch": 10})
    assert found == {"goal": 55.0, "without ELMo": [30, 50], "with ELMo": [20, None]}


@pytest.mark.parametrize(("share", "epochs", "wanted"), [(1.0, 8, 1), (0.3, 8, 3), (0.001, 8, 12), (0.5, 200, 1)])
def test_an_epoch_reads_a_small_share_several_times(share: float, epochs: int, wanted: int) -> None:
    assert sample_efficiency.passes(TrainConfig(epochs=epochs), share, 100) == wanted


def test_fractions_must_rise() -> None:
    with pytest.raises(ConfigError, match="expected two or more different ones, in rising order"):
        sample_efficiency.SampleEfficiencyConfig(fractions=(1.0, 0.1))


def test_distances_of_states() -> None:
    one = [RNG.normal(size=(3, 25, 4)).astype(np.float32), RNG.normal(size=(3, 2, 4)).astype(np.float32)]
    other = [array + 0.1 for array in one]
    found = state.distances(one, other)
    layer = [
        np.linalg.norm(a[1, t] - b[1, t]) / np.linalg.norm(b[1, t])
        for a, b in zip(one, other, strict=True)
        for t in range(a.shape[1])
    ]
    assert found["relative"][1] == pytest.approx(np.mean(layer), rel=1e-5)
    assert found["first"] == pytest.approx(np.mean([0.2 / np.linalg.norm(b[2, 0]) for b in other]), rel=1e-4)
    assert len(found["by place"]) == 20
    assert found["by place"][9] == pytest.approx(0.2 / np.linalg.norm(other[0][2, 9]), rel=1e-4)


def test_tables() -> None:
    assert markdown(["a", "b"], [["1", "2"]]) == "| a | b |\n| --- | --- |\n| 1 | 2 |\n"
    assert mean_sd([1.0, 3.0]) == "2.00 ± 1.41"
    assert mean_sd([1.0]) == "1.00"
    assert mean_sd([]) == "–"


def test_the_state_of_an_analysis_is_in_its_workspace(tmp_path: Path) -> None:
    place = mini.workspace(tmp_path)
    with pytest.raises(DataError, match=r"nothing-here: not found; expected a dataset there\. Give the folder"):
        place.find("nothing-here")


def test_names_of_groups_are_written_in_short_lines() -> None:
    """A figure of 8 inches has room for about nine letters for each of eight groups."""
    axes = figures.new_figure(8.0).subplots()
    groups = ["SQuAD, input only", "Coref, OntoGUM", *"abcdef"]
    figures.bars(axes, groups, {"one": [(1.0, 0.0)] * 8})
    assert [label.get_text() for label in axes.get_xticklabels()][:2] == ["SQuAD,\ninput\nonly", "Coref,\nOntoGUM"]


def test_dollars_are_no_formula(tmp_path: Path) -> None:
    hits = [{"cosine": 0.5}, {"cosine": 0.4}]
    results = {"uses": None, "queries": [{"query": "a **play** for $5_ or $6", "hits": hits}]}
    figures.write_figure(neighbours.figure, results, tmp_path / "figure")
    assert "a play for $5_ or $6" in (tmp_path / "figure.svg").read_text(encoding="utf-8")
