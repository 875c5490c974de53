"""A Sphinx extension: the directive `command-help` shows the help screens of all commands."""

from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective
from typer.testing import CliRunner


class CommandHelp(SphinxDirective):
    """Show `elmo COMMAND --help` for every command, each under a heading of its own."""

    def run(self) -> list[nodes.Node]:
        """Return a section for each command."""
        from elmo.cli import app

        runner = CliRunner(env={"COLUMNS": "90"})
        sections: list[nodes.Node] = []
        for command in app.registered_commands:
            assert command.callback is not None
            name = command.callback.__name__
            shown = runner.invoke(app, [name, "--help"], prog_name="elmo").output
            section = nodes.section("", nodes.title("", f"elmo {name}"), ids=[name])
            section += nodes.literal_block(shown, shown.strip(), language="none")
            sections.append(section)
        return sections


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive."""
    app.add_directive("command-help", CommandHelp)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
