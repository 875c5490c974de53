"""`elmo reproduce --quick`: small configs of all analyses, for the datasets of quick_data.py."""

from typing import Any

_TRAIN = ("train.epochs=2", "train.batch_size=16", "train.device=cpu")
_SMALL = {  # of each task: its folder of data, and sizes
    "squad": ("questions", "hidden=8", "feedforward=8", "inputs.characters.filters=8"),
    "snli": ("entailment", "hidden=8", "projection=8", "feedforward=8"),
    "srl": ("roles", "hidden=8", "n_layers=2", "predicate_dim=4"),
    "coref": ("coreference", "hidden=8", "n_layers=1", "feedforward=8", "feature=4", "train.batch_size=1"),
    "ner": ("entities", "hidden=8", "n_layers=1", "inputs.characters.filters=8"),
    "sst": ("sentiment", "prenet=8", "hidden=8", "maxout=8"),
}


def _task(name: str) -> dict[str, Any]:
    data, *sizes = _SMALL[name]
    return {"task": name, "data": data, "vectors": "vectors.txt", "settings": [*_TRAIN, *sizes]}


def _tasks(*names: str) -> list[dict[str, Any]]:
    return [_task(name) for name in names]


def quick_configs() -> dict[str, dict[str, Any]]:
    """Return the changes of every analysis's default config."""
    vectors = {"vectors": "vectors.txt"}
    return {
        "tasks": {"seeds": 2, "tasks": _tasks(*_SMALL)},
        "layer-weighting": {"seeds": 2, "tasks": _tasks("squad", "snli", "srl", "ner", "sst")},
        "placement": {"seeds": 2, "tasks": _tasks("squad", "snli", "srl")},
        "neighbours": {"corpus": "senses/train", "k": 3, "wordnet": "wordnet", **vectors},
        "senses": {"train": "senses/train", "test": "senses/test", "wordnet": "wordnet", **vectors},
        "pos": {"data": "treebank", "seeds": 2, "epochs": 5},
        "sample-efficiency": {
            "seeds": 2,
            "fractions": [0.1, 0.3, 1.0],
            "max_passes": 4,
            "tasks": _tasks("srl", "snli", "ner"),
        },
        "layer-weights": {"seeds": 2, "tasks": _tasks("squad", "snli", "srl", "coref", "ner", "sst")},
        "fine-tuning": {
            "settings": ["steps=3", "batch.size=4", "batch.unroll=5"],
            "domains": [
                {"name": "pairs", "data": "entailment", "kind": "snli"},
                {"name": "stories", "data": "questions", "kind": "contexts"},
            ],
            "seeds": 2,
            "tasks": [{"domain": "pairs", "setup": _task("snli")}],
        },
        "state": {"text": "text/valid.txt", "sentences": 20, "seeds": 2, "tasks": _tasks("ner")},
        "anisotropy": {"data": "treebank", "tokens": 300, "removed": [0, 1]},
        "similarity": {
            "pairs": "similarity",
            "classes": "sentiment",
            "removed": [0, 1],
            "seeds": 2,
            "epochs": 5,
            **vectors,
        },
        "trigram": {
            "corpus": "text/train.txt",
            "heldout": "text/valid.txt",
            "vocab_size": 40,
            "discount_fallback": True,
        },
    }
