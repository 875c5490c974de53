"""NEIGHBOURS (paper, section 5.3, Table 4): the contexts most similar to a word in its context, beside static ones.

The corpus is text, one sentence per line, or SemCor, whose words have senses. Every token is indexed by one layer. For
each query sentence, the nearest tokens of other sentences are listed; beside them the neighbours of the word alone, by
word vectors and by the context-free layer 0. Of SemCor also: a map of all uses of the word, coloured by sense, and how
often the nearest other use of the same word has the same sense, layer by layer.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from elmo.analysis.analysis import Analysis, Results, Workspace
from elmo.analysis.claims import FAILS, HOLDS, UNTESTED, Claim
from elmo.analysis.context_index import ContextIndex, Hit, build_index
from elmo.analysis.figures import COLOURS, literal, new_figure
from elmo.analysis.sense_data import glosses, read_senses
from elmo.analysis.tables import markdown
from elmo.analysis.vectors import Array, StaticVectors, projected, unit
from elmo.config import CheckedConfig, PositiveInt
from elmo.embed.embedder import Embedder, load
from elmo.errors import ConfigError
from elmo.packaged import DEFAULT
from elmo.text.reader import read_lines
from elmo.text.tokens import words

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WINDOW = 8  # tokens shown on each side
SHOWN_SENSES = 6  # in the map; other senses are grey
MORE = 50  # hits to look through for tokens of other sentences
MIN_COUNT = 3  # of words in the corpus that are static neighbours by layer 0


@dataclass(frozen=True)
class NeighboursConfig(CheckedConfig):
    """The word and the two sentences of the paper's table, over SemCor."""

    model: str = DEFAULT
    corpus: str = "semcor"  # inside the data folder: a folder of the evaluation framework, or a text file
    tokens: PositiveInt | None = None  # read about so many; none: all
    layer: int = -1  # of the index and the map; -1 is the top layer
    word: str = "play"
    queries: tuple[str, ...] = (
        "Chico Ruiz made a spectacular play on Alusik 's grounder",
        "Olivia De Havilland signed to do a Broadway play for Garson",
    )
    k: PositiveInt = 10
    vectors: str | None = "vectors/glove.6B.100d.tasks.txt"
    wordnet: str | None = "wordnet-3.0/dict"  # for the definitions in the map


@dataclass(frozen=True)
class Corpus:
    """Sentences, and what is known about their tokens; nothing for plain text."""

    sentences: list[list[str]]
    pos: list[list[str]]
    senses: dict[tuple[int, int], str]  # by sentence and token: the sense, if there is exactly one
    lemmas: dict[tuple[int, int], str]


def run(config: NeighboursConfig, workspace: Workspace) -> Results:
    """Build the index, search it, and map the uses of the word."""
    corpus = read_corpus(workspace.find(config.corpus), config.tokens)
    model = load(config.model)
    if not -model.n_layers <= config.layer < model.n_layers:
        raise ConfigError(f"layer is {config.layer}; the model has layers 0 to {model.n_layers - 1}, -1 is the top one")
    layer = config.layer % model.n_layers
    queries = [query.split() for query in config.queries]
    for query in queries:
        if config.word not in query:
            raise ConfigError(f"the query {' '.join(query)!r} does not contain the word {config.word!r}")
    index = build_index(
        workspace.out / "index", model, corpus.sentences, layer, partial(workspace.report, "index of contexts")
    )
    static = StaticVectors(workspace.find(config.vectors)) if config.vectors is not None else None
    wordnet = workspace.find(config.wordnet) if config.wordnet is not None and corpus.senses else None
    return {
        "word": config.word,
        "layer": layer,
        "tokens": len(index),
        "sentences": len(corpus.sentences),
        "static": _static(config, model, corpus, static),
        "queries": [_neighbours(query, config, model, layer, index, corpus) for query in queries],
        "uses": uses(config.word, model, layer, corpus, wordnet),
    }


def read_corpus(path: Path, tokens: int | None) -> Corpus:
    """Read about so many tokens of a text file, or of a dataset with senses."""
    corpus = Corpus([], [], {}, {})
    read = 0
    if path.is_dir():
        for sentence in read_senses(path):
            if tokens is not None and read >= tokens:
                break
            for occurrence in sentence.occurrences:
                where = len(corpus.sentences), occurrence.place
                corpus.lemmas[where] = occurrence.lemma[0]
                if len(occurrence.senses) == 1:
                    (corpus.senses[where],) = occurrence.senses
            corpus.sentences.append(sentence.tokens)
            corpus.pos.append(sentence.pos)
            read += len(sentence.tokens)
        return corpus
    for _, line in read_lines(path):
        if tokens is not None and read >= tokens:
            break
        if found := words(line):
            corpus.sentences.append(found)
            read += len(found)
    return corpus


def _neighbours(
    query: list[str], config: NeighboursConfig, model: Embedder, layer: int, index: ContextIndex, corpus: Corpus
) -> Results:
    """Return the nearest tokens of other sentences; of sentences that are equal, those of the first."""
    place = query.index(config.word)
    vector = next(iter(model.embed([query], layer)))[place]
    hits = index.search(vector, config.k + MORE)[0]
    others: dict[tuple[tuple[str, ...], int], Hit] = {}
    for hit in hits:
        sentence = corpus.sentences[hit.sentence]
        if not contains(sentence, query):
            others.setdefault((tuple(sentence), hit.place), hit)
    found = list(others.values())[: config.k]
    return {"query": shown(query, place), "hits": [_described(hit, corpus) for hit in found]}


def contains(sentence: Sequence[str], part: Sequence[str]) -> bool:
    """Return whether a sentence contains these tokens in a row: the source of a query is not its neighbour."""
    return any(list(sentence[k : k + len(part)]) == list(part) for k in range(len(sentence) - len(part) + 1))


def _described(hit: Hit, corpus: Corpus) -> Results:
    sentence = corpus.sentences[hit.sentence]
    return {
        "cosine": hit.cosine,
        "word": sentence[hit.place],
        "context": shown(sentence, hit.place),
        "pos": corpus.pos[hit.sentence][hit.place] if corpus.pos else None,
        "sense": corpus.senses.get((hit.sentence, hit.place)),
    }


def shown(sentence: Sequence[str], place: int) -> str:
    """Return the tokens around a place, which is in bold Markdown."""
    before, after = sentence[max(0, place - WINDOW) : place], sentence[place + 1 : place + 1 + WINDOW]
    cut = ("… " if place > WINDOW else "", " …" if place + 1 + WINDOW < len(sentence) else "")
    return f"{cut[0]}{' '.join([*before, f'**{sentence[place]}**', *after])}{cut[1]}"


def _static(
    config: NeighboursConfig, model: Embedder, corpus: Corpus, static: StaticVectors | None
) -> dict[str, list[str]]:
    """Return the nearest words of the word alone, by word vectors and by layer 0."""
    counts = Counter(token for sentence in corpus.sentences for token in sentence)
    frequent = [word for word, count in counts.items() if count >= MIN_COUNT and word.lower() != config.word.lower()]
    found = {}
    if static is not None and config.word in static:
        found["word vectors"] = _nearest_words(
            static.words, static.matrix, static([config.word])[0], config.word, config.k
        )
    if frequent:
        rows = model.token_vectors(frequent)
        found["layer 0"] = _nearest_words(frequent, rows, model.token_vectors([config.word])[0], config.word, config.k)
    return found


def _nearest_words(names: Sequence[str], rows: Array, vector: Array, word: str, k: int) -> list[str]:
    order = np.argsort(-(unit(rows) @ unit(vector)), kind="stable")
    return [names[row] for row in order[: k + 1] if names[row].lower() != word.lower()][:k]


def uses(word: str, model: Embedder, layer: int, corpus: Corpus, wordnet: Path | None) -> Results | None:
    """Return the 2-D map of all uses of a lemma that have one sense, and 1-NN accuracy by layer; None if too few."""
    places = [where for where, lemma in corpus.lemmas.items() if lemma == word and where in corpus.senses]
    if len(places) < 3:
        return None
    arrays = dict(zip(
        (numbers := sorted({sentence for sentence, _ in places})),
        model.embed([corpus.sentences[number] for number in numbers]), strict=True,
    ))  # fmt: skip
    vectors = np.stack([arrays[sentence][:, place] for sentence, place in places])  # (uses, L+1, 2D)
    senses = [corpus.senses[where] for where in places]
    common = Counter(senses).most_common()
    return {
        "senses": dict(common),
        "glosses": glosses(wordnet, set(senses)) if wordnet is not None else {},
        "points": [
            [float(x), float(y), sense] for (x, y), sense in zip(projected(vectors[:, layer]), senses, strict=True)
        ],
        "most frequent": common[0][1] / len(places),
        "nearest": [same_sense(vectors[:, one], senses) for one in range(model.n_layers)],
    }


def same_sense(vectors: Array, senses: Sequence[str]) -> float:
    """Return how often the nearest other vector (N, D) has the same sense."""
    cosines = unit(vectors) @ unit(vectors).T
    np.fill_diagonal(cosines, -np.inf)
    nearest = cosines.argmax(axis=1)
    return float(np.mean([senses[a] == senses[b] for a, b in enumerate(nearest)]))


def table(results: Results) -> str:
    """Static neighbours, then those of every query; then the accuracy of senses."""
    rows = [[name, f"**{results['word']}**", ", ".join(found)] for name, found in results["static"].items()]
    for query in results["queries"]:
        for number, hit in enumerate(query["hits"]):
            source = query["query"] if number == 0 else ""
            rows.append([f"layer {results['layer']}" if number == 0 else "", source, _cells(hit)])
    text = markdown(["", "source", "nearest neighbours"], rows)
    found = results["uses"]
    if found is None:
        return text
    scores = [f"{100 * share:.1f}" for share in found["nearest"]]
    header = ["nearest other use has the same sense, %", "uses", "most frequent sense"]
    layers = [f"layer {layer}" for layer in range(len(scores))]
    count = sum(found["senses"].values())
    row = [f"{results['word']}", f"{count:,} of {len(found['senses'])} senses", f"{100 * found['most frequent']:.1f}"]
    return f"{text}\n{markdown([*header, *layers], [[*row, *scores]])}"


def _cells(hit: dict[str, Any]) -> str:
    sense = f" ({hit['sense']})" if hit["sense"] else ""
    return f"{hit['cosine']:.3f} {hit['context']}{sense}".replace("|", "\\|")


def figure(results: Results) -> "Figure":
    """The map of the uses of the word, coloured by sense; without senses, the cosines of the neighbours."""
    drawn = new_figure(6.5, 6.0)
    axes = drawn.subplots()
    found = results["uses"]
    if found is None:
        for colour, query in zip(COLOURS, results["queries"], strict=False):
            cosines = [hit["cosine"] for hit in query["hits"]]
            label = literal(query["query"].replace("**", "")[:40])
            axes.plot(range(1, len(cosines) + 1), cosines, marker="o", color=colour, label=label)
        axes.set_xlabel("neighbour")
        axes.set_ylabel("cosine")
        axes.legend(fontsize="small")
        return drawn
    common = list(found["senses"])[:SHOWN_SENSES]
    others = [point for point in found["points"] if point[2] not in common]
    if others:
        axes.scatter([x for x, _, _ in others], [y for _, y, _ in others], s=14, color="#a0a0a0", label="other senses")
    for colour, sense in zip(COLOURS, common, strict=False):
        points = [point for point in found["points"] if point[2] == sense]
        gloss = found["glosses"].get(sense, sense)
        kind = {"1": "noun", "2": "verb", "3": "adjective", "4": "adverb", "5": "adjective"}[sense.partition("%")[2][0]]
        label = literal(f"{kind}: {gloss[:60]}{'…' if len(gloss) > 60 else ''} ({len(points)})")
        axes.scatter([x for x, _, _ in points], [y for _, y, _ in points], s=22, color=colour, label=label)
    word = literal(results["word"])
    axes.set_title(f"uses of “{word}”, layer {results['layer']}, first two principal components", loc="left")
    axes.set_xticks([])
    axes.set_yticks([])
    axes.legend(fontsize="small", loc="upper left", bbox_to_anchor=(0.0, 0.0))
    return drawn


def claims(results: Results) -> list[Claim]:
    """The neighbours in context share the sense of the word."""
    text = "Neighbours in context share the sense of a word; its static neighbours mix senses"
    found = results["uses"]
    if found is None:
        return [Claim(text, UNTESTED, "the corpus has no senses of the word")]
    if len(found["senses"]) == 1:
        return [Claim(text, UNTESTED, "all uses of the word have the same sense")]
    best = max(found["nearest"][1:])
    evidence = (
        f"the nearest other use of “{results['word']}” has the same sense in {100 * best:.1f} % of the cases, the most "
        f"frequent sense has {100 * found['most frequent']:.1f} %"
    )
    return [Claim(text, HOLDS if best > found["most frequent"] else FAILS, evidence)]


ANALYSIS = Analysis(
    "neighbours",
    "Nearest neighbours",
    "section 5.3, Table 4",
    "The contexts most similar to a word in its context, over a corpus, beside the static neighbours of the word.",
    NeighboursConfig,
    run,
    table,
    figure,
    claims=claims,
)
