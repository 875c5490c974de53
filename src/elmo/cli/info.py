"""`elmo info`: a model ─▶ its architecture, parameters and files."""

from elmo.cli.arguments import ModelArgument
from elmo.packaged import DEFAULT


def info(model: ModelArgument = DEFAULT) -> None:
    """Print a model's architecture, parameters, layers and files.

    \b
    Examples:
      $ elmo info
      $ elmo info model
    """
    from elmo.weights import source

    path = source.locate(model)
    read = source.read(path)
    config, bilm = read.bilm.config, read.bilm
    lstm, cnn = config.lstm, config.char_cnn

    def clip(value: float | None) -> str:
        return "no clip" if value is None else f"clip {value:g}"

    if cnn is not None:
        filters = " ".join(f"{width}:{count}" for width, count in cnn.filters)
        encoder = [
            f"{cnn.max_characters_per_token} characters of {cnn.embedding_dim}",
            f"filters {filters} ({cnn.n_filters})",
            cnn.activation,
            f"{cnn.n_highway} highway{'' if cnn.n_highway == 1 else 's'}",
        ]
    else:
        encoder = [f"a table of {config.n_words:,} words"]
    projection = f"projection {lstm.projection_dim}, {clip(lstm.proj_clip)}" if lstm.dim != lstm.projection_dim else ""
    stack = [
        f"{config.directions} direction{'s' if config.bidirectional else ''} × {lstm.n_layers}",
        f"cell {lstm.dim}, {clip(lstm.cell_clip)}",
        projection,
        "skip connections" if lstm.use_skip_connections else "no skip connections",
    ]
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    if path.suffix in (".hdf5", ".h5"):
        files.append(source.options_beside(path))
    rows = [
        ("model", str(model)),
        ("tokens", ", ".join(encoder)),
        ("LSTMs", ", ".join(part for part in stack if part)),
        ("layers", f"{config.n_layers} of {config.output_dim}"),
        ("parameters", f"{bilm.n_parameters():,}"),
        ("vocabulary", f"{len(read.vocabulary):,} words" if read.vocabulary else "none: words are read as characters"),
        ("warm state", "stored" if read.warm_state else "computed when it is first used"),
        ("files", "\n".join(f"{file} ({file.stat().st_size:,} bytes)" for file in files if file.is_file())),
    ]
    for name, value in rows:
        print(f"{name:<12}" + value.replace("\n", "\n" + " " * 12))
