"""A corpus folder as `elmo pretrain` reads it, written by plain Python from words: no `elmo prepare` in between."""

import json
import zlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

Sentences = Sequence[Sequence[str]]


def write_corpus(folder: Path, train: Sequence[Sentences], heldout: Sentences, vocabulary_size: int) -> Path:
    """Write the shards of `train`, and one of `heldout` unless it is empty; gives the folder.

    The vocabulary is the first `vocabulary_size` words, `<S>`, `</S>` and `<UNK>` among them; the others follow by
    falling count in the training text, equal ones by code points, then those that are held out only.
    """
    folder.mkdir(parents=True)
    counts = Counter(word for shard in train for sentence in shard for word in sentence)
    counts.update({word: 0 for sentence in heldout for word in sentence})
    special = ["<S>", "</S>", "<UNK>"]
    words = special + sorted(counts.keys() - set(special), key=lambda word: (-counts[word], word))
    row = {word: number for number, word in enumerate(words)}
    shards: dict[str, list[dict[str, Any]]] = {"train": [], "heldout": []}
    parts = [("train", number, shard) for number, shard in enumerate(train)]
    for part, number, sentences in parts + ([("heldout", 0, heldout)] if heldout else []):
        text = [row[word] for sentence in sentences for word in ("<S>", *sentence, "</S>")]
        rows = np.array(text, dtype="<u4")
        file = f"{part}-{number:05d}.npy"
        np.save(folder / file, rows)
        tokens = sum(len(sentence) for sentence in sentences)
        crc32 = zlib.crc32(rows.tobytes())
        shards[part].append({"file": file, "tokens": tokens, "sentences": len(sentences), "crc32": crc32})
    for file, lines in (("words.txt", words), ("vocabulary.txt", words[:vocabulary_size])):
        (folder / file).write_bytes("".join(f"{word}\n" for word in lines).encode("utf-8"))
    manifest = {"format": 1, "vocabulary": vocabulary_size, "words": len(words), **shards}
    (folder / "corpus.json").write_text(json.dumps(manifest))
    return folder
