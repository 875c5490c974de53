"""The site is built without a warning, and every link in it leads to a page and to a place on it."""

import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for package in ("sphinx", "furo", "myst_nb"):
        pytest.importorskip(package, reason=f"needs {package}: pip install '.[docs]'")
    out = tmp_path_factory.mktemp("site") / "html"
    build = [sys.executable, "-m", "sphinx", "--fail-on-warning", "--quiet", "-c", "docs", ".", str(out)]
    ended = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert ended.returncode == 0, ended.stderr
    return out


def test_every_link_leads_somewhere(site: Path) -> None:
    pages = {path: path.read_text(encoding="utf-8") for path in site.rglob("*.html")}
    assert len(pages) > 30
    ids = {path: set(re.findall(r'\bid="([^"]+)"', text)) for path, text in pages.items()}
    broken = []
    for path, text in pages.items():
        for link in set(re.findall(r'<a\b[^>]*?\bhref="([^"]+)"', text)):
            if re.match(r"[a-z]+:", link):
                continue
            target, _, fragment = unquote(link).partition("#")
            found = (path.parent / target).resolve() if target else path
            if not found.is_file() or (fragment and found in ids and fragment not in ids[found]):
                broken.append(f"{path.relative_to(site)}: {link}")
    assert not broken, "\n".join(broken)


def test_every_page_and_every_public_name_is_there(site: Path) -> None:
    import elmo

    start = (site / "docs" / "index.html").read_text(encoding="utf-8")
    for page in ("tutorial", "faq", "tasks", "how-to/proteins", "notebooks/senses", "reference/python"):
        assert f'href="{page}.html"' in start
    assert 'href="../SECURITY.html"' in start
    reference = (site / "docs" / "reference" / "python.html").read_text(encoding="utf-8")
    for name in elmo.__all__:
        assert name == "__version__" or f'id="elmo.{name}"' in reference, name
    commands = (site / "docs" / "reference" / "commands.html").read_text(encoding="utf-8")
    assert "Usage: elmo embed [OPTIONS] INPUT OUTPUT" in commands


def test_files_that_are_not_pages_are_shown(site: Path) -> None:
    shown = (site / "files" / "src" / "elmo" / "model" / "lstm.py.html").read_text(encoding="utf-8")
    assert "ProjectedLSTM" in shown
    assert "snli.toml" in (site / "files" / "experiments" / "tasks.html").read_text(encoding="utf-8")
