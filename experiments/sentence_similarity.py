"""SENTENCE VECTORS ON THE STS BENCHMARK: the correlation of cosines and judgements, for any model and pooling.

    python experiments/sentence_similarity.py data/stsb --part dev --pooling mean --pooling sif

Prints Spearman's and Pearson's correlation in percent, for every pooling. Choose on dev; look at test once.
"""

import argparse
from pathlib import Path

import elmo
from elmo.analysis.sentences import read_pairs
from elmo.analysis.similarity import correlations


def main() -> None:
    """Parse the arguments, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="the folder of sts-dev.csv and sts-test.csv")
    parser.add_argument("--part", default="dev", choices=("train", "dev", "test"))
    parser.add_argument("--model", default="english")
    parser.add_argument("--pooling", action="append", help="as for encode; may be given several times")
    arguments = parser.parse_args()
    model = elmo.load(arguments.model)
    pairs = read_pairs(arguments.data / f"sts-{arguments.part}.csv")
    for pooling in arguments.pooling or ["mean", "sif"]:
        found = correlations(pairs, model.encode(pairs.sentences, pooling))
        print(f"{arguments.part} {pooling}: Spearman {found['spearman']:.2f}, Pearson {found['pearson']:.2f}")


if __name__ == "__main__":
    main()
