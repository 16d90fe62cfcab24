"""Sweeps: the `[sweep]` table of a spec becomes points, and points become job arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from orchestrator import config, errors, specs
from orchestrator.sweeps import combinations, points, resources, table
from orchestrator.sweeps.plans import jobs_to_wait_for, plan
from orchestrator.sweeps.points import points_of, with_code
from orchestrator.sweeps.records import (
    Point,
    PointGroup,
    Prerequisites,
    ResourceTotals,
    Shape,
    StoredPoint,
    StoredSweep,
    Submission,
    Sweep,
    Table,
)
from orchestrator.sweeps.resources import smallest_shapes, total
from orchestrator.toml import documents


def load(
    path: Path | None,
    settings: Sequence[specs.Setting] = (),
    flags: Mapping[str, object] | None = None,
    program: Sequence[str] = (),
    *,
    profile: config.Profile,
    environ: Mapping[str, str] | None = None,
    folder: Path | None = Path(),
    stored: documents.Document | None = None,
) -> Sweep:
    """Return the sweep of a spec's file and the command line; the parameters are specs.load's.

    `--set sweep.samples=20` changes a key of [sweep]. SpecError with all problems.
    """
    document, problems = specs.read(path, settings, flags, program, environ=environ, stored=stored)
    return expand(document, profile, problems, folder=folder)


def expand(
    document: documents.Document,
    profile: config.Profile,
    problems: Sequence[errors.Problem] = (),
    *,
    folder: Path | None = None,
) -> Sweep:
    """Return the sweep of a document; SpecError with the given problems and all others.

    Files are looked up from `folder`; None: they are not checked.
    """
    collected = table.Problems(document)
    collected.keep(problems)
    sweep_table = table.read(document, collected)
    if "array" in document.data:
        collected.add(("array",), "a sweep creates its own arrays: remove this table")
    collected.check()
    combinations.check(sweep_table, collected)
    collected.check()
    settings = combinations.combinations(sweep_table, collected)
    if not settings:
        collected.add(("sweep",), "has no points")
    built = points.Builder(document, sweep_table, profile, folder, collected).points(settings)
    if (most := sweep_table.max_gpu_hours) is not None:
        at, totals = ("sweep", "max_gpu_hours"), resources.total(built)
        if totals.gpu_hours > most:
            hours = f"{totals.gpu_hours:.4g} GPU-hours"
            collected.add(at, f"the sweep requests {hours}, which is more than this")
        if totals.points_without_time_limit:
            collected.add(
                at, "cannot be checked for points without a time limit: set job.time_limit"
            )
    collected.check()
    job = document.data.get("job")
    name = job.get("name") if isinstance(job, Mapping) else None
    return Sweep(
        # The name may be an axis.
        name=name if isinstance(name, str) else built[0].spec.name,
        table=sweep_table,
        document=document.data,
        points=tuple(built),
    )
