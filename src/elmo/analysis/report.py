"""RESULTS OF ALL ANALYSES ─▶ ONE HTML FILE: tables, figures, claims, commands, seeds and machines.

The file needs nothing else: styles and figures are inside, and no script. It follows the light or dark theme of the
reader, and reads well on a phone.
"""

import html
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elmo.analysis.analysis import Analysis
from elmo.analysis.claims import FAILS, HOLDS, UNTESTED, Claim
from elmo.analysis.figures import INK, PAPER
from elmo.analysis.record import FIGURE
from elmo.config import to_toml

STYLE = Path(__file__).with_name("report.css")
_QUICK = "A miniature on a few invented sentences: it shows that everything works. Its figures mean nothing."
_NUMBER = re.compile(r"[*+\-−]*[\d.,]+[*]*( ?[%×])?( ± [\d.,]+)?( [/→(].*)?")  # not broken into lines
LONG = 24  # rows; a longer table is folded away
BADGES = {HOLDS: "holds", FAILS: "fails", UNTESTED: "untested"}


@dataclass(frozen=True)
class Section:
    """An analysis in the report: its record and the folder of its figure; or why there are no results."""

    analysis: Analysis
    record: Mapping[str, Any] | None
    folder: Path
    problem: str = "not run yet"


def report(sections: Sequence[Section], command: str, quick: bool = False) -> str:
    """Return the HTML of a report; that of a `quick` one says that its figures mean nothing."""
    title = "ELMo: the analyses in miniature" if quick else "ELMo: the analyses, reproduced"
    warning = f"<p class=problem>{_QUICK}</p>" if quick else ""
    done = [section for section in sections if section.record is not None]
    body = [
        f"<header><h1>{html.escape(title)}</h1>",
        "<p>Deep contextualized word representations (Peters et al., NAACL 2018): the analyses of the paper, and some "
        f"beyond it. {len(done)} of {len(sections)} analyses have results.</p>",
        f"{warning}<p><code>{html.escape(command)}</code></p></header>",
        _contents(sections),
        _claims(done),
        *map(_section, sections),
    ]
    head = (
        f'<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(title)}</title><style>{STYLE.read_text(encoding='utf-8')}</style>"
    )
    joined = "\n".join(body)
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body><main>\n{joined}\n</main></body></html>\n'


def _contents(sections: Sequence[Section]) -> str:
    items = "".join(
        f'<li><a href="#{one.analysis.name}">{one.analysis.title}</a> <span>{one.analysis.section}</span></li>'
        for one in sections
    )
    return f'<nav aria-label="Contents"><ul><li><a href="#claims">Claims</a></li>{items}</ul></nav>'


def _claims(sections: Sequence[Section]) -> str:
    rows = []
    verdicts: Counter[str] = Counter()
    for section in sections:
        assert section.record is not None
        for claim in section.analysis.claims(section.record["results"]):
            rows.append(_claim(claim, section.analysis))
            verdicts[claim.verdict] += 1
    table = f'<ul class="claims">{"".join(rows)}</ul>' if rows else "<p>No claim was tested yet.</p>"
    summary = ", ".join(f"{name}: {verdicts[name]}" for name in BADGES if verdicts[name])
    rule = (
        "A claim that one score is higher holds if the difference of the means is more than twice its standard error "
        "(the ± behind it) on every task that was run; a claim of no difference, if it is not more; a claim that a "
        "score is reached, if it is not lower by more. One seed has no standard error: then nothing is said. Claims "
        "beyond the paper are what others have reported. In tables and figures, ± is the standard deviation over "
        "seeds, where nothing else is said."
    )
    return f'<section id="claims"><h2>Claims</h2><p class=where>{summary}</p><p>{rule}</p>{table}</section>'


def _claim(claim: Claim, analysis: Analysis) -> str:
    badge = f'<span class="badge {BADGES[claim.verdict]}">{claim.verdict}</span>'
    link = f'(<a href="#{analysis.name}">{analysis.title}</a>)'
    lines = "".join(f"<li>{html.escape(line)}</li>" for line in claim.evidence.splitlines())
    return f"<li>{badge}<div><p>{html.escape(claim.text)} {link}</p><ul class=evidence>{lines}</ul></div></li>"


def _section(section: Section) -> str:
    analysis, record = section.analysis, section.record
    parts = [
        f'<section id="{analysis.name}"><h2>{html.escape(analysis.title)}</h2>',
        f"<p class=where>{html.escape(_where(section))}</p><p>{html.escape(analysis.about)}</p>",
    ]
    if record is None:
        parts.append(f"<p class=problem>{html.escape(section.problem)}</p></section>")
        return "\n".join(parts)
    if analysis.figure is not None:
        drawing = _inline((section.folder / FIGURE).with_suffix(".svg"), f"Figure: {analysis.title}")
        parts.append(f"<figure>{drawing}</figure>")
    parts += [to_html(analysis.table(record["results"])), _how(record), "</section>"]
    return "\n".join(parts)


def _where(section: Section) -> str:
    """The place in the paper, and what the results are of: the model and the seeds."""
    facts = [section.analysis.section]
    if section.record is not None:
        config = section.record["config"]
        models = dict.fromkeys([*config.get("others", ()), *([config["model"]] if "model" in config else ())])
        facts += [f"model: {', '.join(models)}"] if models else []
        facts += [f"seeds: {_seeds(section.record)}"] if "seeds" in config else []
    return " · ".join(facts)


def _how(record: Mapping[str, Any]) -> str:
    """The command, the seeds, the machine and the config, folded away."""
    facts = {
        "command": record["command"],
        "seconds": f"{record['seconds']:,.0f}",
        "seeds": _seeds(record),
        **_training(record),
        **record["machine"],
    }
    rows = "".join(f"<dt>{html.escape(name)}</dt><dd>{html.escape(str(value))}</dd>" for name, value in facts.items())
    config = html.escape(to_toml(record["config"]).strip())
    return f"<details><summary>How it was made</summary><dl>{rows}</dl><pre>{config}</pre></details>"


def _training(record: Mapping[str, Any]) -> dict[str, str]:
    """How many runs the results come from, how long they took one by one, and the machines that trained them."""
    cells = list({cell["runs"]: cell for cell in record["results"].get("cells", {}).values()}.values())
    if not cells:
        return {}
    minutes = sum(cell["seconds"] for cell in cells) / 60
    duration = f"{minutes:,.0f} minutes" if minutes < 100 else f"{minutes / 60:,.1f} hours"
    machines = [machine for cell in cells for machine in cell["machines"]]
    shown = dict.fromkeys(
        f"{one['processor'] if one['GPU'] == 'none' else one['GPU']}, torch {one['torch']}" for one in machines
    )
    return {
        "training runs": f"{sum(len(cell['seeds']) for cell in cells)}, {duration} if one after another",
        "trained on": "; ".join(shown) or "not recorded",
    }


def _seeds(record: Mapping[str, Any]) -> str:
    """The seeds of the runs of a sweep, or those that the config names."""
    cells = record["results"].get("cells", {})
    found = sorted({seed for cell in cells.values() for seed in cell["seeds"]})
    if not found and "seeds" in record["config"]:
        found = list(range(record["config"]["seeds"]))
    if not found and "seed" in record["config"]:
        found = [record["config"]["seed"]]
    return ", ".join(map(str, found)) or "nothing is random"


def _inline(path: Path, label: str) -> str:
    """Return a figure to be put into the page, in the colour of its text; its style says how wide it was drawn."""
    text = path.read_text(encoding="utf-8")
    tag, end, drawing = text[text.index("<svg") :].partition(">")
    width = re.search(r'\bwidth="([\d.]+)pt"', tag)
    assert width is not None
    tag = re.sub(r'\b(width|height)="[\d.]+pt" ?', "", tag)
    shown = f'role="img" aria-label="{html.escape(label)}" style="--width: {width[1]}pt"'
    return f"{tag} {shown}{end}{drawing}".replace(INK, "currentColor").replace(PAPER, "none")


def to_html(markdown: str) -> str:
    """Convert the Markdown of our tables: tables, paragraphs, bold."""
    blocks = [block.splitlines() for block in re.split(r"\n\s*\n", markdown.strip())]
    return "\n".join(
        _table(block) if block[0].startswith("|") else f"<p>{_text(' '.join(block))}</p>" for block in blocks
    )


def _table(lines: Sequence[str]) -> str:
    header, _, *rows = ([cell.strip().replace("\\|", "|") for cell in _cells(line)] for line in lines)
    head = "".join(f"<th>{_text(cell)}</th>" for cell in header)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    table = f'<div class="table"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
    if len(rows) <= LONG:
        return table
    return f"<details><summary>{_text(header[0])} ({len(rows)} rows)</summary>{table}</details>"


def _cell(cell: str) -> str:
    kind = ' class="number"' if _NUMBER.fullmatch(cell) else ""
    return f"<td{kind}>{_text(cell)}</td>"


def _cells(line: str) -> list[str]:
    return re.split(r"(?<!\\)\|", line.strip().removeprefix("|").removesuffix("|"))


def _text(text: str) -> str:
    return re.sub(r"\*\*(.+?)\*\*", r"<b>\1</b>", html.escape(text))
