"""The trained tasks of models/: the best run of each task, by its dev score, as a distribution.

    python experiments/task_models.py RESULTS RUNS DATA models [--column english-large] [--max-words 30000]

RESULTS is the results.json of `elmo analyse tasks`, RUNS the folder of its training runs, DATA the folder of datasets.
The scores on a card are those of the weights in the distribution, rounded to float16. A task is left out, with a
message, if its folder exists already.
"""

import argparse
import json
from dataclasses import dataclass
from pathlib import Path

from elmo.tasks.distribution import Distribution, write_distribution


@dataclass(frozen=True)
class Shipped:
    """What a card says about a task."""

    data: str  # the dataset, a folder of DATA
    title: str
    license: str  # that of the biLM and of the data, the stricter of the two
    notes: str


SHARE_ALIKE = "CC-BY-SA-4.0"
SHIPPED = {
    "squad": Shipped(
        "squad", "answers to questions about a paragraph", SHARE_ALIKE,
        "44 articles of the training part of SQuAD 1.1 (Rajpurkar et al. 2016, CC BY-SA 4.0); the last tenth of them "
        "is dev, and the official dev file is test.",
    ),
    "snli": Shipped(
        "snli", "does a sentence follow from another?", SHARE_ALIKE,
        "75,441 training pairs of SNLI (Bowman et al. 2015, CC BY-SA 4.0), a subset of the official ones; the official "
        "dev and test.",
    ),
    "srl": Shipped(
        "propbank-ewt", "who did what to whom", SHARE_ALIKE,
        "PropBank's annotation of the English Web Treebank (CC BY-SA 4.0).",
    ),
    "coref": Shipped(
        "ontogum", "mentions of the same entity", "CC-BY-NC-SA-4.0",
        "OntoGUM (Zhu et al. 2021). The licence depends on the genre, up to CC BY-NC-SA 4.0, which is that of the "
        "weights.",
    ),
    "ner": Shipped(
        "conll2003", "people, places, organisations and other names", SHARE_ALIKE,
        "CoNLL-2003 (Tjong Kim Sang and De Meulder 2003). Its text is from Reuters and may not be redistributed. The "
        "weights do not contain it; the vectors are those of its words, among others, but not in its order.",
    ),
    "sst": Shipped(
        "sst", "sentiment in five grades", SHARE_ALIKE,
        "The Stanford Sentiment Treebank (Socher et al. 2013), all phrases of the training part.",
    ),
}  # fmt: skip


def best_run(results: dict, runs: Path, title: str, column: str) -> Path:
    """Return the model of the seed with the best dev score."""
    cell = results["cells"][f"{title}/{column}"]
    place = max(range(len(cell["dev"])), key=cell["dev"].__getitem__)
    return runs / cell["runs"] / f"seed-{cell['seeds'][place]}" / "model"


def write_all(
    record: dict, runs: Path, data: Path, out: Path, column: str | None = None, max_words: int | None = None
) -> list[Distribution]:
    """Write a distribution for every task of SHIPPED that was trained on its dataset."""
    results, column, written = record["results"], column or record["config"]["model"], []
    for setup in record["config"]["tasks"]:
        shipped = SHIPPED.get(setup["task"])
        if shipped is None or setup["data"] != shipped.data:
            continue
        target = out / setup["task"]
        if target.exists():
            print(f"{target}: is there already")
            continue
        written.append(
            write_distribution(
                best_run(results, runs, setup["title"] or setup["task"], column), target,
                title=shipped.title, license=shipped.license, language="en", notes=f"## Data\n{shipped.notes}\n",
                data=data / shipped.data, max_words=max_words,
            )
        )  # fmt: skip
        print(f"{target}: {written[-1].size / 1e6:.1f} MB, {written[-1].scores}")
    return written


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("results", "runs", "data", "out"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--column", help="the model of the runs; by default that of the config")
    parser.add_argument("--max-words", type=int)
    given = parser.parse_args()
    record = json.loads(given.results.read_text(encoding="utf-8"))
    write_all(record, given.runs, given.data, given.out, given.column, given.max_words)


if __name__ == "__main__":
    main()
