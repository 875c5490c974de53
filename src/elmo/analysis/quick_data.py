"""SMALL DATASETS, MADE HERE: invented sentences in the formats of all datasets that the analyses read.

For `elmo reproduce --quick`, which shows that everything works, on any machine; its scores mean nothing. Every sentence
is put together from parts, which know the tags, entities, roles and senses of their words.
"""

import json
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from elmo.files import new_folder

PEOPLE, PLACES = ("Anna", "Boris", "Carla", "Daniel", "Emma", "Felix"), ("Paris", "Lagos", "Lima", "Oslo", "Quito")
OBJECTS = ("book", "letter", "garden", "piano", "bridge", "river", "picture", "window")
VERBS = {"painted": "paint", "found": "find", "described": "describe", "sold": "sell", "visited": "visit"}
PLAIN = ("old", "green", "small", "quiet", "wooden")
MOODS = {"awful": 0, "dull": 1, "ordinary": 2, "pleasant": 3, "wonderful": 4}
# An ambiguous word in two kinds of sentences; each sense has its key in a WordNet of two synsets per lemma.
SENSES = {
    "play%1:10:01::": ("play", "NOUN", "a dramatic work for actors", "{0} saw a play at the theatre in {1} ."),
    "play%1:04:00::": ("play", "NOUN", "a move in a game", "{0} made a clever play in the game in {1} ."),
    "bank%1:17:01::": ("bank", "NOUN", "sloping land beside water", "{0} sat on the bank of the river in {1} ."),
    "bank%1:14:00::": ("bank", "NOUN", "an institution for money", "{0} put the money into the bank in {1} ."),
}
SETS = ("semeval2007", "semeval2013", "semeval2015", "senseval2", "senseval3")
PARTS = ("train", "dev", "test")


@dataclass
class Sentence:
    """Words with all their annotations."""

    words: list[str] = field(default_factory=list)
    tags: list[str] = field(default_factory=list)  # Penn tags
    entities: list[str] = field(default_factory=list)  # IOB2
    roles: list[str] = field(default_factory=list)  # of the verb, as CoNLL-2012 brackets
    mentions: list[str] = field(default_factory=list)  # coreference
    lemma: str = ""  # of the verb
    person: str = ""
    object: str = ""
    place: str = ""

    def add(self, word: str, tag: str, entity: str = "O", role: str = "*", mention: str = "-") -> None:
        """Add a word."""
        for values, value in (
            (self.words, word), (self.tags, tag), (self.entities, entity), (self.roles, role), (self.mentions, mention),
        ):  # fmt: skip
            values.append(value)

    @property
    def text(self) -> str:
        """The words with spaces between them."""
        return " ".join(self.words)


def sentence(rng: random.Random, person: str | None = None, pronoun: bool = False) -> Sentence:
    """Make a sentence such as "Anna painted the old bridge in Paris ."; with `pronoun` it begins with "She"."""
    found = Sentence(person=person or rng.choice(PEOPLE), object=rng.choice(OBJECTS), place=rng.choice(PLACES))
    verb, found.lemma = rng.choice(list(VERBS.items()))
    if pronoun:
        found.add("She" if found.person.endswith("a") else "He", "PRP", role="(ARG0*)", mention="(0)")
    else:
        found.add(found.person, "NNP", "B-PER", "(ARG0*)", "(0)")
    found.add(verb, "VBD", role="(V*)")
    found.add("the", "DT", role="(ARG1*")
    found.add(rng.choice(PLAIN), "JJ")
    found.add(found.object, "NN", role="*)")
    found.add("in", "IN", role="(ARGM-LOC*")
    found.add(found.place, "NNP", "B-LOC", "*)")
    found.add(".", ".")
    return found


def write_data(folder: Path, sentences: int = 60, seed: int = 0) -> None:
    """Write all datasets into a new folder: about `sentences` of them in each training part, fewer in dev and test."""
    rng = random.Random(seed)
    with new_folder(folder) as out:
        sizes = {"train": sentences, "dev": max(8, sentences // 3), "test": max(8, sentences // 3)}
        for part, size in sizes.items():
            some = [sentence(rng) for _ in range(size)]
            _write(out / "entities" / f"{part}.txt", _blocks(_columns(one) for one in some))
            _write(out / "treebank" / f"mini-{part}.conllu", _blocks(_conllu(one) for one in some))
            _write(out / "entailment" / f"{part}.jsonl", [_entailment(one, rng) for one in some])
            _write(out / "sentiment" / f"{part}.txt", [_tree(rng) for _ in range(size)])
            _write(out / "similarity" / f"sts-{part}.csv", [_pair(rng, k) for k in range(size)])
            _write(out / "questions" / f"{part}.json", [json.dumps(_questions(rng, max(4, size // 4)))])
            documents = _documents(rng, max(4, size // 4), part)
            _write(out / "roles" / f"{part}.gold_conll", documents)
            _write(out / "coreference" / f"{part}.conll", documents)
        _write_senses(out / "senses" / "train", rng, sentences)
        for name in SETS:
            _write_senses(out / "senses" / "test" / name, rng, max(8, sentences // 6))
        _write_wordnet(out / "wordnet")
        _write(out / "text" / "train.txt", [sentence(rng).text for _ in range(4 * sentences)])
        _write(out / "text" / "valid.txt", [sentence(rng).text for _ in range(sentences)])
        _write_vectors(out / "vectors.txt", rng)


def _columns(one: Sentence) -> list[str]:
    return [f"{word} {tag}" for word, tag in zip(one.words, one.entities, strict=True)]


def _conllu(one: Sentence) -> list[str]:
    rows = zip(one.words, one.tags, strict=True)
    return [f"{number}\t{word}\t_\t_\t{tag}\t_\t_\t_\t_\t_" for number, (word, tag) in enumerate(rows, 1)]


def _entailment(one: Sentence, rng: random.Random) -> str:
    label = rng.choice(["entailment", "neutral", "contradiction"])
    said = {
        "entailment": f"{one.person} was in {one.place} .",
        "neutral": f"{one.person} has a sister in {one.place} .",
        "contradiction": f"Nobody was in {one.place} .",
    }
    return json.dumps({"gold_label": label, "sentence1": one.text, "sentence2": said[label]})


def _tree(rng: random.Random) -> str:
    mood, label = rng.choice(list(MOODS.items()))
    noun = rng.choice(["film", "story", "music"])
    return f"({label} (2 (2 The) (2 {noun})) ({label} (2 was) ({label} {mood})))"


def _pair(rng: random.Random, number: int) -> str:
    one = sentence(rng)
    close = rng.random() < 0.5
    other = f"{one.person} was in {one.place} ." if close else sentence(rng).text
    return f"mini\tmade\t2018\t{number:04}\t{4.0 if close else 1.0 + rng.random():.3f}\t{one.text}\t{other}"


def _questions(rng: random.Random, articles: int) -> dict[str, object]:
    """Articles in the format of SQuAD: "Where did Anna …?" is answered by the place in the sentence about Anna."""
    data = []
    for number in range(articles):
        some = [sentence(rng, person) for person in rng.sample(PEOPLE, 3)]
        context = " ".join(one.text for one in some)
        asked = []
        for k, one in enumerate(some):
            start = context.index(one.text) + one.text.rindex(one.place)
            answer = {"text": one.place, "answer_start": start}
            question = f"Where did {one.person} {one.lemma} the {one.object} ?"
            asked.append({"id": f"{number}-{k}", "question": question, "answers": [answer]})
        data.append({"title": f"Story {number}", "paragraphs": [{"context": context, "qas": asked}]})
    return {"version": "1.1", "data": data}


def _documents(rng: random.Random, count: int, part: str) -> list[str]:
    """Documents of two sentences in the columns of CoNLL-2012; the second one begins with a pronoun."""
    lines = []
    for number in range(count):
        name = f"mini/{part}/{number:04}"
        person = rng.choice(PEOPLE)
        lines.append(f"#begin document ({name}); part 000")
        for one in (sentence(rng, person), sentence(rng, person, pronoun=True)):
            for k, word in enumerate(one.words):
                frame = [one.lemma, "01"] if one.roles[k] == "(V*)" else ["-", "-"]
                cells = [
                    name,
                    "0",
                    str(k),
                    word,
                    one.tags[k],
                    "*",
                    *frame,
                    "-",
                    "-",
                    "*",
                    one.roles[k],
                    one.mentions[k],
                ]
                lines.append("\t".join(cells))
            lines.append("")
        lines.append("#end document")
    return lines


def _write_senses(folder: Path, rng: random.Random, count: int) -> None:
    """Write a dataset of the unified evaluation framework."""
    xml = ['<?xml version="1.0" encoding="UTF-8" ?>', '<corpus lang="en">', '<text id="d0">']
    keys = []
    for number in range(count):
        key = rng.choice(list(SENSES))
        lemma, pos, _, pattern = SENSES[key]
        xml.append(f'<sentence id="d0.s{number}">')
        for word in pattern.format(rng.choice(PEOPLE), rng.choice(PLACES)).split():
            if word == lemma:
                xml.append(f'<instance id="d0.s{number}.t0" lemma="{lemma}" pos="{pos}">{word}</instance>')
            else:
                xml.append(f'<wf lemma="{word.lower()}" pos="X">{word}</wf>')
        xml.append("</sentence>")
        keys.append(f"d0.s{number}.t0 {key}")
    _write(folder / f"{folder.name}.data.xml", [*xml, "</text>", "</corpus>"])
    _write(folder / f"{folder.name}.gold.key.txt", keys)


def _write_wordnet(folder: Path) -> None:
    """Write the two files of WordNet that are read: definitions, and where they are."""
    numbers: dict[str, int] = {}
    text, index = "", []
    for key, (lemma, _, gloss, _) in SENSES.items():
        numbers[lemma] = numbers.get(lemma, 0) + 1
        index.append(f"{key} {len(text.encode()):08} {numbers[lemma]} 0")
        text += f"{len(text.encode()):08} 10 n 01 {lemma} 0 000 | {gloss}\n"
    _write(folder / "index.sense", index)
    _write(folder / "data.noun", text.splitlines())


def _write_vectors(path: Path, rng: random.Random, dim: int = 8) -> None:
    """Write random word vectors of all words."""
    words = {word.lower() for word in (*PEOPLE, *PLACES, *OBJECTS, *VERBS, *PLAIN, *MOODS)}
    words |= {word.lower() for _, _, _, pattern in SENSES.values() for word in pattern.split() if "{" not in word}
    words |= {"in", "the", "was", "film", "story", "music", "where", "did", "nobody", "has", "sister", "she", "he", "?"}
    _write(path, [f"{word} {' '.join(f'{rng.gauss(0, 1):.4f}' for _ in range(dim))}" for word in sorted(words)])


def _blocks(blocks: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of all blocks, with an empty line after each."""
    return [line for block in blocks for line in (*block, "")]


def _write(path: Path, lines: Iterable[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
