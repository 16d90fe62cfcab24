"""Two jobs with all that is compared of them; code and environment of many."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence

from orchestrator import environments, jobs, metrics, reproduction, specs
from orchestrator.controller.code import store as stores
from orchestrator.controller.environments import attempts
from orchestrator.controller.metrics import ingest, queries
from orchestrator.controller.session import contexts
from orchestrator.jobs import naming
from orchestrator.metrics import summaries
from orchestrator.specs import arguments

#: A longer diff of the code is cut.
_DIFF_LIMIT_BYTES = 1024 * 1024


@dataclasses.dataclass(frozen=True, kw_only=True)
class Compared:
    differences: Sequence[reproduction.Difference]
    #: sentences on what could not be compared
    unknown: Sequence[str]
    #: where the newest attempts ran; "": unknown
    hosts: tuple[str, str]


def compare(context: contexts.Context, first: jobs.Job, second: jobs.Job) -> Compared:
    """Compare two jobs, after reading what is new in their files."""
    ingest.ingest_for_command(context, [first, second])
    (one, host), (other, other_host) = (_run(context, job) for job in (first, second))
    diff, missing = _code_diff(context, one, other)
    return Compared(
        differences=reproduction.differences(one, other, diff),
        unknown=[*reproduction.unknown(one, other), *missing],
        hosts=(host, other_host),
    )


def _run(context: contexts.Context, job: jobs.Job) -> tuple[reproduction.Run, str]:
    """Return what is compared of a job, and its hosts."""
    with context.store.reading() as work:
        submission = work.jobs.submission_of(job.row)
    known = [each for each in attempts.of_job(context, job) if each.attempt == job.attempt]
    placement = known[0].placement if known else None
    seconds = None
    if job.started_at is not None and job.ended_at is not None:
        seconds = max(0.0, (job.ended_at - job.started_at).total_seconds())
    run = reproduction.Run(
        name=naming.name_of(job),
        spec=arguments.of_task(specs.from_json(submission.spec), job.array_task_id),
        provenance=json.loads(submission.provenance),
        script=submission.script,
        environment=known[0].environment if known else None,
        state=job.state,
        exit="" if job.exit_code is None else f"{job.exit_code}:{job.exit_signal or 0}",
        elapsed_seconds=seconds,
        metrics=_metrics(context, job),
    )
    return run, job.node_list or (placement.nodes or placement.host if placement else "")


def _metrics(context: contexts.Context, job: jobs.Job) -> dict[tuple[str, str], float]:
    found: dict[tuple[str, str], summaries.Summary] = {}
    query = metrics.MetricQuery(job_rows=(job.row,), prefer_jsonl=True)
    for page in queries.pages(context, query):
        for row in page:
            summary = found.setdefault((row.name, row.unit), summaries.Summary(name=row.name))
            summary.add(row.value, row.step, row.epoch)
    values = {key: summary.of(summaries.usual(key[0])) for key, summary in found.items()}
    return {key: value for key, value in values.items() if value is not None}


def _code_diff(
    context: contexts.Context, first: reproduction.Run, second: reproduction.Run
) -> tuple[str | None, list[str]]:
    """Return the diff of two snapshots, and why there is none or only a part."""
    trees = first.code.tree, second.code.tree
    if trees[0] is None or trees[1] is None or trees[0] == trees[1]:
        return None, []
    store = stores.of(context)
    try:
        gone = [run for run in (first, second) if not store.has(str(run.code.tree))]
        if gone:
            names = " and ".join(run.name for run in gone)
            note = f"The snapshot of {names} is no longer stored: there is no diff of the code."
            return None, [note]
        diff = store.difference(trees[0], trees[1], limit_bytes=_DIFF_LIMIT_BYTES)
    except stores.SnapshotError as error:
        return None, [f"There is no diff of the code: {str(error).removesuffix('.')}."]
    return diff, []


def notes(context: contexts.Context, selected: Sequence[jobs.Job]) -> list[str]:
    """Return sentences for people if jobs that are compared differ in code or environment."""
    sentences = reproduction.notes(identities(context, selected))
    return [f"{text[:1].upper()}{text[1:]}." for text in sentences]


def identities(
    context: contexts.Context, selected: Sequence[jobs.Job]
) -> list[reproduction.Identity]:
    """Return the code and the environment of each job."""
    codes: dict[str, str] = {}
    with context.store.reading() as work:
        for token in dict.fromkeys(job.token for job in selected):
            submission = work.jobs.submission(token)
            if submission is not None:
                code = specs.from_json(submission.spec).code
                provenance = json.loads(submission.provenance)
                codes[token] = reproduction.CodeVersion.of(code, provenance).identity
        hashes = work.environments.of_newest_attempts([job.row for job in selected])
        documents = work.environments.documents(set(hashes.values()))
    digests = {sha256: _comparable(document) for sha256, document in documents.items()}
    return [
        reproduction.Identity(
            job=naming.name_of(job),
            code=codes.get(job.token, ""),
            environment=digests.get(hashes.get(job.row, ""), ""),
        )
        for job in selected
    ]


def _comparable(document: str) -> str:
    """Return a hash of an environment that jobs with other resources can share."""
    environment = environments.from_json(environments.Environment, document)
    return environments.sha256(environments.to_json(environments.comparable(environment)))
