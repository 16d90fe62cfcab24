"""Cancel, hold, release, requeue and resubmit jobs, and submit points of a sweep again.

A page names the jobs and asks; only its form starts the action. These addresses exist only with
--allow-actions.
"""

from __future__ import annotations

import dataclasses
import secrets
import sys
import urllib.parse
from collections.abc import Callable, Mapping, Sequence

import anyio.to_thread
from starlette import datastructures, exceptions, requests, responses

from orchestrator import errors, jobs, sweeps
from orchestrator.api import actions as api_actions
from orchestrator.controller.resubmission import resubmit
from orchestrator.controller.session import contexts, queries
from orchestrator.controller.sweeps import queries as sweep_queries
from orchestrator.controller.sweeps import resume
from orchestrator.diagnosis.pending import reasons as pending_reasons
from orchestrator.jobs import naming
from orchestrator.rows import action_reports, job_rows, submission_lines
from orchestrator.slurm import job_ids
from orchestrator.text import nouns
from orchestrator.web import running_actions, site
from orchestrator.web.access import forms

MAX_JOBS = 1000
#: Of a filter.
MAX_WORDS = 8
#: An answer that is ready within this time needs no page that waits.
_WAIT_SECONDS = 1.5
#: Of a page that waits, until it is loaded again.
_RELOAD_SECONDS = 2
_NEW_ENVIRONMENT = "The new jobs get the environment of the shell in which this server was started."


@dataclasses.dataclass(frozen=True, kw_only=True)
class Action:
    """What a button does with the selected jobs, and how the page names it."""

    verb: str
    consequence: str
    carry_out: Callable[[contexts.Context, Sequence[jobs.Job]], running_actions.Result]
    #: whether a page of a job offers it; Slurm decides
    suits: Callable[[jobs.Job], bool]


def _acting(
    name: api_actions.Action,
) -> Callable[[contexts.Context, Sequence[jobs.Job]], running_actions.Result]:
    def carry_out(
        context: contexts.Context, selected: Sequence[jobs.Job]
    ) -> running_actions.Result:
        report = api_actions.carry_out(context, name, selected)
        return running_actions.Result(report=report, rows=[job.row for job in selected])

    return carry_out


def _resubmit(context: contexts.Context, selected: Sequence[jobs.Job]) -> running_actions.Result:
    lines, problems, rows = [], [], []
    for result in resubmit.resubmit_each(context, selected, queue=None, argv=sys.argv):
        if isinstance(result, errors.OrchestratorError):
            problems.append(str(result))
        else:
            lines.append(submission_lines.of_job(result))
            rows += [job.row for job in result]
    return running_actions.Result(
        report=action_reports.Report(lines=lines, problems=problems), rows=rows
    )


ACTIONS = {
    "cancel": Action(
        verb="Cancel",
        consequence="Running jobs are stopped. Planned retries are withdrawn.",
        carry_out=_acting("cancel"),
        suits=lambda job: not job.is_over,
    ),
    "hold": Action(
        verb="Hold",
        consequence="Pending jobs do not start until they are released.",
        carry_out=_acting("hold"),
        suits=lambda job: job.state is jobs.JobState.PENDING and not pending_reasons.is_held(job),
    ),
    "release": Action(
        verb="Release",
        consequence="Held jobs may start.",
        carry_out=_acting("release"),
        suits=pending_reasons.is_held,
    ),
    "requeue": Action(
        verb="Requeue",
        consequence="Running jobs are stopped. The scripts start again, as the next attempts.",
        carry_out=_acting("requeue"),
        suits=lambda job: (
            job.job_id is not None and job.state not in pending_reasons.PENDING_STATES
        ),
    ),
    "requeue-hold": Action(
        verb="Requeue and hold",
        consequence="Running jobs are stopped. They start again when they are released.",
        carry_out=_acting("requeue-hold"),
        suits=lambda job: job.state is jobs.JobState.RUNNING,
    ),
    "resubmit": Action(
        verb="Resubmit",
        consequence=f"They become new jobs with the same scripts. {_NEW_ENVIRONMENT}",
        carry_out=_resubmit,
        suits=lambda job: job.ended and job.tracked_name is None,
    ),
}


def names() -> list[tuple[str, str]]:
    """Return name and verb of each action on selected jobs."""
    return [(name, action.verb) for name, action in ACTIONS.items()]


def names_for(job: jobs.Job) -> list[tuple[str, str]]:
    """Return name and verb of each action that suits the job."""
    return [(name, action.verb) for name, action in ACTIONS.items() if action.suits(job)]


def ask(request: requests.Request) -> responses.Response:
    """Name the jobs, and ask."""
    web = site.of(request)
    name, action = _action(request)
    selected = _selected(web.context, request.query_params)
    rows = naming.fold_tasks(job.row for job in selected)
    now = web.context.clock.now()
    return _question(
        request,
        url=f"/actions/{name}",
        content=f"{name} {rows}",
        fields=[("jobs", rows)],
        question=f"{action.verb} {nouns.count(len(selected), 'job')}?",
        verb=f"{action.verb} {nouns.count(len(selected), 'job')}",
        consequence=action.consequence,
        lines=[
            {"url": f"/jobs/{job.row}", **job_rows.job_line(job_rows.job_row(job, now))}
            for job in selected
        ],
        back=_back(selected),
    )


async def carry_out(request: requests.Request) -> responses.Response:
    """Start the action that a form confirms. Raises HTTPException if the form was not shown."""
    web = site.of(request)
    name, action = _action(request)
    fields = await forms.fields_of(request)
    rows = fields.get("jobs", "")
    _confirm(request, fields, f"{name} {rows}")
    selected = await anyio.to_thread.run_sync(_jobs_of, web.context, _rows_of(rows))
    title = f"{action.verb} {nouns.count(len(selected), 'job')}"
    return await _started(
        request,
        fields,
        lambda context: action.carry_out(context, selected),
        title=title,
        targets=naming.names_of(selected),
        back=_back(selected),
    )


def ask_rerun(request: requests.Request) -> responses.Response:
    """Name the points of a sweep that are submitted again, and ask."""
    web = site.of(request)
    query = request.query_params
    sweep = sweep_queries.find(web.context, f"@{request.path_params['row']}")
    named = {number for text in query.getlist("point") for number in _rows_of(text)}
    points = [
        point
        for point in sweep_queries.points(web.context, sweep)
        if (point.number in named if named else resume.is_due(point.job))
    ]
    if not points:
        raise errors.NotFoundError(f"No point of {sweep.name} has failed or is missing.")
    numbers = naming.fold_tasks(point.number for point in points)
    return _question(
        request,
        url=f"/sweeps/{sweep.row}/rerun",
        content=f"rerun {sweep.row} {numbers}",
        fields=[("points", numbers)],
        question=f"Submit {nouns.count(len(points), 'point')} of {sweep.name} again?",
        verb=f"Submit {nouns.count(len(points), 'point')} again",
        consequence=f"They become new jobs, which count from then on. {_NEW_ENVIRONMENT}",
        lines=[_point_line(point) for point in points],
        back=(f"/sweeps/{sweep.row}", sweep.name),
    )


def _point_line(point: sweeps.StoredPoint) -> dict[str, object]:
    job = point.job
    return {
        "url": f"/jobs/{job.row}" if job else "",
        "job_id": naming.name_of(job) if job else None,
        "name": f"point {point.number}, {point.name}",
        "state": job.state if job else None,
        "reason": job_rows.reason_of(job) if job else "not submitted",
    }


async def rerun(request: requests.Request) -> responses.Response:
    """Start what ask_rerun() asked. Raises HTTPException if the form was not shown."""
    web = site.of(request)
    fields = await forms.fields_of(request)
    row, numbers = request.path_params["row"], fields.get("points", "")
    _confirm(request, fields, f"rerun {row} {numbers}")
    sweep = await anyio.to_thread.run_sync(sweep_queries.find, web.context, f"@{row}")

    def work(context: contexts.Context) -> running_actions.Result:
        lines: list[str] = []
        rows: list[int] = []

        def report(tasks: Sequence[jobs.Job]) -> None:
            lines.append(submission_lines.of_job(tasks))
            rows.extend(job.row for job in tasks)

        named = [str(number) for number in _rows_of(numbers)]
        result = resume.rerun(context, sweep, named=named, argv=sys.argv, report=report)
        lines.append(submission_lines.of_sweep(result))
        return running_actions.Result(report=action_reports.Report(lines=lines), rows=rows)

    back = (f"/sweeps/{sweep.row}", sweep.name)
    title = f"Submit points of {sweep.name} again"
    return await _started(request, fields, work, title=title, targets=numbers, back=back)


def show_run(request: requests.Request) -> responses.Response:
    """Show the result of an action, or that it has not ended."""
    web = site.of(request)
    run = _runs(web).get(request.path_params["number"])
    if run is None:
        raise errors.NotFoundError(
            "The result of this action is not known any more. The history of a job shows it."
        )
    rows = run.result.rows if run.result else ()
    with web.context.store.reading() as work:
        by_row = work.jobs.by_row(rows[:MAX_JOBS])
    now = web.context.clock.now()
    lines = [
        {"url": f"/jobs/{job.row}", **job_rows.job_line(job_rows.job_row(job, now))}
        for job in by_row.values()
    ]
    response = site.page("run.html.j2", run=run, lines=lines)
    if run.result is None:
        response.headers["refresh"] = str(_RELOAD_SECONDS)
    return response


def _action(request: requests.Request) -> tuple[str, Action]:
    name = request.path_params["name"]
    if name not in ACTIONS:
        raise errors.NotFoundError(f"There is no action {name!r}.")
    return name, ACTIONS[name]


def _runs(web: site.Site) -> running_actions.RunningActions:
    assert web.running_actions is not None, "its routes exist only with it"
    return web.running_actions


def _question(request: requests.Request, *, content: str, **values: object) -> responses.Response:
    web = site.of(request)
    session = forms.session_of(request) or secrets.token_urlsafe(32)
    hidden = web.forms.hidden_fields(session, content)
    response = site.page("confirm.html.j2", hidden=hidden, **values)
    forms.with_session(request, response, session, is_secure=web.is_secure)
    return response


def _confirm(request: requests.Request, fields: Mapping[str, str], content: str) -> None:
    sent = forms.HiddenFields(fields.get("number", ""), fields.get("token", ""))
    site.of(request).forms.confirm(forms.session_of(request), sent, content)


async def _started(
    request: requests.Request,
    fields: Mapping[str, str],
    work: Callable[[contexts.Context], running_actions.Result],
    *,
    title: str,
    targets: str,
    back: tuple[str, str],
) -> responses.Response:
    """Start the action, and lead to the page with its result."""
    number = fields["number"]
    run = _runs(site.of(request)).start(number, work, title=title, targets=targets, back=back)
    if run is not None:
        with anyio.move_on_after(_WAIT_SECONDS):
            await run.ended.wait()
    return responses.RedirectResponse(f"/runs/{urllib.parse.quote(number)}", 303)


def _back(selected: Sequence[jobs.Job]) -> tuple[str, str]:
    if len(selected) == 1:
        return f"/jobs/{selected[0].row}", naming.name_of(selected[0])
    return "/", "all jobs"


def _selected(context: contexts.Context, query: datastructures.QueryParams) -> list[jobs.Job]:
    """Return the jobs `job=7`, and those of folded tasks, `tasks=7`, that are like the first."""
    selected = _jobs_of(context, _rows_in(query, "job"))
    first = _jobs_of(context, _rows_in(query, "tasks"))
    kinds = {job.fold_key for job in first}
    with context.store.reading() as work:
        tasks = work.jobs.of_submissions({job.token for job in first})
        like = [job.row for job in tasks if job.fold_key in kinds]
        # The list may be that of one node.
        words = query.get("words", "").split()[:MAX_WORDS]
        listed = jobs.JobQuery(rows=like, words=words, limit=None)
        # A query without rows would find all jobs.
        selected += reversed(work.jobs.find(listed)) if like else []
    selected = list({job.row: job for job in selected}.values())
    if not selected:
        raise exceptions.HTTPException(400, "Select jobs in the list first.")
    _check_number(len(selected))
    return selected


def _check_number(number: int) -> None:
    if number > MAX_JOBS:
        message = f"At most {MAX_JOBS} jobs can be selected; these are {number}."
        raise exceptions.HTTPException(400, message)


def _rows_of(text: str) -> list[int]:
    """Return the numbers of `7-12,15`."""
    try:
        rows = list(job_ids.expand_tasks(text))
    except ValueError:
        rows = []
    # SQLite's integers have 64 bits.
    if not rows or max(rows) >= 2**63:
        raise errors.NotFoundError(f"{text[:80]!r} names no jobs.")
    _check_number(len(rows))
    return rows


def _rows_in(query: datastructures.QueryParams, name: str) -> list[int]:
    # A foreign page can lead to an address that names the same jobs a thousand times.
    rows: set[int] = set()
    for text in query.getlist(name):
        rows.update(_rows_of(text))
        _check_number(len(rows))
    return sorted(rows)


def _jobs_of(context: contexts.Context, rows: Sequence[int]) -> list[jobs.Job]:
    with context.store.reading() as work:
        by_row = work.jobs.by_row(rows)
    if missing := [row for row in rows if row not in by_row]:
        raise errors.NotFoundError(f"There is no job @{missing[0]}.")
    return queries.with_staleness(context, [by_row[row] for row in rows])[0]
