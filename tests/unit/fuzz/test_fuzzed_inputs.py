"""Each reader returns a value or its documented error for any text, within 10 seconds."""

from __future__ import annotations

import collections
import contextlib
import csv
import datetime
import functools
import io
import itertools
import json
import math
import random
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from orchestrator import (
    config,
    errors,
    graphs,
    jobs,
    patterns,
    reports,
    scaling,
    specs,
    sweeps,
)
from orchestrator.cli.arguments import value_types
from orchestrator.diagnosis import log_reader, log_rules
from orchestrator.logs import lines as log_lines
from orchestrator.metrics import summaries
from orchestrator.rendering import directives
from orchestrator.reports import comparison, records, tables
from orchestrator.reports import documents as report_documents
from orchestrator.reports import figures as report_figures
from orchestrator.scaling import regression
from orchestrator.schedules import calendars as schedule_times
from orchestrator.slurm import (
    fields,
    job_ids,
    sacct,
    sacctmgr,
    scontrol,
    sinfo,
    squeue,
    states,
)
from orchestrator.toml import documents, schema, values
from orchestrator.usage import gpus
from tests import builders, fuzzing

NOW = datetime.datetime(2026, 11, 20, 10, 5, tzinfo=datetime.UTC)
ROOT = Path(__file__).resolve().parents[3]
RECORDED = sorted((ROOT / "tests/unit/slurm/recorded").glob("*/*.txt"))
SPEC = """\
[job]
name = "demo"
time_limit = "1-00:00:00"
labels = ["a=b"]
[resources]
nodes = 2
gpus_per_node = 4
mem = "16G"
[environment]
variables.X = "1"
setup = '''
module load x
'''
[launch]
launcher = "python"
script = "train.py"
args = { lr = 0.1, sizes = [1, 2, 3], name = "x" }
[metrics]
patterns = ["pytorch"]
[sweep]
kind = "grid"
axes.args.lr = [0.1, 0.01]
axes.resources.nodes = [1, 2]
repeats = 2
"""
GRAPH = (
    '[graph]\nname = "a"\n[graph.nodes.a]\nspec = "job.toml"\n[graph.nodes.b]\nafter_ok = ["a"]\n'
)
OWN_PATTERNS = """\
[own]
description = "x"
[[own.line]]
name = "speed"
contains = "speed"
regex = 'speed (?P<throughput>{number}) ?(?P<throughput_unit>\\S+)?'
metrics = { throughput = "it/s" }
"""
BATCH = """\
#!/bin/bash -l
#SBATCH --job-name=x
#SBATCH --time=1-00 -N 2 --gres=gpu:a100:4
#SBATCH --output="a b/%x-%j.out" # comment
#SBATCH --array=0-10%2
srun python train.py
"""
RECORD = {"name": "loss", "value": 0.5, "step": 1, "time": "2026-11-20T10:05:00Z", "unit": "s"}
CSV = "gpus,mode,throughput,total_time,memory,epoch_seconds,windows,accuracy\n" + "".join(
    f"{gpus},ddp,{150 * gpus},{2700 / gpus},5;5,{30.5 / gpus},{150 * gpus} {151 * gpus},90%\n"
    for gpus in (1, 1, 2, 2, 4, 8)
)

Case = Callable[[random.Random], Callable[[], object]]
#: kind -> (generator of cases, errors that callers turn into messages, cases per thousand)
KINDS: dict[str, tuple[Case, tuple[type[Exception], ...], int]] = {}


def kind(
    weight: int, *accepted: type[Exception]
) -> Callable[[Callable[[random.Random], object]], Callable[[random.Random], object]]:
    """Add a kind of input: `make` reads it at once."""

    def add(make: Callable[[random.Random], object]) -> Callable[[random.Random], object]:
        KINDS[make.__name__] = (lambda rng: functools.partial(make, rng), accepted, weight)
        return make

    return add


@functools.cache
def recorded() -> list[str]:
    return [line for path in RECORDED for line in path.read_text().split("\n") if line]


@functools.cache
def logs() -> list[str]:
    result = [
        line[:2000]
        for path in sorted((ROOT / "tests/data").rglob("*.log"))
        if path.is_file()
        for line in path.read_text(errors="replace").split("\n")[:500]
    ]
    assert result
    return result


@functools.cache
def shipped() -> tuple[patterns.Pattern, ...]:
    return patterns.load_shipped()


@functools.cache
def rules() -> object:
    return log_rules.load_shipped()


def toml(rng: random.Random, text: str) -> str:
    return fuzzing.mutated(rng, text, (SPEC, GRAPH, OWN_PATTERNS))


def document_of(text: str) -> documents.Document:
    document, problems = documents.parse(text, "x.toml")
    [str(problem) for problem in problems]
    if problems:
        raise errors.SpecError(problems)
    return document


@kind(100, errors.OrchestratorError)
def toml_specs(rng: random.Random) -> None:
    document = document_of(toml(rng, SPEC.partition("[sweep]")[0]))
    specs.from_json(specs.to_json(specs.build(document, (), None)))


@kind(40, errors.OrchestratorError)
def toml_graphs(rng: random.Random) -> None:
    graphs.build(document_of(toml(rng, GRAPH)))


@kind(20, errors.OrchestratorError)
def toml_patterns(rng: random.Random) -> None:
    builders.load_patterns(toml(rng, OWN_PATTERNS), "x.toml")


@kind(20)
def toml_values(rng: random.Random) -> None:
    for hint in (str, int, float, bool, None):
        schema.as_toml(schema.from_text(fuzzing.hostile(rng), hint))


@kind(120, errors.OrchestratorError)
def batch_directives(rng: random.Random) -> None:
    directives.parse(fuzzing.mutated(rng, BATCH))


@kind(120)
def squeue_lines(rng: random.Random) -> None:
    lines = [fuzzing.mutated(rng, rng.choice(recorded()), recorded()) for _ in range(3)]
    list(squeue.parse(lines, lambda *_: True))


@kind(120)
def sacct_lines(rng: random.Random) -> None:
    lines = [fuzzing.mutated(rng, rng.choice(recorded()), recorded()) for _ in range(3)]
    sacct.parse(lines)
    sacct.parse_usage(lines, None)


@kind(60)
def slurm_texts(rng: random.Random) -> None:
    start = rng.randrange(len(recorded()))
    text = fuzzing.mutated(rng, "\n".join(recorded()[start : start + 20]), recorded())
    with contextlib.suppress(errors.SlurmError):
        scontrol.parse_config(text)
    scontrol.parse_refusals(text)
    scontrol.parse_request(scontrol.parse_record(text.replace("\n", " ")))
    scontrol.parse_partition(text)
    scontrol.parse_reservation(text)
    scontrol.parse_limits(text, "alice", "a")
    sinfo.parse_reasons(text)
    squeue.count_jobs_before(text, "1", 5)
    sinfo.parse(text)
    sacctmgr.parse_associations(text)
    sacctmgr.parse_qos_limits(text)


@kind(100)
def slurm_fields(rng: random.Random) -> None:
    text = fuzzing.hostile(rng)
    for read in (
        *(fields.parse_exit_code, fields.parse_wait_status, fields.parse_time),
        *(fields.parse_duration_seconds, fields.parse_count),
        *(fields.parse_gpus, fields.parse_tres, fields.parse_cpus, fields.parse_text),
        *(states.parse_state, states.cancelled_by, fields.expand_hosts),
    ):
        read(text)
    states.parse_reason(text, jobs.JobState.PENDING)
    for key in values.FORMS:
        values.form_error(key, text)
    values.form_error("time_limit", text)
    values.fitting_name(text)


@kind(30, ValueError)
def job_references(rng: random.Random) -> None:
    text = rng.choice([fuzzing.hostile(rng), rng.choice(fuzzing.REFERENCES)])
    first = itertools.islice(job_ids.each_task(job_ids.parse_job_id(text)), 10_000)
    assert all(job.text for job in first)
    collections.deque(job_ids.expand_tasks(text.partition("[")[2].rstrip("]")), maxlen=0)


@kind(50, click.BadParameter)
def points_in_time(rng: random.Random) -> None:
    text = rng.choice([rng.choice(fuzzing.TIMES), fuzzing.hostile(rng)])
    value_types.time_before(fuzzing.mutated(rng, text) if rng.random() < 0.5 else text, NOW)


@kind(30, click.BadParameter)
def lengths_of_time(rng: random.Random) -> None:
    value_types.duration(rng.choice([rng.choice(fuzzing.TIMES), fuzzing.hostile(rng)]))


@kind(30, errors.OrchestratorError)
def calendars(rng: random.Random) -> None:
    cron = rng.choice([rng.choice(fuzzing.CRONS), fuzzing.mutated(rng, "0 2 * * 1-5")])
    zone = rng.choice(["UTC", "Europe/Oslo", rng.choice(fuzzing.ZONES), fuzzing.hostile(rng)])
    list(itertools.islice(schedule_times.Calendar(cron=cron, tz=zone).moments(NOW), 3))


@kind(100)
def logged_lines(rng: random.Random) -> None:
    matcher = patterns.Matcher(shipped())
    for number in range(5):
        line = fuzzing.mutated(rng, rng.choice(logs()), logs())
        for metric in matcher.metrics_of_line(
            log_lines.clean(line.encode(errors="replace")), line=number
        ):
            assert math.isnan(metric.value) or math.isfinite(metric.value)
            assert metric.step is None or metric.step < 2**63
    json.dumps(matcher.state)


@kind(60)
def failing_logs(rng: random.Random) -> None:
    numbered = [(n, fuzzing.mutated(rng, rng.choice(logs()), logs())) for n in range(5)]
    reader = log_reader.LogReader(rules(), "log.txt")
    for number, line in numbered:
        reader.feed(number, line)
    assert reader.finish() is not None


@kind(100)
def metric_records(rng: random.Random) -> None:
    text = json.dumps({**RECORD, rng.choice(list(RECORD)): rng.choice(NUMBERS_AND_MORE)})
    if rng.random() < 0.7:
        text = fuzzing.mutated(rng, text)
    for metric in patterns.parse_jsonl(text):
        assert math.isnan(metric.value) or math.isfinite(metric.value)


NUMBERS_AND_MORE = (
    *(0, -1, 2**63, 2**64, 10**400, 1e154, 1e308, -0.0, 5e-324, math.inf, math.nan, None, True),
    *("", "x", "\ud800", [], {}, [[[]]], 1e300, -1e300, 7_258_118_399.9, 1e-320),
)


@kind(50)
def gpu_figures(rng: random.Random) -> None:
    head = "timestamp, index, utilization.gpu [%], memory.used [MiB], power.draw [W]\n"
    row = "2026/11/20 10:05:00.000, 0, 95 %, 1000 MiB, 250.5 W\n"
    reader = gpus.Reader()
    reader.read(fuzzing.mutated(rng, head + row * 3).split("\n"))
    figures = reader.usage("host")
    gpus.mean_utilization(figures)


def any_float(rng: random.Random) -> float:
    return rng.choice([1e154, 1.7e308, -1e308, 5e-324, 1e-154, -0.0, math.inf, extreme(rng)])


def extreme(rng: random.Random) -> float:
    return rng.choice(
        [records.SMALLEST, records.LARGEST, 1e29, 1e-29, 1e15, 1e-15, 1.0, 150.0, 151.0]
    )


@kind(30)
def studied_runs(rng: random.Random) -> None:
    runs = [
        scaling.Run(
            size=rng.choice([1, 2, 4, 8, 10**9]),
            throughput=extreme(rng),
            windows=tuple(extreme(rng) for _ in range(rng.choice([0, 0, 3]))),
        )
        for _ in range(rng.randrange(1, 8))
    ]
    scaling.study(runs)


@kind(50, ValueError)
def compared_runs(rng: random.Random) -> None:
    sides = [[extreme(rng) for _ in range(rng.randrange(1, 6))] for _ in range(2)]
    regression.compare(*sides, threshold=rng.choice([0.0, 0.02, 1e308]))


@kind(50)
def summed_up(rng: random.Random) -> None:
    summary = summaries.Summary(name="loss")
    for _ in range(rng.randrange(8)):
        value = rng.choice([any_float(rng), -extreme(rng), -0.0, math.nan, None])
        summary.add(value, rng.choice([None, 0, 2**62]))
    for statistic in summaries.ALL:
        summary.of(statistic)
    summaries.sparkline([any_float(rng) for _ in range(5)] + [None])


@kind(30, errors.OrchestratorError)
def reported_figures(rng: random.Random) -> None:
    if rng.random() < 0.5:
        text = fuzzing.mutated(rng, CSV)
    else:
        rows = [line.split(",") for line in CSV.splitlines()]
        for row in rows[1:]:
            for column in range(2, len(row)):
                if rng.random() < 0.5:
                    row[column] = str(any_float(rng))
        out = io.StringIO()
        csv.writer(out).writerows(rows)
        text = out.getvalue()
    figures = reports.read_csv(text, "x.csv")
    report = reports.build_report("x", figures.measurements, unit=figures.unit)
    targets = reports.Targets()
    for form in ("md", "tex", "html"):
        report_documents.render(form, report, targets)
    json.dumps(report_documents.items(report, targets), allow_nan=False)
    tables.texts(report, tables.filled(report))
    for figure in report_figures.figures(report):
        report_figures.as_csv(figure)
    other = reports.read_csv(CSV, "y.csv")
    if figures.unit == other.unit:
        comparison.compare(figures.measurements, other.measurements, unit=figures.unit)


@kind(15, errors.OrchestratorError)
def swept_specs(rng: random.Random) -> None:
    document = document_of(toml(rng, SPEC))
    sweeps.expand(document, config.Profile())


@pytest.mark.parametrize("name", KINDS)
def test_few(name: str) -> None:
    case, accepted, weight = KINDS[name]
    assert fuzzing.run(name, 2 * weight, case, accepted)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", KINDS)
def test_many(name: str) -> None:
    case, accepted, weight = KINDS[name]
    assert fuzzing.run(name, 80 * weight, case, accepted)
