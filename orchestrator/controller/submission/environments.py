"""Variables of the submitting shell: those that sbatch gets, and those that are stored."""

from __future__ import annotations

from orchestrator import jobs
from orchestrator.controller.session import contexts
from orchestrator.slurm import variables

_NAMES_SHOWN = 3


def of_sbatch(context: contexts.Context, spec: jobs.JobSpec) -> dict[str, str]:
    """Return the environment of sbatch, which the job inherits."""
    keep = {*spec.environment.variables, *spec.environment.inherit}
    return variables.for_submission(context.environ, inherit=keep)


def stored(
    context: contexts.Context, environment: jobs.Environment, *, reason: str
) -> dict[str, str]:
    """Return the variables to store for a job that starts when this shell may be gone.

    Reports those that are left out. reason: why they are stored, for the message.
    """
    left_out: list[str] = []
    if environment.export == "all":
        left_out = variables.not_stored(context.environ, environment.inherit)
    if left_out:
        plural = "" if len(left_out) == 1 else "s"
        names = ", ".join([*left_out[:_NAMES_SHOWN], *["..."][: len(left_out) - _NAMES_SHOWN]])
        context.reporter.info(
            f"Not passed on ({reason}): {len(left_out)} variable{plural} of this shell "
            f"({names}); pass one with --inherit NAME"
        )
    return variables.stored(context.environ, environment.inherit)
