"""COREFERENCE SCORES as the CoNLL reference scorer, version 8, computes them: MUC, B³, CEAF-φ4, their mean; and LEA.

The key are the gold clusters, the response the predicted ones. Each metric sums numerators and denominators of recall
and precision over all documents. Mentions must match exactly. Repeated mentions are treated as the scorer does:

- in the response, of a mention that is also in the key only the first one counts;
- of one that is not in the key, each counts, as an error;
- in the key, each counts; a mention in two entities is looked up in the later one.

MUC: Vilain et al. (1995). B³: Bagga and Baldwin (1998). CEAF: Luo (2005). LEA: Moosavi and Strube (2016). How the
scorer treats mentions that only one side has: Pradhan et al. (2014).
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from elmo.errors import ElmoError
from elmo.tasks.coref.document import Clusters, Span

Entities = list[list[Span]]


class Counts(NamedTuple):
    """Numerator and denominator of recall and of precision, which are summed over documents."""

    recall: float = 0.0
    key: float = 0.0
    precision: float = 0.0
    response: float = 0.0


def score(gold: Sequence[Clusters], predicted: Sequence[Clusters]) -> dict[str, float]:
    """Return the mean F1 of MUC, B³ and CEAF-φ4, then F1, precision and recall of each, of LEA and of the mentions.

    All are in per cent. The gold clusters are scored as they are. They may contain entities of one mention, which many
    models never predict; for these the values of F1 that end in "_without_singletons" are the fair ones: entities of
    one mention are first removed from both sides.
    """
    scores = _scores(gold, predicted)
    others = _scores([_without_singletons(one) for one in gold], [_without_singletons(one) for one in predicted])
    return {**scores, **{f"{name}_without_singletons": others[name] for name in others if name.endswith("f1")}}


def _scores(gold: Sequence[Clusters], predicted: Sequence[Clusters]) -> dict[str, float]:
    totals = dict.fromkeys(METRICS, Counts())
    for key, answer in zip(gold, predicted, strict=True):
        entities = [list(cluster) for cluster in key if cluster]
        response = _first_of_repeated(answer, {mention for entity in entities for mention in entity})
        for name, count in METRICS.items():
            totals[name] = Counts(*map(sum, zip(totals[name], count(entities, response), strict=True)))
    each = {name: _f1(counts) for name, counts in totals.items()}
    mean = sum(each[name][0] for name in ("muc", "b3", "ceaf")) / 3
    kinds = ("f1", "precision", "recall")
    parts = {f"{n}_{kind}": value for n, values in each.items() for kind, value in zip(kinds, values, strict=True)}
    return {"f1": mean, **parts}


def _without_singletons(clusters: Clusters) -> Clusters:
    return tuple(cluster for cluster in clusters if len(set(cluster)) > 1)


def _first_of_repeated(response: Clusters, in_key: set[Span]) -> Entities:
    """Remove, of the mentions that are in the key, all but the first."""
    seen: set[Span] = set()
    entities = []
    for cluster in response:
        entity = []
        for mention in cluster:
            if mention not in seen:
                entity.append(mention)
            if mention in in_key:
                seen.add(mention)
        if entity:
            entities.append(entity)
    return entities


def muc(key: Entities, response: Entities) -> Counts:
    """Count links: an entity of n mentions has n − 1; correct are those between mentions of one key entity."""
    entity_of = _index(key)
    correct = 0
    for entity in response:
        found = Counter(entity_of[mention] for mention in entity if mention in entity_of)
        correct += sum(count - 1 for count in found.values())
    return Counts(correct, sum(len(e) - 1 for e in key), correct, sum(len(e) - 1 for e in response))


def b_cubed(key: Entities, response: Entities) -> Counts:
    """For each mention, compare the entity that it has in the response with the one that it has in the key."""
    entity_of = _index(key)
    members = [set(entity) for entity in key]
    recall = precision = 0.0
    for entity in response:
        for number, mentions in Counter(entity_of[mention] for mention in entity if mention in entity_of).items():
            common = sum(mention in members[number] for mention in entity)
            precision += mentions * common / len(entity)
            recall += mentions * common / len(key[number])
    return Counts(recall, sum(map(len, key)), precision, sum(map(len, response)))


def ceaf(key: Entities, response: Entities) -> Counts:
    """Align entities one to one so that their similarity φ4 = 2 |K ∩ R| / (|K| + |R|), summed, is the largest."""
    similarity = np.zeros((len(key), len(response)))
    holders: dict[Span, list[int]] = {}
    for column, entity in enumerate(response):
        for mention in set(entity):
            holders.setdefault(mention, []).append(column)
    for row, entity in enumerate(key):
        common = Counter(column for mention in entity for column in holders.get(mention, ()))
        for column, count in common.items():
            similarity[row, column] = 2 * count / (len(entity) + len(response[column]))
    best = float(similarity[_assignment()(similarity, maximize=True)].sum())
    return Counts(best, len(key), best, len(response))


def _assignment() -> Callable[..., tuple[np.ndarray, np.ndarray]]:
    try:
        from scipy.optimize import linear_sum_assignment
    except ImportError:
        raise ElmoError("the scores of coreference need SciPy: pip install 'elmo-torch[coref]'") from None
    solve: Callable[..., tuple[np.ndarray, np.ndarray]] = linear_sum_assignment
    return solve


def lea(key: Entities, response: Entities) -> Counts:
    """Weigh the share of correct links of each entity by its size; a single mention has a link to itself."""
    recall, precision = _resolved(key, response), _resolved(response, key)
    return Counts(recall, sum(map(len, key)), precision, sum(map(len, response)))


def _resolved(entities: Entities, others: Entities) -> float:
    """Sum over the entities: size times the share of its links that are also in one of the others."""
    other_of = _index(others)
    total = 0.0
    for entity in entities:
        found = Counter(other_of[mention] for mention in entity if mention in other_of)
        if len(entity) == 1:
            total += any(len(others[number]) == 1 for number in found)
        else:
            links = sum(count * (count - 1) for count in found.values())
            total += links / (len(entity) - 1)  # |e| · links / (|e| (|e| − 1)): each link is counted from both ends
    return total


def mentions(key: Entities, response: Entities) -> Counts:
    """Count distinct mentions, whatever their entity."""
    wanted, found = ({mention for entity in entities for mention in entity} for entities in (key, response))
    return Counts(len(wanted & found), len(wanted), len(wanted & found), len(found))


METRICS: dict[str, Callable[[Entities, Entities], Counts]] = {
    "muc": muc,
    "b3": b_cubed,
    "ceaf": ceaf,
    "lea": lea,
    "mention": mentions,
}


def _index(entities: Entities) -> dict[Span, int]:
    """Map each mention to its entity; the last one, if it has several."""
    return {mention: number for number, entity in enumerate(entities) for mention in entity}


def _f1(counts: Counts) -> tuple[float, float, float]:
    """Return F1, precision and recall in per cent."""
    recall = 100 * counts.recall / counts.key if counts.key else 0.0
    precision = 100 * counts.precision / counts.response if counts.response else 0.0
    return (2 * precision * recall / (precision + recall) if precision + recall else 0.0), precision, recall
