"""HELP SCREENS: the same plain form for every command and with every version of typer."""

import re
from typing import Any

from typer.core import TyperCommand

_TYPES = {"str": "TEXT", "int": "N", "int range": "N", "float": "X", "float range": "X", "path": "PATH"}
_TYPE = re.compile(r"<([^>]+)>|INTEGER(?: RANGE)?")
_RANGE = re.compile(r"(; |  \[)x>=\d+(?=\])")  # typer's way to say "at least"


class Command(TyperCommand):
    """A command whose help shows arguments in capitals, and one word for the type of an option."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        for parameter in self.params:
            if parameter.param_type_name == "argument" and getattr(parameter, "metavar", None) is None:
                parameter.metavar = str(parameter.name).upper()

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the parts of the usage line: [OPTIONS] INPUT OUTPUT."""
        return ["[OPTIONS]", *(_argument(parameter) for parameter in self._arguments())]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments, then the options."""
        arguments, options = [], []
        for parameter in self.get_params(ctx):
            if (record := parameter.get_help_record(ctx)) is None:
                continue
            name, text = record[0], record[1].replace("\\[", "[")  # typer 0.15 escapes what is not markup
            text = _RANGE.sub(lambda found: "" if found[1] == "; " else "  [", text)
            if parameter.param_type_name == "argument":
                arguments.append((_argument(parameter), text.replace("  [required]", "").replace("; required]", "]")))
            else:
                name = _TYPE.sub(lambda found: _TYPES.get(found[1] or "int", "TEXT"), name)
                options.append((name, text.replace("  []", "")))
        for title, rows in (("Arguments", arguments), ("Options", options)):
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)

    def _arguments(self) -> list[Any]:
        return [parameter for parameter in self.params if parameter.param_type_name == "argument"]


def _argument(parameter: Any) -> str:
    name = f"{parameter.metavar}{'...' if parameter.nargs != 1 and '...' not in parameter.metavar else ''}"
    return name if parameter.required else f"[{name}]"
