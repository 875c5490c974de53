"""`elmo check`: read and check recipes, without running them."""

from pathlib import Path
from typing import Annotated

import typer


def check(
    files: Annotated[
        list[Path], typer.Argument(help="Recipes: TOML files for `elmo train`, `elmo pretrain` or `elmo analyse`.")
    ],
    show: Annotated[
        bool, typer.Option("--show", help="Print the complete recipe, with every field, as TOML.")
    ] = False,
) -> None:
    """Check recipes without running them.

    Every field is checked, and for a task the files that its recipe names: word vectors and the biLM. Nothing is
    downloaded.

    \b
    Examples:
      $ elmo check ner.toml
      $ elmo check ner.toml --show
    """
    from elmo.recipes import check_recipe

    for file in files:
        recipe = check_recipe(file)
        print(f"# {file}: a recipe for {recipe.kind}" if show else f"{file}: a recipe for {recipe.kind}")
        if show:
            print(recipe.to_toml(), end="")
