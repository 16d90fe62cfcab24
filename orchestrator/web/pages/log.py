"""The log of a job: any part of it, and a search in it."""

from __future__ import annotations

from starlette import requests, responses

from orchestrator import errors, jobs
from orchestrator.clocks import deadlines
from orchestrator.jobs import naming
from orchestrator.logs import files, searching, windows
from orchestrator.text import expressions
from orchestrator.web import live, site

#: A search ends after this time, or so many lines.
_SEARCH_SECONDS = 5.0
_MAX_HITS = 500
_BLOCK_BYTES = 256 * 1024


def show(request: requests.Request) -> responses.Response:
    web = site.of(request)
    query = request.query_params
    job = live.current_job(web.context, request.path_params["row"])
    is_stderr = query.get("stderr") == "1" and job.stderr_path is not None
    path = _path(job, is_stderr=is_stderr)
    values: dict[str, object] = {
        "job": job,
        "name": naming.name_of(job),
        "path": path,
        "is_stderr": is_stderr,
        "find": query.get("find", ""),
        "line": _number(query.get("line")),
        "hits": None,
        "problem": "",
        "window": None,
    }
    try:
        if query.get("find"):
            values |= _search(path, query["find"])
        elif (line := _number(query.get("line"))) is not None:
            values["window"] = windows.around(path, line, web.lines)
        elif (offset := _number(query.get("at"))) is not None:
            values["window"] = windows.at(path, offset, web.lines)
        elif (offset := _number(query.get("before"))) is not None:
            values["window"] = windows.before(path, offset, web.lines)
        else:
            values["window"] = windows.newest(path, web.lines)
    except errors.OrchestratorError as error:
        values["problem"] = f"{error}."
    return site.page("log.html.j2", **values)


def download(request: requests.Request) -> responses.Response:
    """Return the whole log, byte for byte, as a text that browsers only show or save."""
    web = site.of(request)
    job = live.current_job(web.context, request.path_params["row"])
    path = _path(job, is_stderr=request.query_params.get("stderr") == "1")
    with files.existing(path):
        pass
    headers = {"content-disposition": f'attachment; filename="{job.row}.log"'}
    return responses.FileResponse(path, headers=headers, media_type="text/plain")


def _path(job: jobs.Job, *, is_stderr: bool) -> str:
    path = job.stderr_path if is_stderr else job.stdout_path
    if path is None:
        raise errors.NotFoundError(f"No log yet: {naming.name_of(job)} is {job.state}.")
    return path


def _number(text: str | None) -> int | None:
    is_number = text is not None and text.isascii() and text.isdecimal() and len(text) < 16
    return int(text) if is_number and text is not None else None


def _search(path: str, text: str) -> dict[str, object]:
    try:
        expression = searching.compile_expression(text, ignore_case=text.islower())
    except expressions.ExpressionError as error:
        return {"problem": f"{text!r} is not a regular expression: {error}."}
    deadline = deadlines.NEVER.within(_SEARCH_SECONDS)
    hits: list[tuple[int, str]] = []
    for hit in searching.search(path, expression, deadline=deadline):
        if len(hits) == _MAX_HITS:
            return {"hits": hits, "problem": f"Only the first {_MAX_HITS} lines are shown."}
        hits.append((hit.number, windows.shown(hit.text)))
    late = f"The search ended after {_SEARCH_SECONDS:g} s; the log is longer."
    return {"hits": hits, "problem": late if deadline.is_over else ""}
