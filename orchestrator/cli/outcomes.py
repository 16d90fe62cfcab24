"""What hold, release and requeue tell of each job, and with which exit code they end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import click

from orchestrator import errors
from orchestrator.controller.actions import confirmed
from orchestrator.controller.session import contexts
from orchestrator.jobs import naming


def _alike(outcomes: Sequence[confirmed.Outcome]) -> Iterable[list[confirmed.Outcome]]:
    """Give together the tasks of one array with which the same happened."""
    found: dict[tuple[object, ...], list[confirmed.Outcome]] = {}
    for one in outcomes:
        job = one.job
        alone = job.row if job.array_task_id is None else 0
        reason = "" if one.why else job.reason
        key = (job.token, alone, one.end, job.state, reason, _why(one, "TASKS"))
        found.setdefault(key, []).append(one)
    return found.values()


def _why(outcome: confirmed.Outcome, name: str) -> str:
    """Return the sentence with this name in place of the job's own."""
    return outcome.why.replace(naming.name_of(outcome.job), name)


def tell(outcomes: Sequence[confirmed.Outcome], *, already: str) -> None:
    """Print a line for each job that is as wished; raise an error that tells of the others.

    SlurmError where Slurm refused or does not show it, else ConflictError.
    """
    troubles: list[str] = []
    for alike in _alike(outcomes):
        outcome, job = alike[0], alike[0].job
        name = naming.names_of([one.job for one in alike])
        asked = contexts.scheduler_name([job])
        shown = f"{job.state}" if job.reason in (None, "None") else f"{job.state} ({job.reason})"
        match outcome.end:
            case confirmed.End.DONE:
                click.echo(f"{name} is {shown}")
            case confirmed.End.ALREADY:
                click.echo(f"{name} {already}: {shown}")
            case confirmed.End.IMPOSSIBLE | confirmed.End.TOO_LATE:
                # Of an array that was never submitted one row stands for all.
                troubles.append(_why(outcome, name) if job.job_id else outcome.why)
            case confirmed.End.REFUSED:
                troubles.append(
                    f"{asked[0].upper()}{asked[1:]} refused it for {name}: {_why(outcome, name)}"
                )
            case confirmed.End.UNSEEN:
                troubles.append(
                    f"asked, but {asked} still shows {name} {shown}; "
                    f"look again with `orchestrator status {name}`"
                )
    if troubles:
        ours = not any(
            outcome.end in (confirmed.End.REFUSED, confirmed.End.UNSEEN) for outcome in outcomes
        )
        raise (errors.ConflictError if ours else errors.SlurmError)("\n".join(troubles))
