"""Tables at 80 and 120 columns and in a pipe: the exact text, with long names and numbers."""

from __future__ import annotations

import datetime
import io
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich import cells

from orchestrator.cli import (
    baselines,
    config,
    database,
    graphs,
    metrics,
    nodes,
    notices,
    output,
    patterns,
    prune,
    reports,
    schedules,
    service,
    show,
    usage,
)
from orchestrator.cli.output import (
    Column,
    job_tables,
    metric_tables,
    result_tables,
    schedule_tables,
    sweep_tables,
    tables,
)
from orchestrator.metrics import choices
from orchestrator.reports import tables as report_tables
from orchestrator.rows import row_values
from orchestrator.sweeps import parameters, results

AT = datetime.datetime(2026, 11, 21, 8, 30, 0, 250000, tzinfo=datetime.UTC)
LONG = "resnet50-imagenet-wide-cosine-lr0.1-seed3-weekly"
NODES = "node[0001-0008,0012,0020-0026]"
LOG = "/cluster/home/alice/orchestrator-runs/resnet50.k3v9x2m4p7q1/48120932.out"
MONTH = Column("month", "name")

COMPARED = [f"lr=0.{n} momentum=0.9{n} seed={n}{end}" for n in (1, 2, 3) for end in ("", " ratio")]

Rows = Sequence[Mapping[str, Any]]


def table_rows(names: str, *lines: Sequence[object]) -> Rows:
    return [dict(zip(names.split(), line, strict=True)) for line in lines]


def sweep_results(*, runs: int) -> results.Results:
    """A sweep with three parameters and three metrics, and so many runs per row."""
    return results.Results(
        columns=[
            parameters.Parameter(key=f"args.{name}", heading=name)
            for name in ("lr", "optimizer", "schedule")
        ],
        averaged=[],
        choices=[
            choices.Choice(label=label, name=label, statistic="last", direction=1)
            for label in ("val_accuracy:max", "loss:min", "throughput")
        ],
        # Only their number counts here.
        rows=[results.Row(parameters={}, runs=[mock.Mock()] * runs, cells=[], is_final=True)],
        with_unfinished=False,
    )


#: name -> columns and rows
TABLES: Mapping[str, tuple[Sequence[Column | str], Rows]] = {
    "status": (
        job_tables.JOB_COLUMNS,
        table_rows(
            "job_id name state reason elapsed time_limit nodes gpus node_list row",
            (
                *("48120934_[0-499]", LONG, "PENDING"),
                *("QOSMaxJobsPerUserLimit; next try 10:05:00", "", "2-00:00:00"),
                *(16, 64, None, "@1203-1702"),
            ),
            ("48120933", "digits", "RUNNING", "", "1-02:03:04", "2-00:00:00", 16, 64, NODES, 1202),
            ("48120932", "digits", "OUT_OF_MEMORY", "", "00:03:04", "00:10:00", 1, 4, "n1", 1201),
        ),
    ),
    "status of short jobs": (
        job_tables.JOB_COLUMNS,
        table_rows(
            "job_id name state reason elapsed time_limit nodes gpus node_list row",
            ("local-2", "train", "RUNNING", "", "00:00:09", "00:10:00", 1, 0, "workstation", 2),
            ("local-1", "train", "COMPLETED", "", "00:00:09", "00:10:00", 1, 0, "workstation", 1),
        ),
    ),
    "attempts": (
        job_tables.ATTEMPT_COLUMNS,
        table_rows(
            "number state exit node_list started_at ended_at reason",
            (0, "NODE_FAIL", "1:0", NODES, AT, AT, "the node does not respond"),
            (1, "RUNNING", None, "node[0001-0015]", AT, None, None),
        ),
    ),
    "chain": (
        job_tables.CHAIN_COLUMNS,
        table_rows(
            "job_id attempt state step then",
            ("48120932", 0, "TIMEOUT", 123456, "continued from step 123456 as 48120933 (@1202)"),
        ),
    ),
    "first failures": (
        show._FAILURE_COLUMNS,
        table_rows("job_id state exit ended_at stdout_path", ("48_3", "FAILED", "1:0", AT, LOG)),
    ),
    "metrics": (
        metric_tables.COLUMNS,
        table_rows(
            "job_id name value unit epoch step time source",
            *(
                ("48120933", f"val/{name}", value, unit, 9, 1234567, AT, "log:keyvalue")
                for name, value, unit in (
                    ("top5_accuracy_of_the_ema_model", 0.9312345678901, ""),
                    ("throughput", 1234567.8912345, "samples/s"),
                    ("lr", 0.00003, ""),
                    ("loss", float("nan"), ""),
                    ("loss", 2.0, ""),
                )
            ),
        ),
    ),
    "metrics --stat last,median,p5,p95": (
        metric_tables._statistic_columns(("last", "median", "p5", "p95")),
        table_rows(
            "job_id name unit last median p5 p95",
            ("48120933", "throughput", "images/second", 1234.56789, 1230.123, 1000.0, 2e16),
        ),
    ),
    "metrics --compare": (
        metric_tables._compared_columns(
            ["name", "unit", "statistic", "lr=0.1 seed=1", *COMPARED], COMPARED[1::2]
        ),
        [
            dict(
                zip(
                    ["name", "unit", "statistic", "lr=0.1 seed=1", *COMPARED],
                    ["val_accuracy", "", "best", *(0.9312345678901, 1.0001234567) * 4],
                    strict=False,
                )
            )
        ],
    ),
    "metrics --compare of jobs that do not fit side by side": (
        metric_tables.listed_columns("statistic"),
        table_rows(
            "name unit statistic job value ratio",
            *(
                ("val_accuracy", "", "last", f"lr=0.{n} momentum=0.9{n} seed={n}", 0.93 + n, 1.07)
                for n in (1, 2, 3)
            ),
            ("throughput", "images/second", "median", "48120933", 123456.789, None),
        ),
    ),
    "sweep results": (
        result_tables.table_columns(sweep_results(runs=2)),
        table_rows(
            "rank point lr optimizer schedule val_accuracy:max loss:min throughput runs state",
            (
                *(1, 17, "0.001", "adamw", "cosine-with-warm-restarts", "0.9312 ± 0.0045"),
                *("0.231 ± 0.012", "123457 ± 1200", "3 of 3", "COMPLETED"),
            ),
            (None, 18, "0.1", "sgd", "", "", "", "", "0 of 3", "2 FAILED, 1 not submitted"),
        ),
    ),
    "sweep results without repeats": (
        result_tables.table_columns(sweep_results(runs=1)),
        table_rows(
            "rank point lr optimizer schedule val_accuracy:max loss:min throughput state job_id",
            (
                *(1, 17, "0.001", "adamw", "cosine-with-warm-restarts", "0.931235", "0.231"),
                *("123457", "COMPLETED", "48120934_16"),
            ),
        ),
    ),
    "metrics reparse": (
        metrics._REPARSE_COLUMNS,
        table_rows("job_id path before after kept", ("48120932", LOG, 123456, 234567, None)),
    ),
    "sweep list": (
        sweep_tables.SWEEP_COLUMNS,
        table_rows(
            "name kind state points completed failed missing running pending waiting unsubmitted "
            "gpu_hours created_at row",
            (LONG, "random", "open", 1200, 1000, 12, 0, 64, 100, 24, 0, 123456.789, AT, 17),
            ("digits", "strong", "done", 9, 9, 0, 0, 0, 0, 0, 0, 3.5, AT, 16),
        ),
    ),
    "sweep status": (
        sweep_tables.STATE_COLUMNS,
        table_rows(
            "state points exit reason", ("PENDING", 1200, None, "QOSMaxJobsPerUserLimit " * 5)
        ),
    ),
    "sweep status --points": (
        sweep_tables.POINT_COLUMNS,
        table_rows(
            "number name state job_id exit elapsed reason row",
            (
                *(17, "base_lr0.1-gpus8-momentum0.95-r2-9f86d081", "OUT_OF_MEMORY", "48120932_17"),
                *("137:0", "1-02:03:04", "out of memory", 1234),
            ),
        ),
    ),
    "sweep submit --dry-run": (
        sweep_tables.SUBMISSION_COLUMNS,
        table_rows(
            "points nodes gpus_per_node partition time_limit first last",
            (500, 16, 4, "accel", "2-00:00:00", *(f"base_lr{n}-gpus64-9f86d081" for n in "12")),
        ),
    ),
    "schedule list": (
        schedule_tables.SCHEDULE_COLUMNS,
        table_rows(
            "name state cron tz kind next last outcome",
            (
                *("nightly-scaling-of-the-trainer", "active", "30 2 * * 1-5", "Europe/Oslo"),
                *("sweep", "2026-11-22T02:30+01:00", "2026-11-21T02:30+01:00", "no evidence"),
            ),
        ),
    ),
    "schedule history": (
        schedule_tables.TRIGGER_COLUMNS,
        table_rows(
            "planned state of verdict reason",
            (
                *("2026-11-21T02:30+01:00 by hand", "fired", "sweep @17", "slower"),
                "throughput at 8 GPUs is 5.1 % lower than baseline last-week",
            ),
        ),
    ),
    "schedule next": (
        schedules.NEXT_COLUMNS,
        table_rows(
            "local utc note",
            (
                *("2027-03-28T03:00+02:00", "2027-03-28T01:00Z"),
                "02:30 does not exist: daylight saving time begins",
            ),
        ),
    ),
    "nodes": (
        nodes.COLUMNS,
        [
            nodes._line(row)
            for row in table_rows(
                "cluster node score failures slow_runs completed last_seen_at exclude reason",
                (
                    *("olivia", "gpu-1-41", 3.41999, {"device_fault": 3, "node_fail": 1}, 2, 512),
                    *(AT, True, "3 device_fault, 1 node_fail, 2 slow runs"),
                ),
                ("olivia", "gpu-1-9", 2.0, {"node_fail": 2}, 0, 9, AT, False, "limit reached"),
            )
        ],
    ),
    "usage": (
        [MONTH, *usage._COLUMNS],
        table_rows(
            "month jobs starts gpu_hours core_hours node_hours wasted",
            ("2026-11", 12345, 23456, 123456.7890123, 9876543.21, 30864.197, "12%"),
            ("2026-10", 3, 4, 0.08333333333333333, 12.0, 0.0, ""),
        ),
    ),
    "usage --disk": (
        usage._DISK_COLUMNS,
        table_rows(
            "job name total log checkpoints code metrics torchrun other",
            (
                *("12345_[0-7]", LONG, "41.2 GB", "18.3 MB", "41.1 GB", "4.1 MB", "2.05 MB"),
                *("0 B", "41 kB"),
            ),
        ),
    ),
    "prune": (
        prune._COLUMNS,
        table_rows(
            "job name what size reason path",
            (
                *("12345_[0-7]", LONG, "checkpoints", "41.2 GB"),
                *("COMPLETED, FAILED since 2026-09-14", f"/scratch/alice/runs/{LONG}.k3x9q2m7w1ab"),
            ),
        ),
    ),
    "notices list": (
        notices.COLUMNS,
        table_rows(
            "at kind subject channel state tries next_at error",
            (
                *(AT, "failure", f"{LONG} FAILED on node0001: out of memory", "mail", "waiting"),
                *(3, AT, "[Errno 111] Connection refused: smtp.example.org:587"),
            ),
        ),
    ),
    "baseline show": (
        baselines.BASELINE_COLUMNS,
        table_rows(
            "name created_at runs source",
            (f"baseline-{LONG}", AT, 12, f"sweep {LONG} (@17)"),
        ),
    ),
    "baseline show NAME": (
        baselines.RUN_COLUMNS,
        table_rows(
            "name size throughput epoch_seconds accuracy node_list attributes",
            (
                *(LONG, 64, 123456.789, 12.345678, 0.97654321, NODES),
                {"mode": "ddp", "precision": "bf16", "batch_size": 1024},
            ),
        ),
    ),
    "baseline compare": (
        reports.COMPARISON_COLUMNS,
        table_rows(
            "curve size metric change interval verdict runs baseline_runs",
            (
                *("mode=ddp, precision=bf16, compile=true", 64, "throughput", "-5.1 %"),
                *("-7.0 % to -3.2 %", "slower", 5, 5),
            ),
        ),
    ),
    "sweep report": (
        [
            Column(column.name, "text" if column.is_text else "whole", drop=column.drop)
            for column in report_tables.COLUMNS
            if not column.is_extra
        ],
        table_rows(
            "curve size nodes runs throughput speedup efficiency epoch_time gpu_hours_per_epoch "
            "data_wait memory utilisation accuracy",
            *(
                (
                    *(f"mode={mode}, precision=bf16", 64, 16, 5, "123457 (120012 to 126903)"),
                    *("58.32", "91.1 % (88.6 to 93.6 %)", "0:20:34", "21.94", "1.2 %"),
                    *("31.25 to 35.50 GiB", "93.4 %", "0.7654"),
                )
                for mode in ("ddp", "fsdp")
            ),
        ),
    ),
    "graph status": (
        graphs.NODE_COLUMNS,
        table_rows(
            "node kind state job_id after reason row",
            (
                *("train", "sweep", "3 COMPLETED, 12 RUNNING, 4 PENDING", "48120933"),
                *(["ok:preprocess", "any:download"], "", "sweep @17"),
            ),
            ("evaluate", "job", "PENDING", "48120940", ["ok:train"], "Dependency", 1300),
        ),
    ),
    "graph list": (
        graphs.GRAPH_COLUMNS,
        table_rows(
            "name state nodes submitted ended created_at row", (LONG, "open", 12, 7, False, AT, 3)
        ),
    ),
    "serve --status": (
        service._HEALTH_COLUMNS,
        table_rows(
            "healthy command host pid since last_pass_at next_pass_at",
            (True, "serve", "login-2.cluster.example.org", 1234567, AT, AT, AT),
        ),
    ),
    "doctor": (
        config._CHECK_COLUMNS,
        table_rows(
            "check outcome found cure",
            (
                *("runs_dir", "bad", f"{Path(LOG).parent} is on a local disk (ext4)"),
                "set runs_dir to a folder that compute nodes see: "
                "runs_dir = /cluster/work/users/alice/orchestrator-runs",
            ),
        ),
    ),
    "config show --origin": (
        config._CONFIG_COLUMNS,
        table_rows(
            "key value origin",
            ("profiles.olivia.account", "nn9999k", "/home/alice/.config/orchestrator/config.toml"),
        ),
    ),
    "trust --list": (
        config._TRUST_COLUMNS,
        table_rows("path state", (f"{Path(LOG).parent}/orchestrator.toml", "changed")),
    ),
    "db restore": (
        database._BACKUP_COLUMNS,
        table_rows(
            "path made_at size_bytes",
            ("/home/alice/.local/state/orchestrator/orchestrator-20261121.db", AT, 123456789),
        ),
    ),
    "patterns list": (
        patterns._PATTERN_COLUMNS,
        table_rows(
            "pattern origin metrics description",
            ("olivia", "ships", ["epoch", "val_loss", "throughput"], "the logs of Olivia's users"),
        ),
    ),
    "patterns test": (
        patterns._MATCH_COLUMNS,
        table_rows(
            "line name value unit step epoch pattern",
            (1234567, "validation/top5_accuracy", 0.9312345678901, "", 1234567, None, "keyvalue"),
        ),
    ),
}
GOLDEN = Path(__file__).parents[2] / "data" / "tables.txt"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def printed(
    monkeypatch: pytest.MonkeyPatch, width: int | None, given: Sequence[Column | str], rows: Rows
) -> str:
    """Return a table on a terminal with this width; None: in a pipe."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "UTC")
        patch.setenv("TERM", "dumb")
        patch.setenv("COLUMNS", str(width or 80))
        stdout = io.StringIO() if width is None else Terminal()
        patch.setattr(sys, "stdout", stdout)
        output.print_rows("things", rows, given, "table")
    return stdout.getvalue()


def test_all_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = []
    for name, (table_columns, rows) in TABLES.items():
        for width, title in ((80, "80 columns"), (120, "120 columns"), (None, "pipe")):
            text = printed(monkeypatch, width, table_columns, rows)
            assert width is None or max(map(len, text.splitlines())) <= width, name
            blocks.append(f"## {name}: {title}\n{text}")
    if os.environ.get("ORCHESTRATOR_TEST_GOLDEN_UPDATE"):
        GOLDEN.write_text("\n".join(blocks))
    assert "\n".join(blocks) == GOLDEN.read_text()


def test_a_pipe_has_full_values(monkeypatch: pytest.MonkeyPatch) -> None:
    for table_columns, rows in TABLES.values():
        text = printed(monkeypatch, None, table_columns, rows)
        names = output.column_names(table_columns)
        assert "…" not in text
        assert text.splitlines()[0].split() == " ".join(names).upper().split()
        for row in rows:
            for name in names:
                assert " ".join(row_values.cell(row[name]).split()) in text


def test_columns_are_left_out_one_after_another(monkeypatch: pytest.MonkeyPatch) -> None:
    table_columns, rows = TABLES["status"]
    order = [column.name.upper() for column in output.droppable(job_tables.JOB_COLUMNS)]
    shown = []
    for width in range(220, 20, -1):
        heading = printed(monkeypatch, width, table_columns, rows).split("\n", 1)[0].split()
        if heading not in shown:
            shown.append(heading)
    assert shown[0] == [name.upper() for name in output.column_names(table_columns)]
    left_out = [[name for name in shown[0] if name not in heading] for heading in shown]
    assert left_out == [sorted(order[:n], key=shown[0].index) for n in range(len(order) + 1)]
    assert shown[-1] == ["JOB_ID", "NAME", "STATE"]


def test_columns_without_values_are_left_out_first(monkeypatch: pytest.MonkeyPatch) -> None:
    table_columns, rows = TABLES["status of short jobs"]
    heading = printed(monkeypatch, 70, table_columns, rows).split("\n", 1)[0].split()
    # Not REASON and GPUS, which would be left out last.
    assert heading == [
        *("JOB_ID", "NAME", "STATE", "ELAPSED", "TIME_LIMIT", "NODES", "NODE_LIST", "ROW")
    ]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (2.0, "2"),
        (0.9312345678901, "0.93123"),
        (99999.6, "100000"),
        (1234567.8912345, "1234568"),
        (-1234567.8912345, "-1234568"),
        (0.00003, "3e-05"),
        (2e16, "2e+16"),
        (float("nan"), "nan"),
        (float("-inf"), "-inf"),
    ],
)
def test_numbers(value: float, text: str) -> None:
    assert row_values.number(value) == text


def test_names_and_texts() -> None:
    assert tables.shorten("digits", 6) == "digits"
    assert tables.shorten("digits-ddp", 8) == "digits-…"
    assert tables.shorten("日本語日本語", 6) == "日本…"
    text = f"{LONG} FAILED on node[01-02],node07"
    assert tables.wrap(text, 20, is_text=True) == [
        *("resnet50-imagenet-w…", "FAILED on", "node[01-02],node07")
    ]
    assert tables.wrap(LOG, 30, is_text=False) == [
        *("/cluster/home/alice/", "orchestrator-runs/", "resnet50.k3v9x2m4p7q1/", "48120932.out")
    ]
    assert tables.wrap("x" * 7, 3, is_text=False) == ["xxx", "xxx", "x"]


WORDS = st.lists(st.text("ab日🚀[]/,-", min_size=1, max_size=30), max_size=6).map(" ".join)


@given(WORDS, st.integers(12, 60))
def test_parts_lose_nothing_and_all_lines_fit(content: str, width: int) -> None:
    lines = tables.wrap(content, width, is_text=False)
    assert "".join("".join(lines).split()) == "".join(content.split())
    for is_text in (False, True):
        for line in tables.wrap(content, width, is_text=is_text):
            assert cells.cell_len(line) <= width
