"""Adding points that another process adds or cancels concurrently."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

from orchestrator import config, errors, sweeps
from orchestrator.controller.session import stores
from orchestrator.controller.sweeps import plan, resume
from orchestrator.toml import documents
from tests import builders

NOW = datetime.datetime(2026, 11, 21, 8, 0, tzinfo=datetime.UTC)
TEXT = """\
[job]
name = "grid"
[launch]
module = "trainers.train"
[sweep]
kind = "grid"
axes.args.seed = [1, 2]
"""


def expanded(text: str) -> sweeps.Sweep:
    document, problems = documents.parse(text, "grid.toml")
    return sweeps.expand(document, config.Profile(), problems)


def report_nothing(tasks: object) -> None:
    return


@pytest.mark.parametrize("by", ["another add", "a cancel"])
def test_add_points_after_another_process(tmp_path: Path, database_url: str, by: str) -> None:
    with stores.Store(database_url) as store:
        context = builders.make_context(tmp_path, store, now=NOW)
        with store.writing() as work:
            stored = work.sweeps.add(
                expanded(TEXT),
                profile=config.Profile().name,
                cluster="lab",
                scheduler="slurm",
                source="grid.toml",
                folder="/home/a",
                created_at=NOW,
            )
        extra = expanded(TEXT.replace("[1, 2]", "[1, 2, 3]"))
        new = extra.points[2:]
        # Both processes consider the same points new; nothing is submitted here.
        prepared = plan.Prepared(
            context=context, points=new, ready=(), totals=sweeps.total(extra.points)
        )
        if by == "a cancel":
            with store.writing() as work:
                work.sweeps.set_state(stored, "cancelled")
        else:
            resume.add_points(prepared, stored, report=report_nothing)
        with pytest.raises(errors.ConflictError, match="Nothing was submitted"):
            resume.add_points(prepared, stored, report=report_nothing)
        with store.reading() as work:
            assert len(work.sweeps.points(stored.row)) == (2 if by == "a cancel" else 3)
