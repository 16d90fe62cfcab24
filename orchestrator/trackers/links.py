"""The pages of a run."""

from __future__ import annotations

import urllib.parse
from collections.abc import Mapping

from orchestrator import jobs
from orchestrator.trackers import checks


def of_run(
    tracking: jobs.Tracking, *, run_id: str, name: str, token: str, mlflow: tuple[str, str] | None
) -> Mapping[str, str]:
    """Return addresses by name.

    mlflow: IDs of experiment and run on the server, if they are known.
    """
    templates: dict[str, str] = {}
    if "wandb" in (tracking.trackers or ()) and tracking.project and tracking.entity:
        templates["W&B"] = "https://wandb.ai/{entity}/{project}/runs/{run_id}"
    templates |= tracking.links
    values = {
        "run_id": run_id,
        "project": tracking.project or "",
        "entity": tracking.entity or "",
        "name": name,
        "token": token,
    }
    quoted = {key: urllib.parse.quote(value, safe="") for key, value in values.items()}
    # A browser would run javascript:, so stored templates are checked again.
    found = {
        label: template.format(**quoted)
        for label, template in templates.items()
        if not checks.link_error(template)
    }
    server = tracking.mlflow_uri or ""
    if mlflow is not None and server.startswith(("https://", "http://")):
        experiment, run = (urllib.parse.quote(part, safe="") for part in mlflow)
        found["MLflow"] = f"{server.rstrip('/')}/#/experiments/{experiment}/runs/{run}"
    return found
