"""`elmo info`: a model ─▶ its architecture, parameters and files; or the installed models."""

from typing import TYPE_CHECKING, Annotated

import typer

from elmo.cli.arguments import MODEL
from elmo.messages import counted
from elmo.packaged import DEFAULT

if TYPE_CHECKING:
    from elmo.model.bilm import BiLMConfig
    from elmo.model.char_cnn import CharCNNConfig


def info(
    model: Annotated[str | None, typer.Argument(help=f"{MODEL} By default, the installed models are listed.")] = None,
) -> None:
    """Describe a model, or list the installed models.

    Of a model: its architecture, layers, number of parameters, the types in which they are stored, and its files.

    \b
    Examples:
      $ elmo info
      $ elmo info english
      $ elmo info model
    """
    if model is None:
        _list_installed()
        return
    from elmo.weights.info import model_info

    facts = model_info(model)
    words = facts.vocabulary_size
    rows = [
        ("model", facts.name),
        ("tokens", ", ".join(_encoder(facts.config))),
        ("LSTMs", ", ".join(_lstms(facts.config))),
        ("layers", f"{facts.config.n_layers} of {facts.config.output_dim}"),
        ("parameters", f"{facts.n_parameters:,}"),
        ("stored as", " and ".join(facts.dtypes)),
        ("vocabulary", f"{words:,} words" if words is not None else "none: words are read as characters"),
        ("warm state", "stored" if facts.has_warm_state else "computed when it is first used"),
        ("files", "\n".join(f"{file} ({size:,} bytes)" for file, size in facts.files.items())),
    ]
    for name, value in rows:
        print(f"{name:<12}" + value.replace("\n", "\n" + " " * 12))


def _list_installed() -> None:
    from elmo.weights import installed

    titles = {
        installed.MODELS: "Models, for elmo.load(NAME) and --model NAME:",
        installed.TASKS: "Trained tasks, for elmo.load_task(NAME) and elmo predict NAME:",
    }
    for group, title in titles.items():
        rows = installed.listing(group)
        if not rows:
            continue
        print(title)
        width = max(len(row.name) for row in rows)
        for row in rows:
            description = f"{row.description or ''}{' (the default)' if row.name == DEFAULT else ''}"
            facts = (f"{row.size / 1e6:>7,.1f} MB", row.languages, description) if row.folder else (row.problem,)
            print(f"  {row.name:<{width}}  {'  '.join(fact for fact in facts if fact)}")


def _encoder(config: "BiLMConfig") -> list[str]:
    many, cnn = config.many_langs, config.char_cnn
    if many is not None:
        table = [] if many.n_words is None else [f"a table of {many.n_words:,} words of {many.word_dim}"]
        alphabet = [] if many.char_cnn is None else [f"an alphabet of {many.char_cnn.n_characters:,} code points"]
        return table + alphabet + ([] if many.char_cnn is None else _characters(many.char_cnn))
    return [f"a table of {config.n_words:,} words"] if cnn is None else _characters(cnn)


def _characters(cnn: "CharCNNConfig") -> list[str]:
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
