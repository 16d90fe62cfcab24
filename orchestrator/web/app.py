"""The pages and their addresses."""

from __future__ import annotations

from starlette import applications, exceptions, requests, responses, routing

from orchestrator import errors
from orchestrator.web import monitoring, rendering, site, streams
from orchestrator.web.pages import (
    actions,
    baselines,
    compare,
    controller,
    curve_data,
    graphs,
    job,
    jobs,
    log,
    nodes,
    schedules,
    studies,
    sweeps,
)

#: An address of a file contains the version, so that a browser never needs to ask for it again.
_FOREVER = "private, max-age=31536000, immutable"


def make(web: site.Site) -> applications.Starlette:
    """Return the application that serves the pages of a site."""
    routes = [
        routing.Route("/", jobs.show),
        routing.Route("/events", streams.of_subject),
        routing.Route("/jobs/{row:int}", job.show),
        routing.Route("/jobs/{row:int}/events", streams.of_job),
        routing.Route("/jobs/{row:int}/log", log.show),
        routing.Route("/jobs/{row:int}/log.txt", log.download),
        routing.Route("/compare", compare.show),
        routing.Route("/sweeps", sweeps.show_all),
        routing.Route("/sweeps/{row:int}", sweeps.show),
        routing.Route("/sweeps/{row:int}/report", studies.show),
        routing.Route("/baselines", baselines.show_all),
        routing.Route("/baselines/{name}", baselines.show),
        routing.Route("/graphs", graphs.show_all),
        routing.Route("/graphs/{row:int}", graphs.show),
        routing.Route("/schedules", schedules.show),
        routing.Route("/schedules/{row:int}", schedules.show_one),
        routing.Route("/nodes", nodes.show),
        routing.Route("/controller", controller.show),
        routing.Route(monitoring.ADDRESS, monitoring.show),
        routing.Route("/curves.json", curve_data.as_json),
        routing.Route("/curves", curve_data.as_table),
        routing.Route("/static/{version}/{name}", _static),
    ]
    if web.running_actions is not None:
        routes += [
            routing.Route("/actions/{name}", actions.ask),
            routing.Route("/actions/{name}", actions.carry_out, methods=["POST"]),
            routing.Route("/sweeps/{row:int}/rerun", actions.ask_rerun),
            routing.Route("/sweeps/{row:int}/rerun", actions.rerun, methods=["POST"]),
            routing.Route("/runs/{number}", actions.show_run),
        ]
    application = applications.Starlette(
        routes=routes,
        exception_handlers={
            exceptions.HTTPException: _http_error,
            errors.NotFoundError: _not_found,
            errors.OrchestratorError: _failed,
            Exception: _unexpected,
        },
    )
    # Its redirection would name the host without the path of a proxy.
    application.router.redirect_slashes = False
    application.state.site = web
    return application


def _static(request: requests.Request) -> responses.Response:
    file = rendering.static_files().get(request.path_params["name"])
    if file is None or request.path_params["version"] != rendering.version():
        raise exceptions.HTTPException(404, "This file is of another version: reload the page.")
    headers = {"cache-control": _FOREVER}
    return responses.Response(file.content, media_type=file.media_type, headers=headers)


def _error_page(status: int, title: str, message: str) -> responses.Response:
    text = rendering.render("error.html.j2", title=title, message=message)
    return responses.HTMLResponse(text, status)


def _http_error(request: requests.Request, error: Exception) -> responses.Response:
    assert isinstance(error, exceptions.HTTPException)
    return _error_page(error.status_code, "This page cannot be shown", error.detail)


def _not_found(request: requests.Request, error: Exception) -> responses.Response:
    return _error_page(404, "Not found", str(error))


def _failed(request: requests.Request, error: Exception) -> responses.Response:
    return _error_page(503, "This page cannot be shown now", str(error))


def _unexpected(request: requests.Request, error: Exception) -> responses.Response:
    web = site.of(request)
    try:
        # A damaged row shows as any error.
        with web.context.store.explained():
            raise error
    except errors.OrchestratorError as damage:
        return _failed(request, damage)
    except Exception:
        return _error_page(500, "This page cannot be shown", web.report_unexpected(error))
