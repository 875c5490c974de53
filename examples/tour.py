"""What the English model knows: two senses of a word, neighbours in context, substitutes, surprisal, a file of vectors.

    python examples/tour.py [MODEL]

Without MODEL it is the one that comes with the package. A few seconds on two cores, no network.
"""

import sys
import tempfile
from pathlib import Path

import h5py
import numpy as np

import elmo
from elmo.embed.embed_file import embed_file

# Four senses of one word (1, 2, 3, 4), and sentences in which its neighbours are looked for.
WORD = "play"
QUERIES = [
    "The children play in the garden until it gets dark.",
    "The play opened in London in 1895 and ran for six months.",
    "He had a chance to play for the national team.",
    "She learned to play the violin when she was seven.",
]
SENTENCES = [
    "Some boys run around the yard all afternoon.",
    "The film was shown in Paris for the first time in 1934.",
    "Her second novel appeared in New York two years later.",
    "He moved to Spain and began to train with the club.",
    "She taught herself to read the music and sing the songs.",
    "After school the pupils swim in the lake near the village.",
    "The comedy was written for the theatre in Vienna.",
    "They were asked to compete in the final against Brazil.",
    "My brother used to perform the old songs on the piano.",
    "The girls sleep in the tent when the nights are warm.",
    "The opera had its first performance in Milan in 1842.",
    "He was too young to appear in the championship that season.",
    "The old man began to study the flute after the war.",
    "The musical closed after only nine nights on Broadway.",
]
BLANKS = [
    ("The bank of the river was covered with reeds.", "river"),
    ("The bank raised its interest rates.", "interest"),
]
GARDEN_PATH = "The horse raced past the barn fell ."


def title(text: str) -> None:
    print(f"\n\033[1m{text}\033[0m" if sys.stdout.isatty() else f"\n{text}")


def cosines(vectors: np.ndarray, query: np.ndarray) -> np.ndarray:
    return vectors @ query / np.linalg.norm(vectors, axis=-1) / np.linalg.norm(query)


def words(model: elmo.Embedder, sentence: str) -> list[str]:
    return [token.text for token in model.tokens(sentence)]


def two_senses(model: elmo.Embedder) -> None:
    title(f"The same word in four sentences: how alike are its vectors? Cosine, layer by layer, for {WORD!r}")
    arrays = list(model.embed(QUERIES))
    vectors = [array[:, words(model, text).index(WORD)] for array, text in zip(arrays, QUERIES, strict=True)]
    for number, sentence in enumerate(QUERIES, start=1):
        print(f"  {number}  {sentence}")
    names = ["token", *(f"LSTM {layer}" for layer in range(1, model.n_layers))]
    print("\n" + " " * 9 + "".join(f"{name:>10}" for name in names))
    for a, first in enumerate(vectors):
        for b, second in enumerate(vectors[a + 1 :], start=a + 1):
            each = [cosines(x[None], y)[0] for x, y in zip(first, second, strict=True)]
            print(f"  {a + 1} – {b + 1}  " + "".join(f"{cosine:>10.2f}" for cosine in each))


def neighbours(model: elmo.Embedder) -> None:
    title(f"Nearest neighbours of {WORD!r} among the words of other sentences (top layer)")
    found = [(text, k) for text in SENTENCES for k in range(len(words(model, text)))]
    candidates = np.concatenate(list(model.embed(SENTENCES, layers="top")))
    for number, (query, array) in enumerate(zip(QUERIES, model.embed(QUERIES, layers="top"), strict=True), start=1):
        likeness = cosines(candidates, array[words(model, query).index(WORD)])
        best = np.argsort(-likeness)[:2]
        shown = []
        for place in best:
            text, k = found[place]
            tokens = words(model, text)
            shown.append(f"{' '.join([*tokens[:k], tokens[k].upper(), *tokens[k + 1 :]])}  ({likeness[place]:.2f})")
        print(f"  {number}  " + "\n     ".join(shown))


def substitutes(model: elmo.Embedder) -> None:
    title("Which words fit in its place? Both directions of the language model together")
    for sentence, word in BLANKS:
        tokens = words(model, sentence)
        place = tokens.index(word)
        found = model.substitutes(sentence, place, n=8)
        print(f"  {' '.join([*tokens[:place], '____', *tokens[place + 1 :]])}")
        print("     " + ", ".join(f"{one.word} {one.probability:.0%}" for one in found))


def surprisal(model: elmo.Embedder) -> None:
    title("Surprisal of each word, given the words before it, in bits")
    scores = model.score(GARDEN_PATH.split())
    width = max(map(len, scores.tokens))
    for token, bits in zip(scores.tokens, scores.forward_surprisal, strict=True):
        print(f"  {token:<{width}} {bits:5.1f}  {'▇' * round(bits)}")


def to_a_file(model: str | None) -> None:
    title("Embeddings of all these sentences in a file")
    with tempfile.TemporaryDirectory() as folder:
        text, vectors = Path(folder) / "sentences.txt", Path(folder) / "vectors.hdf5"
        text.write_text("\n".join(QUERIES + SENTENCES) + "\n", encoding="utf-8")
        chosen = ["--model", model] if model else []
        print("  $", *["elmo", "embed", text.name, vectors.name, *chosen])
        done = embed_file(text, vectors, model or "english")
        print(f"  {done.sentences} sentences, {done.tokens} tokens")
        with h5py.File(vectors) as file:
            print(f'  vectors.hdf5 ({vectors.stat().st_size:,} bytes): "0" {file["0"].shape}, "1" {file["1"].shape}, …')


def main() -> None:
    name = sys.argv[1] if len(sys.argv) > 1 else None
    model = elmo.load(name, softmax=True) if name else elmo.load(softmax=True)
    print(f"{name or 'english'}: {model.bilm.n_parameters():,} parameters, {model.n_layers} layers of {model.dim}")
    two_senses(model)
    neighbours(model)
    substitutes(model)
    surprisal(model)
    to_a_file(name)


if __name__ == "__main__":
    main()
