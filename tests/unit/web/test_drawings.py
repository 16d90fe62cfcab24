"""Figures as shapes: plots of a report, parallel coordinates, the timeline and graphs."""

from __future__ import annotations

import math

import pytest

from orchestrator.graphs import records as graph_records
from orchestrator.reports import figures
from orchestrator.web import plots
from orchestrator.web.pages import graphs


def figure(*series: figures.Series, **changes: object) -> figures.Figure:
    fields = {"name": "speedup", "title": "t", "x_label": "GPUs", "y_label": "y", "sizes": (1, 4)}
    return figures.Figure(series=series, **{**fields, **changes})  # type: ignore[arg-type]


def test_points_with_intervals_on_logarithmic_axes() -> None:
    measured = figures.Series(
        label="measured",
        kind="points",
        x=(1, 2, 4),
        y=(1.0, 2.0, 4.0),
        low=(1, 2, 2),
        high=(1, 2, 4),
    )
    ideal = figures.Series(label="ideal", kind="guide", x=(1, 4), y=(1.0, 4.0))
    plot = plots.draw(figure(measured, ideal, is_log=True))
    points = [shape.at for shape in plot.shapes if shape.kind == "point"]
    left, right = plots.LEFT, plots.WIDTH - plots.RIGHT
    bottom, top = plots.HEIGHT - plots.BOTTOM, plots.TOP
    middle = ((left + right) / 2, (bottom + top) / 2)
    assert points == [(left, bottom), pytest.approx(middle, abs=0.1), (right, top)]
    (*_, last) = [shape.at for shape in plot.shapes if shape.kind == "interval"]
    assert last == (right, pytest.approx(middle[1], abs=0.1), top)
    assert plot.x_ticks == [(left, "1"), (right, "4")]
    assert [text for _, text in plot.y_ticks] == ["1", "2"]
    assert plot.legend == [("measured", "k0 points"), ("ideal", "guide guide")]


def test_bars_are_stacked() -> None:
    series = [
        figures.Series(label=name, kind="bars", x=(0, 1), y=y, colour=number)
        for number, (name, y) in enumerate([("data", (1.0, 2.0)), ("compute", (3.0, 2.0))])
    ]
    plot = plots.draw(figure(*series, sizes=(), x_labels=("1", "2\nddp")))
    bars = [shape.at for shape in plot.shapes]
    assert [bar[3] > 0 for bar in bars] == [True] * 4
    # The upper bar ends where the lower one begins.
    assert bars[2][1] + bars[2][3] == pytest.approx(bars[0][1])
    assert [text for _, text in plot.x_ticks] == ["1", "2 ddp"]


@pytest.mark.parametrize("y", [(math.nan, 1.0), (1.0, 1.0), (0.0, 0.0)])
def test_strange_values(y: tuple[float, float]) -> None:
    plot = plots.draw(figure(figures.Series(label="a", kind="line", x=(1, 2), y=y)))
    assert "nan" not in plot.shapes[0].points


def test_nodes_stand_behind_what_they_wait_for() -> None:
    nodes = [
        graph_records.StoredNode(name="a", kind="job", after=(), source="a.toml", job_row=7),
        graph_records.StoredNode(
            name="b", kind="sweep", after=(("afterok", "a"),), source="b.toml", sweep_row=3
        ),
        graph_records.StoredNode(
            name="c", kind="job", after=(("afterok", "b"), ("afternotok", "a")), source="c.toml"
        ),
        graph_records.StoredNode(name="d", kind="job", after=(), source="d.toml"),
    ]
    boxes, edges, width, height = graphs.drawn(nodes, {node.name: {} for node in nodes})
    step = graphs.BOX_WIDTH + graphs.GAP_X
    assert [(box.x // step, box.url) for box in boxes] == [
        (0, "/jobs/7"),
        (1, "/sweeps/3"),
        (2, ""),
        (0, ""),
    ]
    assert boxes[3].y == boxes[0].y + graphs.BOX_HEIGHT + graphs.GAP_Y
    assert [edge.kind for edge in edges] == ["afterok", "afterok", "afternotok"]
    assert all(box.x + graphs.BOX_WIDTH <= width for box in boxes)
    assert all(box.y + graphs.BOX_HEIGHT <= height for box in boxes)
    assert graphs.drawn([], {})[:2] == ([], [])
