"""The variables that a job script sets for trackers (templates/environment/tracking.sh.j2)."""

from __future__ import annotations

from orchestrator import jobs

_SHARED = (
    *("ORCHESTRATOR_RUN_ID", "ORCHESTRATOR_RUN_NAME", "ORCHESTRATOR_RUN_GROUP"),
    "ORCHESTRATOR_TRACKING_DIR",
)
_OF_TRACKER = {
    "wandb": (
        *("WANDB_RUN_ID", "WANDB_RESUME", "WANDB_NAME", "WANDB_RUN_GROUP", "WANDB_DIR"),
        *("WANDB_MODE", "WANDB_PROJECT", "WANDB_ENTITY"),
    ),
    "mlflow": ("MLFLOW_EXPERIMENT_NAME", "MLFLOW_TRACKING_URI"),
    "trackio": ("TRACKIO_DIR",),
}


def names(tracking: jobs.Tracking) -> list[str]:
    """Return the names; those without a value are not set."""
    return [*_SHARED, *(name for each in tracking.trackers or () for name in _OF_TRACKER[each])]
