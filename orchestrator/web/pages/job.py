"""One job: what it does, how it went, and why."""

from __future__ import annotations

import collections
import dataclasses
import json
from collections.abc import Iterator, Mapping
from typing import Any

from starlette import requests, responses

from orchestrator import errors, jobs, specs
from orchestrator.controller.diagnosis import explanations
from orchestrator.controller.environments import attempts
from orchestrator.controller.prune import marks
from orchestrator.controller.session import queries
from orchestrator.controller.trackers import links
from orchestrator.controller.usage import job_efficiency
from orchestrator.diagnosis.pending import jobs as pending_jobs
from orchestrator.jobs import naming
from orchestrator.logs import windows
from orchestrator.rows import (
    efficiency_rows,
    environment_rows,
    explanation_rows,
    job_facts,
    job_rows,
)
from orchestrator.specs import writing
from orchestrator.web import live, site, streams
from orchestrator.web.pages import actions, curve_data, timeline

#: Tasks of an array that are listed.
_MAX_TASKS = 200
#: The page shows these beside its title.
_IN_HEADER = ("Job", "Name", "State", "Alert", "Cause")


def show(request: requests.Request) -> responses.Response:
    web = site.of(request)
    web.live.want_refresh()
    row = request.path_params["row"]
    job = live.current_job(web.context, row)
    if "fragment" in request.query_params:
        return site.page("job_live.html.j2", **_live_content(web, job))
    details = queries.details(web.context, job)
    provenance = json.loads(details.submission.provenance)
    content = {
        **_live_content(web, job, details, provenance),
        **_log_content(web, job),
        "settings": list(settings_of(web, job.token, details.submission.spec).items()),
        "script": details.submission.script,
        "diff": provenance.get("git_diff") or "",
    }
    return site.page("job.html.j2", **content)


def _live_content(
    web: site.Site,
    job: jobs.Job,
    details: queries.Details | None = None,
    provenance: Mapping[str, Any] | None = None,
) -> dict[str, object]:
    """Return what changes while the job lives."""
    context, now = web.context, web.context.clock.now()
    details = details or queries.details(context, job)
    provenance = provenance or json.loads(details.submission.provenance)
    used, gpus = job_efficiency.of(context, details, may_ask=False)
    row = job_rows.job_row(job, now)
    row["arguments"] = queries.arguments(details)
    lanes = timeline.lanes(context, job, now)
    row["next_start_at"] = next((lane.due_at for lane in reversed(lanes) if lane.due_at), None)
    facts = job_facts.facts(job, row, provenance, marks.note(context, job))
    environment, environment_facts = _environment(web, job, provenance)
    return {
        "messages": web.live.problems,
        "job": job,
        "name": naming.name_of(job),
        "actions": actions.names_for(job) if web.running_actions else [],
        "line": job_rows.job_line(row),
        "facts": [(name, value) for name, value in facts if name not in _IN_HEADER],
        "run_pages": links.of_job(context, details),
        "explained": _explanation(web, job),
        "timeline": timeline.drawn(lanes, now),
        "lanes": lanes,
        "used": used,
        "uses": [] if used is None else list(efficiency_rows.uses(used, gpus)),
        "events": list(reversed(details.events)),
        "environment": environment,
        "environment_facts": environment_facts,
        "metrics": curve_data.summaries(web, job),
        "tasks": _tasks(web, job),
    }


def _explanation(web: site.Site, job: jobs.Job) -> dict[str, object] | None:
    """Return why a job failed or is pending; logs are read once for each version of the job."""
    is_pending = pending_jobs.is_pending(job)
    if not is_pending and not explanations.is_failed(job):
        return None

    def explained() -> explanation_rows.Explained:
        rules = explanations.rules_with(())
        return explanation_rows.explained(web.context, [job], rules, may_ask=False)[0]

    # What a pending job waits for may have a date.
    known = explained() if is_pending else web.explanations.of((job.row, job.version), explained)
    row = explanation_rows.row(known)
    details = row["details"]
    assert isinstance(details, dict)
    shown = {
        name.replace("_", " ").capitalize(): value
        for name, value in details.items()
        if name not in explanation_rows.HIDDEN_DETAILS
    }
    return {**row, "is_pending": is_pending, "shown_details": shown}


def _environment(
    web: site.Site, job: jobs.Job, provenance: Mapping[str, Any]
) -> tuple[attempts.AttemptEnvironment | None, list[tuple[str, object]]]:
    known = attempts.of_job(web.context, job)
    if not known:
        return None, []
    facts = environment_rows.fields(job, known[-1], provenance.get("container"))
    return known[-1], [(name, value) for name, value in facts if value and name != "Job"]


def settings_of(web: site.Site, token: str, spec: str) -> Mapping[str, object]:
    """Return the keys of a submission's spec that do not have their defaults."""
    settings: Mapping[str, object] = web.computed.of(
        ("settings", token), lambda: dict(_settings(spec))
    )
    return settings


def _settings(spec: str) -> Iterator[tuple[str, object]]:
    document = writing.of_spec(specs.from_json(spec), "the database")
    for table, keys in document.data.items():
        if isinstance(keys, Mapping):
            yield from ((f"{table}.{key}", value) for key, value in keys.items())
        else:
            yield table, keys


def _tasks(web: site.Site, job: jobs.Job) -> dict[str, object] | None:
    """Return the tasks of the job's array, and their number in each state."""
    if job.array_task_id is None:
        return None
    with web.context.store.reading() as work:
        tasks = work.jobs.tasks(job.token)
    return {
        "counts": collections.Counter(task.state for task in tasks).most_common(),
        "tasks": tasks[:_MAX_TASKS],
        "hidden": max(0, len(tasks) - _MAX_TASKS),
    }


def _log_content(web: site.Site, job: jobs.Job) -> dict[str, object]:
    """Return the end of the log, or why there is none, and from where the page follows."""
    with web.context.store.reading() as work:
        mark = work.changes.of_jobs([job.row])[job.row]
    position = streams.Position(version=mark.version, event=mark.event, metric=mark.metric)
    if job.stdout_path is None:
        problem = f"No log yet: {naming.name_of(job)} is {job.state}."
        return {"log": None, "log_problem": problem, "position": position}
    try:
        window = windows.newest(job.stdout_path, web.lines)
    except errors.OrchestratorError as error:
        pruned = marks.note(web.context, job)
        problem = f"No log: {pruned}." if pruned else f"{error}."
        return {"log": None, "log_problem": problem, "position": position}
    position = dataclasses.replace(position, inode=window.inode, offset_bytes=window.end_bytes)
    return {"log": window, "log_problem": "", "position": position}
