"""Sweeps: the `[sweep]` table of a spec becomes points, and points become job arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from orchestrator import config, errors, specs
from orchestrator.sweeps import combinations, points, resources, table
from orchestrator.sweeps.plans import jobs_to_wait_for, plan
from orchestrator.sweeps.points import points_of
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
from orchestrator.sweeps.resources import resources_of, smallest_shapes
from orchestrator.toml import documents


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
    """Return the sweep of a spec's file and the command line; the parameters are specs.load's.

    `--set sweep.samples=20` changes a key of [sweep]. SpecError with all problems.
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
    """Return the sweep of a document; SpecError with the given problems and all others.

    Files are looked up from `folder`; None: they are not checked.
    """
    sweep_table, table_problems = table.read(document)
    found = [*problems, *table_problems]
    if "array" in document.data:
        message = "a sweep creates its own arrays: remove this table"
        found.append(document.problem(("array",), message))
    if not found:
        found = [document.problem(*finding) for finding in combinations.findings(sweep_table)]
    _raise(found)
    settings, findings = combinations.combinations(sweep_table)
    builder = points.Builder(document, sweep_table, profile, folder)
    for finding in findings:
        builder.report(*finding)
    built = builder.points(settings)
    if not settings:
        builder.report(("sweep",), "has no points")
    totals = resources.total((point.spec for point in built), profile)
    most = sweep_table.max_gpu_hours
    if most is not None and totals.gpu_hours > most:
        message = f"the sweep requests {totals.gpu_hours:.4g} GPU-hours, which is more than this"
        builder.report(("sweep", "max_gpu_hours"), message)
    if most is not None and totals.points_without_time_limit:
        message = "cannot be checked for points without a time limit: set job.time_limit"
        builder.report(("sweep", "max_gpu_hours"), message)
    _raise(builder.problems)
    job = document.data.get("job")
    name = job.get("name") if isinstance(job, Mapping) else None
    return Sweep(
        # The name may be an axis.
        name=name if isinstance(name, str) else built[0].spec.name,
        table=sweep_table,
        document=document.data,
        shapes=builder.shapes(),
        points=tuple(built),
        totals=totals,
    )


def _raise(problems: Sequence[errors.Problem]) -> None:
    if problems:
        raise errors.SpecError(sorted(problems, key=lambda problem: problem.line or 0))
