"""orchestrator doctor."""

from __future__ import annotations

import click

from orchestrator import config, errors
from orchestrator.cli import output, session, settings, verbs
from orchestrator.controller.setup import doctor

#: A probe that waits longer tells more about the queue than about the node.
PROBE_TIMEOUT_SECONDS = 120.0


@click.command(short_help="Check what orchestrator needs on this machine.")
@click.option("--job", "with_job", is_flag=True, help="Also look at a compute node, by a job.")
@click.option("--partition", metavar="NAME", help="Of that job.")
@click.option("--gpus-per-node", type=click.IntRange(min=1), metavar="N", help="Of that job.")
@click.option(
    "--timeout",
    type=verbs.Seconds(min=1),
    default=PROBE_TIMEOUT_SECONDS,
    show_default=True,
    metavar="SECONDS",
    help="That job is cancelled after it.",
)
@output.format_option
@click.pass_context
def command(
    ctx: click.Context,
    with_job: bool,
    partition: str | None,
    gpus_per_node: int | None,
    timeout: float,
    format_: str | None,
    as_json: bool,
) -> None:
    """Check what orchestrator needs on this machine; a cure for each thing that is wrong.

    With --job a job of a minute at the most shows whether the compute nodes see runs_dir, what
    their clocks say, and which container runtime, GPU driver and torch they have.
    Exit code 1 when something is bad; warnings are no failure.

    \b
    Examples:
      orchestrator doctor
      orchestrator doctor --job --gpus-per-node 1
    """
    refused: list[doctor.Check] = []
    try:
        configuration = settings.configuration_of(ctx)
    except config.ProjectRefusedError as exc:
        refused = [doctor.project_refused(exc)]
        configuration = settings.configuration_of(ctx, with_project=False)
    checks = [*doctor.examine(configuration, session.client()), *refused]
    if with_job:
        checks += _probe(ctx, partition, gpus_per_node, timeout)
    rows = [
        {"check": one.name, "outcome": one.outcome, "found": one.found, "cure": one.cure}
        for one in checks
    ]
    chosen = output.chosen(format_, as_json)
    output.items("checks", rows, ["check", "outcome", "found", "cure"], chosen)
    bad = sum(one.outcome == doctor.BAD for one in checks)
    if bad:
        raise errors.OrchestratorError(f"{bad} of {len(checks)} checks are bad")


def _probe(
    ctx: click.Context, partition: str | None, gpus_per_node: int | None, timeout_seconds: float
) -> list[doctor.Check]:
    from orchestrator.controller.setup import probe

    context = session.open_context(ctx)
    asked = probe.request(context.configuration, partition=partition, gpus_per_node=gpus_per_node)
    try:
        return list(probe.probe(context, asked, timeout_seconds=timeout_seconds))
    except errors.SlurmError as exc:
        cure = "mend what Slurm says, or try another --partition"
        return [doctor.Check(name="compute node", outcome=doctor.BAD, found=str(exc), cure=cure)]
