"""orchestrator baseline."""

from __future__ import annotations

import dataclasses

import click

from orchestrator.cli import commands, output, reports, session
from orchestrator.cli.arguments import options
from orchestrator.cli.commands import argument, option
from orchestrator.cli.output import Column
from orchestrator.controller.reports import baselines, studies
from orchestrator.controller.session import contexts, selection
from orchestrator.rows import row_values
from orchestrator.toml import values

_BASELINE_FIELDS = ("name", "created_at", "runs", "source", "row")
BASELINE_COLUMNS = (
    Column("name", "name"),
    Column("created_at", drop=5),
    Column("runs"),
    Column("source", "text"),
)
RUN_COLUMNS = (
    Column("name", "name"),
    Column("size"),
    Column("throughput"),
    Column("epoch_seconds", drop=3),
    Column("accuracy", drop=4),
    Column("node_list", "parts", drop=1),
    Column("attributes", "parts", drop=2),
)


baseline_commands = commands.Group(
    "baseline", help="Save results as a baseline and compare later runs with it."
)


@baseline_commands.command(
    "set",
    "orchestrator baseline set last-week --sweep digits-scaling",
    "orchestrator baseline set one-node 123 124 125",
    "orchestrator baseline set published --from figures.csv",
    changes="other",
)
def set_baseline(
    ctx: click.Context,
    name: str = argument(),
    source: reports.Source = commands.record(reports.Source),
) -> None:
    """Save results of jobs, a sweep or a file as a baseline.

    The measurements are copied and outlive the jobs. A baseline with the same name is replaced;
    `baseline show --all` lists replaced ones too.
    """
    if error := values.form_error("name", name):
        raise click.UsageError(f"NAME: {error}")
    study = reports.load_study(ctx, source)
    for sentence in study.left_out:
        output.note(sentence)
    runs = len(study.measurements)
    context = session.open_context(ctx)
    with context.store.writing(durable=True) as work:
        text = baselines.to_json(study)
        work.baselines.add(name, study.source, runs, text, context.clock.now())
    click.echo(f"Baseline {name}: {output.count(runs, 'run')} of {study.source}")


@baseline_commands.command(
    "show",
    "orchestrator baseline show",
    "orchestrator baseline show last-week --format csv",
    table=(*RUN_COLUMNS, *BASELINE_COLUMNS),
    changes="nothing",
    prints=("baselines", "baseline_runs"),
)
def show(
    context: contexts.Context,
    name: str | None = argument(required=False),
    all_: bool = option("--all", "List also replaced baselines."),
    form: str = options.form,
) -> None:
    """List baselines, or the measurements of one.

    Without NAME: all baselines, newest first.
    """
    if name is not None and not all_:
        baseline = baselines.find(context, name)
        runs = [dataclasses.asdict(measurement) for measurement in baseline.measurements]
        output.print_rows("baseline_runs", runs, RUN_COLUMNS, form)
        return
    with context.store.reading() as work:
        stored = work.baselines.newest(name=name)
    if name is not None and not stored:
        raise baselines.not_found(name)
    newest = {baseline.name: baseline for baseline in reversed(stored)}
    rows = [
        row_values.fields_of(baseline, _BASELINE_FIELDS)
        for baseline in stored
        if all_ or newest[baseline.name] is baseline
    ]
    output.print_rows("baselines", rows, BASELINE_COLUMNS, form)


@baseline_commands.command(
    "compare",
    "orchestrator baseline compare 131 132 133 --against one-node",
    "orchestrator baseline compare --sweep digits-scaling --against last-week \\\n"
    "    --threshold throughput=0.05",
    "orchestrator baseline compare nightly --history 5",
    table=reports.COMPARISON_COLUMNS,
    changes="nothing",
    prints=("comparison",),
)
def compare(
    ctx: click.Context,
    source: reports.Source = commands.record(reports.Source),
    against: str | None = option("--against", "Compare with this baseline.", "NAME"),
    history: int | None = option(
        "--history",
        "Compare with the newest N earlier jobs of the same name and size instead.",
        click.IntRange(min=1, max=10_000),
    ),
    chosen: reports.Comparison = commands.record(reports.Comparison),
    form: str = options.form,
) -> None:
    """Compare results with a baseline.

    Exit code 1 if a result is worse, or if jobs were left out (failed, or without metrics) and a
    size of the baseline has no runs. A difference counts if its 95 % confidence interval excludes
    zero and it exceeds the threshold of its metric. With five or more runs on each side a single
    noisy node does not change the result.
    """
    if (against is None) == (history is None):
        raise click.UsageError("name a baseline with --against, or use --history N")
    if history is not None and not source.references:
        raise click.UsageError("--history requires jobs")
    study = reports.load_study(ctx, source)
    context = session.open_context(ctx)
    for sentence in study.left_out:
        output.note(sentence)
    if history is not None:
        selected = selection.jobs_and_sweeps(context, source.references, ())
        earlier = studies.history(context, selected, history)
        baseline, name = earlier, earlier.source
    else:
        assert against is not None
        baseline, name = baselines.find(context, against), against
    compared = baselines.compare(study, baseline, dict(chosen.thresholds), chosen.metrics)
    reports.print_comparison(compared, name, study, form)
