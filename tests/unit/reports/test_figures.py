"""Figures: their numbers, reproducible files, and a self-contained page."""

from __future__ import annotations

import csv
import dataclasses
import html.parser
import importlib
import re
import xml.etree.ElementTree
from collections.abc import Callable, Sequence

import pytest

from orchestrator import errors, reports
from orchestrator.reports import documents, drawing, figures

ReportOf = Callable[..., reports.Report]


def test_numbers_of_figures(report_of: ReportOf) -> None:
    made = {figure.name: figure for figure in figures.figures(report_of("strong_noisy_node"))}
    assert list(made) == ["speedup", "efficiency", "throughput", "steps", "utilisation"]
    assert figures.as_csv(made["efficiency"]).splitlines() == [
        "series,kind,x,y,low,high",
        "measured,points,1,1,1,1",
        "measured,points,2,0.9700331055,0.9510939395,0.9893494078",
        "measured,points,4,0.9139971973,0.8961520902,0.9321976547",
        "measured,points,8,0.8145179391,0.7967586187,0.8326731053",
        "80.0 %,guide,1,0.8,,",
        "80.0 %,guide,8,0.8,,",
    ]
    assert figures.as_csv(made["steps"]).splitlines()[:3] == [
        "series,kind,x,y,low,high",
        "data,bars,1,20,,",
        "data,bars,2,15,,",
    ]
    lines = {series.label: series for series in made["throughput"].series}
    # Solid as far as was measured, dashed up to twice that.
    assert (lines["USL"].kind, lines["USL"].x[-1]) == ("line", 8.0)
    beyond = lines["USL, extrapolated"]
    assert (beyond.kind, beyond.x[0], beyond.x[-1]) == ("dashed", 8.0, 16.0)


def test_shared_baseline_is_one_bar(report_of: ReportOf) -> None:
    text = "gpus,mode,throughput,utilisation\n1,-,100,90%\n2,dp,150,70%\n2,ddp,190,85%\n"
    report = reports.build_report("", reports.read_csv(text, "f.csv").measurements)
    utilisation = figures.figures(report)[-1]
    assert utilisation.x_labels == ["1", "2\nmode=ddp", "2\nmode=dp"]


@pytest.mark.parametrize(
    "form", ["svg", *(pytest.param(form, marks=pytest.mark.slow) for form in ("png", "pdf"))]
)
def test_drawings_are_reproducible(report_of: ReportOf, form: str) -> None:
    figure = figures.figures(report_of("strong_noisy_node"))[2]
    first, second = (drawing.draw([figure], form) for _ in range(2))
    assert first == second
    assert first.startswith({"svg": b"<?xml", "png": b"\x89PNG", "pdf": b"%PDF"}[form])


def draw_svg(stacked: Sequence[figures.Figure], form: str) -> bytes:
    """Draw only SVG, which the page contains, because drawing is slow."""
    return drawing.draw(stacked, form) if form == "svg" else b""


class Page(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(value or "")
            if name in ("href", "src", "xlink:href"):
                self.links.append(value or "")


def test_page_is_self_contained(report_of: ReportOf) -> None:
    report = report_of("strong_noisy_node")
    made = documents.contents(report, reports.Targets(), [], draw_svg)
    assert {f"{figure.name}.csv" for figure in figures.figures(report)} < set(made)
    page = Page()
    page.feed(made["report.html"].decode())
    assert not {"script", "link", "img", "iframe"} & page.tags
    assert len(page.ids) == len(set(page.ids)) > 0
    assert {link.removeprefix("#") for link in page.links} <= set(page.ids)
    assert "line 13 on n[3-4] is 30.4 % slower" in made["report.html"].decode()


def test_page_escapes_names() -> None:
    run = reports.Measurement(size=1, throughput=1.0, name="<script>")
    report = reports.build_report("<b>$x$</b>", [run])
    made = documents.contents(report, reports.Targets(), [], None)
    assert b"<b>" not in made["report.html"] and b"&lt;b&gt;" in made["report.html"]


def test_names_are_not_formulas() -> None:
    text = "gpus,throughput,path,utilisation\n1,100,$a_{b$,50%\n2,150,%d{x},60%\n"
    report = reports.build_report("$", reports.read_csv(text, "f.csv").measurements)
    speedup, *_, utilisation = figures.figures(report)
    for figure in (speedup, utilisation):
        assert b"path=$a_{b$" in drawing.draw([figure], "svg")


def test_files_contain_no_control_characters_or_formulas() -> None:
    text = "gpus,throughput,path,utilisation\n1,100,=1+1,50%\n2,150,-x,60%\n"
    (first, second) = reports.read_csv(text, "f.csv").measurements
    evil = "E\x1b[2J\x9b31m\u202e\udc9b\r\n<img src=x>"
    runs = [
        dataclasses.replace(first, attributes={"path": f"=1+1{evil}"}, name=f"@SUM(A1){evil}"),
        dataclasses.replace(second, attributes={"path": f"=1+1{evil}"}, name=f"-x{evil}"),
    ]
    report = reports.build_report(f"=T{evil}", runs)
    made = documents.contents(report, reports.Targets(), [], draw_svg)
    for name, content in made.items():
        if not name.endswith((".png", ".pdf")):
            acting = re.findall(
                r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e\ud800-\udfff]", content.decode()
            )
            assert acting == [], name
        if name.endswith(".svg"):
            xml.etree.ElementTree.fromstring(content)
        if name.endswith(".csv"):
            for row in csv.reader(content.decode().splitlines()):
                assert not [cell for cell in row if cell.startswith(("=", "+", "-", "@"))], name
    assert b"E\\x1b[2J" in made["report.html"] and b"<img" not in made["report.html"]


def test_without_matplotlib(report_of: ReportOf, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", refuse)
    with pytest.raises(errors.OrchestratorError) as caught:
        drawing.draw(figures.figures(report_of("strong_noisy_node")), "svg")
    assert str(caught.value) == ("Plots need matplotlib: run `pip install matplotlib`.")
    made = documents.contents(report_of("strong_noisy_node"), reports.Targets(), [], None)
    assert list(made) == ["report.md", "report.tex", "report.csv", "report.json", "report.html"]
