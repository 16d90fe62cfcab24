"""Sweeps: the `[sweep]` table of a spec becomes points, and points become submissions. Pure.

`load` reads and checks everything before anything is submitted; `plan` groups points, all of them
or those that are still missing, into job arrays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from orchestrator import config, errors, specs
from orchestrator.sweeps import combinations, order, plans, points, resources, table
from orchestrator.sweeps.records import (
    Limits,
    Plan,
    Point,
    PointGroup,
    Prerequisites,
    ResourceTotals,
    StoredSweep,
    Submission,
    Sweep,
    Table,
)
from orchestrator.toml import documents

__all__ = [
    "Limits",
    "Plan",
    "Point",
    "PointGroup",
    "Prerequisites",
    "ResourceTotals",
    "StoredSweep",
    "Submission",
    "Sweep",
    "Table",
    "expand",
    "jobs_to_wait_for",
    "load",
    "plan",
    "points_of",
    "resources_of",
    "smallest_shapes",
]

jobs_to_wait_for = order.after
plan = plans.plan
points_of = points.points_of
resources_of = resources.resources_of
smallest_shapes = resources.smallest


def load(
    path: Path,
    settings: Sequence[str] = (),
    flags: Mapping[str, object] | None = None,
    program: Sequence[str] = (),
    *,
    profile: config.Profile,
    environ: Mapping[str, str] | None = None,
    check_files: bool = True,
    cwd: Path | None = None,
) -> Sweep:
    """Return the sweep that a spec's file and the command line describe, as `specs.load` takes it.

    `--set sweep.samples=20` changes a key of the sweep. SpecError with every problem there is.
    """
    document, problems = specs.read(path, settings, flags, program, environ=environ)
    return expand(document, profile, problems, folder=(cwd or Path()) if check_files else None)


def expand(
    document: documents.Document,
    profile: config.Profile,
    problems: Sequence[errors.Problem] = (),
    *,
    folder: Path | None = None,
) -> Sweep:
    """Return the sweep of a document, filled from the profile.

    SpecError with the problems given and all that it has. Files are looked for from `folder`;
    none: not at all.
    """
    swept, found = table.read(document)
    found = [*problems, *found]
    if "array" in document.data:
        told = "a sweep makes its arrays itself: leave this table out"
        found.append(document.problem(("array",), told))
    if not found:
        found = [document.problem(at, told) for at, told in combinations.findings(swept)]
    _raise(found)
    each, wrong = combinations.made(swept)
    builder = points.Builder(document, swept, profile, folder)
    for at, told in wrong:
        builder.tell(at, told)
    made = builder.points(each)
    if not each:
        builder.tell(("sweep",), "has no points")
    totals = resources.total([resources.resources_of(point.spec, profile) for point in made])
    if swept.max_gpu_hours is not None:
        if totals.gpu_hours > swept.max_gpu_hours:
            told = f"the sweep asks for {totals.gpu_hours:.4g} GPU-hours, and this allows fewer"
            builder.tell(("sweep", "max_gpu_hours"), told)
        if totals.points_without_time_limit:
            told = "cannot be held against points without a time limit: set job.time_limit"
            builder.tell(("sweep", "max_gpu_hours"), told)
    _raise(builder.problems)
    job = document.data.get("job")
    name = job.get("name") if isinstance(job, Mapping) else None
    return Sweep(
        # The name itself may be an axis.
        name=name if isinstance(name, str) else made[0].spec.name,
        table=swept,
        document=document.data,
        shapes=builder.shapes(),
        points=tuple(made),
        totals=totals,
    )


def _raise(problems: Sequence[errors.Problem]) -> None:
    if problems:
        raise errors.SpecError(sorted(problems, key=lambda problem: problem.line or 0))
