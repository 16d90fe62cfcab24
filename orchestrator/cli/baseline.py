"""orchestrator baseline: set, show, compare."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import click

from orchestrator.cli import figures, output, session
from orchestrator.controller.reports import baselines, studies
from orchestrator.toml import values

BASELINE_COLUMNS = ("name", "created_at", "runs", "source")
RUN_COLUMNS = ("name", "size", "throughput", "epoch_seconds", "accuracy", "node_list", "attributes")


@click.group(name="baseline", short_help="Keep numbers under a name, and hold later ones to them.")
def command() -> None:
    """Keep what jobs showed under a name, and hold later ones to it."""


@command.command("set", short_help="Keep what jobs, a sweep or a file showed.")
@click.argument("name")
@figures.sources
@click.pass_context
def set_(
    ctx: click.Context,
    name: str,
    references: tuple[str, ...],
    sweep: str | None,
    file: Path | None,
    refresh_: bool | None,
) -> None:
    """Keep what jobs, a sweep or a file showed as the baseline NAME.

    The numbers themselves are kept, and outlive the jobs. A later one of the same name takes its
    place; `baseline show --all` lists all there were.

    \b
    Examples:
      orchestrator baseline set last-week --sweep digits-scaling
      orchestrator baseline set one-node 123 124 125
      orchestrator baseline set published --from figures.csv
    """
    if told := values.form_error("name", name):
        raise click.UsageError(f"NAME: {told}")
    study = figures.study(ctx, references, sweep, file, refresh_)
    for sentence in study.left_out:
        output.say(sentence)
    runs = len(study.measurements)
    context = session.open_context(ctx)
    with context.store.writing(durable=True) as work:
        text = baselines.to_json(study.measurement_set)
        work.baselines.add(name, study.source, runs, text, context.clock.now())
    click.echo(f"Baseline {name}: {runs} run{'' if runs == 1 else 's'} of {study.source}")


@command.command("show", short_help="List the baselines, or the numbers of one.")
@click.argument("name", required=False)
@click.option(
    "--all", "everything", is_flag=True, help="Those too that a later one took over from."
)
@output.format_option
@click.pass_context
def show(
    ctx: click.Context, name: str | None, everything: bool, format_: str | None, as_json: bool
) -> None:
    """List the baselines, newest first, or the numbers of the newest one called NAME.

    \b
    Examples:
      orchestrator baseline show
      orchestrator baseline show last-week --format csv
    """
    context = session.open_context(ctx)
    form = output.chosen(format_, as_json)
    if name is not None and not everything:
        kept = baselines.find(context, name)
        rows = [dataclasses.asdict(one) for one in kept.measurements]
        output.items("baseline_runs", rows, RUN_COLUMNS, form)
        return
    with context.store.reading() as work:
        found = work.baselines.newest(name=name)
    if name is not None and not found:
        raise baselines.not_found(name)
    newest = {one.name: one for one in reversed(found)}
    shown = [one for one in found if everything or newest[one.name] is one]
    fields = ("name", "created_at", "runs", "source", "row")
    rows = [{field: getattr(one, field) for field in fields} for one in shown]
    output.items("baselines", rows, BASELINE_COLUMNS, form)


@command.command("compare", short_help="Hold jobs, a sweep or a file to a baseline.")
@figures.sources
@click.option("--against", metavar="NAME", help="The baseline.")
@click.option(
    "--history",
    type=click.IntRange(min=1, max=10_000),
    metavar="N",
    help="In place of a baseline: the newest N jobs of the same name and size before these.",
)
@figures.metric_options
@output.format_option
@click.pass_context
def compare(
    ctx: click.Context,
    references: tuple[str, ...],
    sweep: str | None,
    file: Path | None,
    refresh_: bool | None,
    against: str | None,
    history: int | None,
    metrics: tuple[str, ...],
    thresholds: tuple[str, ...],
    format_: str | None,
    as_json: bool,
) -> None:
    """Say what is slower or faster than a baseline; the exit code is 1 where something is worse.

    It is 1 too where jobs were left out (FAILED, no numbers) and nothing is left of a size that the
    baseline has. A difference counts when its interval leaves out "none", and it is larger than the
    threshold of its metric. With five runs and more a side, one noisy node decides nothing.

    \b
    Examples:
      orchestrator baseline compare 131 132 133 --against one-node
      orchestrator baseline compare --sweep digits-scaling --against last-week --threshold \\
        throughput=0.05
      orchestrator baseline compare nightly --history 5
    """
    if (against is None) == (history is None):
        raise click.UsageError("name a baseline by --against, or say --history N")
    if history is not None and not references:
        raise click.UsageError("--history is of jobs: name them")
    study = figures.study(ctx, references, sweep, file, refresh_)
    context = session.open_context(ctx)
    for sentence in study.left_out:
        output.say(sentence)
    if history is not None:
        wanted = [job for reference in references for job in session.jobs_of(context, reference)]
        earlier = studies.history(context, wanted, history)
        kept, name = earlier.measurement_set, earlier.source
    else:
        assert against is not None
        kept, name = baselines.find(context, against), against
    compared = figures.compared(study, kept, metrics, thresholds)
    figures.show_comparison(compared, name, study, output.chosen(format_, as_json))
