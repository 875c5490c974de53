"""`elmo info`: a model ─▶ its architecture, parameters and files."""

from typing import TYPE_CHECKING

from elmo.cli.arguments import ModelArgument
from elmo.messages import counted
from elmo.packaged import DEFAULT

if TYPE_CHECKING:
    from elmo.model.bilm import BiLMConfig


def info(model: ModelArgument = DEFAULT) -> None:
    """Print a model's architecture, parameters, layers and files.

    \b
    Examples:
      $ elmo info
      $ elmo info model
    """
    from elmo.weights.info import model_info

    facts = model_info(model)
    words = facts.vocabulary_size
    rows = [
        ("model", facts.name),
        ("tokens", ", ".join(_encoder(facts.config))),
        ("LSTMs", ", ".join(_lstms(facts.config))),
        ("layers", f"{facts.config.n_layers} of {facts.config.output_dim}"),
        ("parameters", f"{facts.n_parameters:,}"),
        ("vocabulary", f"{words:,} words" if words is not None else "none: words are read as characters"),
        ("warm state", "stored" if facts.has_warm_state else "computed when it is first used"),
        ("files", "\n".join(f"{file} ({size:,} bytes)" for file, size in facts.files.items())),
    ]
    for name, value in rows:
        print(f"{name:<12}" + value.replace("\n", "\n" + " " * 12))


def _encoder(config: "BiLMConfig") -> list[str]:
    cnn = config.char_cnn
    if cnn is None:
        return [f"a table of {config.n_words:,} words"]
    return [
        f"{cnn.max_characters_per_token} characters of {cnn.embedding_dim}",
        f"filters {' '.join(f'{width}:{count}' for width, count in cnn.filters)} ({cnn.n_filters})",
        cnn.activation,
        counted(cnn.n_highway, "highway"),
    ]


def _lstms(config: "BiLMConfig") -> list[str]:
    def clip(value: float | None) -> str:
        return "no clip" if value is None else f"clip {value:g}"

    lstm = config.lstm
    return [
        f"{counted(config.directions, 'direction')} × {lstm.n_layers}",
        f"cell {lstm.dim}, {clip(lstm.cell_clip)}",
        *([f"projection {lstm.projection_dim}, {clip(lstm.proj_clip)}"] if lstm.dim != lstm.projection_dim else []),
        "skip connections" if lstm.use_skip_connections else "no skip connections",
    ]
