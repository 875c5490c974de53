"""A Sphinx extension: links from pages to files and folders of the repository that are not pages.

Each of them gets a page that shows it, such as `files/src/elmo/model/lstm.py.html`, so that the site is complete.
"""

import re
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

from docutils import nodes
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import TextLexer, get_lexer_for_filename
from pygments.util import ClassNotFound
from sphinx.application import Sphinx

LINK = re.compile(r"\]\((?![a-z]+:|#)([^)#\s]+)(#[^)\s]*)?\)")
SCHEME = "repository:"


def page_of(path: str) -> str:
    """Return the name of the page that shows a file or a folder."""
    return f"files/{path}"


def rewrite_links(app: Sphinx, docname: str, source: list[str]) -> None:
    """Mark links to what is not a page: `](../src/x.py)` becomes `](repository:src/x.py)`."""
    root = Path(app.srcdir).resolve()
    folder = Path(app.env.doc2path(docname)).resolve().parent

    def rewritten(link: re.Match[str]) -> str:
        target = (folder / link[1]).resolve()
        if not target.exists() or not target.is_relative_to(root):
            return link[0]  # Sphinx reports it
        if app.env.path2doc(str(target)) in app.env.found_docs and target.is_file():
            return link[0]
        if target.suffix in (".png", ".svg"):
            return link[0]  # Sphinx copies it
        return f"]({SCHEME}{target.relative_to(root).as_posix()})"

    if not docname.startswith("docs/notebooks/"):
        source[0] = LINK.sub(rewritten, source[0])


def resolve_links(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Point the marked links of a page to the pages of the files, and remember these."""
    for reference in doctree.findall(nodes.reference):
        uri = reference.get("refuri", "")
        if uri.startswith(SCHEME):
            path = uri.removeprefix(SCHEME)
            app.env.shown_files.add(path)  # type: ignore[attr-defined]
            reference["refuri"] = app.builder.get_relative_uri(docname, page_of(path))
            reference["internal"] = True


def pages(app: Sphinx) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Yield the pages of all files that pages link to."""
    shown: set[str] = app.env.shown_files  # type: ignore[attr-defined]
    for path in sorted(shown):
        target = Path(app.srcdir) / path
        body = listing(target) if target.is_dir() else highlighted(target)
        yield page_of(path), {"title": path, "body": f"<h1>{escape(path)}</h1>\n{body}"}, "page.html"


def highlighted(file: Path) -> str:
    """Return the text of a file as HTML."""
    try:
        lexer = get_lexer_for_filename(file.name)
    except ClassNotFound:
        lexer = TextLexer()
    return highlight(file.read_text(encoding="utf-8"), lexer, HtmlFormatter())


def listing(folder: Path) -> str:
    """Return the names of the files in a folder as HTML."""
    names = sorted(path.name for path in folder.iterdir() if not path.name.startswith(("_", ".")))
    return "<ul>" + "".join(f"<li><code>{escape(name)}</code></li>" for name in names) + "</ul>"


def begin(app: Sphinx) -> None:
    """Make the set of files that get a page."""
    app.env.shown_files = set()  # type: ignore[attr-defined]


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the extension."""
    app.connect("builder-inited", begin)
    app.connect("source-read", rewrite_links)
    app.connect("doctree-resolved", resolve_links)
    app.connect("html-collect-pages", pages)
    return {"parallel_read_safe": True, "parallel_write_safe": False}
