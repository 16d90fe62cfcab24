"""The caller's variables: those that a job is sent with, and those that are stored for one."""

from __future__ import annotations

from orchestrator import jobs
from orchestrator.controller.session import contexts
from orchestrator.slurm import variables

_NAMES_SHOWN = 3


def sent(context: contexts.Context, spec: jobs.JobSpec) -> dict[str, str]:
    """Return what the caller hands to sbatch, and with it to the job."""
    keep = {*spec.environment.variables, *spec.environment.inherit}
    return variables.for_submission(context.environ, inherit=keep)


def stored(
    context: contexts.Context, environment: jobs.Environment, *, reason: str
) -> dict[str, str]:
    """Return what is stored for a job that starts when this shell may be gone.

    What it leaves out is said once a process. reason: why it is stored, for people.
    """
    inherit = environment.inherit
    left_out = variables.not_stored(context.environ, inherit) if environment.export == "all" else []
    if left_out:
        plural = "" if len(left_out) == 1 else "s"
        names = ", ".join([*left_out[:_NAMES_SHOWN], *["..."][: len(left_out) - _NAMES_SHOWN]])
        context.reporter.info(
            f"Not passed on ({reason}): {len(left_out)} variable{plural} of this shell "
            f"({names}); pass one with --inherit NAME"
        )
    return variables.stored(context.environ, inherit)
