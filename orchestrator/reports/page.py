"""A report as one HTML file that needs nothing else: no script, no network."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence

from orchestrator.reports import documents, records, tables
from orchestrator.text import escaping

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem;
  color: #1a1a1a; background: #fff; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: 0.3rem 0.7rem; text-align: right; border-bottom: 1px solid #ddd;
  white-space: nowrap; }
th { border-bottom: 2px solid #888; } .text { text-align: left; }
.warnings { border-left: 4px solid #d55e00; padding-left: 1rem; }
figure { display: inline-block; margin: 1rem 1rem 0 0; } svg { max-width: 100%; height: auto; }
""".strip()
_TEXT = ("configuration", "curve", "source")


def page(
    report: records.Report,
    wishes: records.Targets,
    columns: Sequence[tables.Column],
    drawings: Sequence[tuple[str, str]],
) -> str:
    """Return the page; `drawings`: titles and SVG files."""
    titles = [tables.title(column, report) for column in columns]
    parts = [
        "<!doctype html>",
        '<html lang="en">',
        '<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{_text(report.title)}</title>",
        f"<style>\n{_STYLE}\n</style>",
        f"<h1>{_text(report.title)}</h1>",
        '<div class="wide"><table>',
        f"<tr>{''.join(_cell('th', name, name) for name in titles)}</tr>",
    ]
    for row in tables.texts(report, columns):
        parts.append(f"<tr>{''.join(_cell('td', name, row[name]) for name in titles)}</tr>")
    parts.append("</table></div>")
    said = documents.sentences(report, wishes)
    parts += _said([one for one in said if one[0] == "Warnings"], "warnings")
    for title, drawing in drawings:
        inner = _inline(drawing, f"{title}-")
        parts.append(f"<figure>{inner}</figure>")
    parts += _said([one for one in said if one[0] != "Warnings"], "said")
    return "\n".join([*parts, "</html>", ""])


def _cell(tag: str, column: str, text: str) -> str:
    side = ' class="text"' if column in _TEXT else ""
    return f"<{tag}{side}>{_text(text.replace('_', ' ') if tag == 'th' else text)}</{tag}>"


def _text(text: str) -> str:
    return html.escape(escaping.one_line(text))


def _said(said: Sequence[tuple[str, Sequence[str]]], kind: str) -> list[str]:
    parts = []
    for title, found in said:
        each = "".join(f"<li>{_text(sentence)}</li>" for sentence in found)
        parts.append(f'<h2>{_text(title)}</h2>\n<ul class="{kind}">{each}</ul>')
    return parts


def _inline(drawing: str, prefix: str) -> str:
    """Return the svg element alone, with IDs that no other drawing of the page has."""
    element = drawing[drawing.index("<svg") :].strip()
    # The block names its licence and its format by addresses that no browser follows.
    element = re.sub(r"<metadata>.*?</metadata>\s*", "", element, flags=re.DOTALL)
    element = re.sub(r'\bid="', f'id="{prefix}', element)
    return re.sub(r'(href="#|url\(#)', rf"\g<1>{prefix}", element)
