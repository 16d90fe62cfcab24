"""Brings runs on an MLflow server up to date."""

from __future__ import annotations

from orchestrator import errors
from orchestrator.config import database_urls
from orchestrator.controller.session import contexts
from orchestrator.controller.trackers import places, programs, runs
from orchestrator.trackers import batches, records


def export(
    context: contexts.Context,
    run: records.Run,
    *,
    python: str,
    uri: str | None,
    timeout_seconds: float = programs.TIMEOUT_SECONDS,
) -> records.Exported:
    """Send what the server does not have."""
    uri = uri or context.environ.get("MLFLOW_TRACKING_URI") or run.tracking.mlflow_uri
    if not uri:
        raise errors.RequestError(
            "no server: give --uri, set MLFLOW_TRACKING_URI or tracking.mlflow_uri, such as "
            '"http://localhost:5000" or "sqlite:////path/mlflow.db"'
        )
    request = {
        "uri": uri,
        "experiment": run.tracking.project or run.group or run.job.name,
        "id": run.id,
        "name": run.name,
        "group": run.group,
        "created": run.created,
        "status": runs.status(run),
        "ended": runs.ended_milliseconds(run),
        "parameters": run.parameters,
        "series": batches.columns(run.series),
    }
    # By default MLflow waits four minutes for a server that does not answer. The export can be
    # repeated.
    environ = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "3", **context.environ}
    with places.opened(context.configuration.state_dir / "exports" / run.id):
        answer = programs.run(python, "mlflow", request, environ, timeout_seconds)
    place = database_urls.without_password(uri) if "://" in uri else uri
    if uri.startswith(("http://", "https://")):
        place = f"{place.rstrip('/')}/#/experiments/{answer['experiment']}/runs/{answer['run']}"
    return records.Exported(run=run, added=int(answer["added"]), place=place)
