"""`metrics` and `logs` of jobs in a database, in this process: the exact text."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import json
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from db.stores.metrics import metrics as stored_metrics
from orchestrator import jobs, specs
from orchestrator.cli.output import metric_tables
from orchestrator.controller.session import stores
from orchestrator.metrics import summaries
from tests import builders
from tests.unit.cli.conftest import Run

NOW = datetime.datetime(2026, 11, 21, 8, 0, tzinfo=datetime.UTC)
EPOCH = (
    "Epoch {0}/3 completed in {1}.0 seconds\n"
    "Validation Loss: {2}, Validation Accuracy: 0.{0}000\n"
    "Epoch Throughput: {3}.000 images/second\n"
)


@pytest.fixture
def home(home: Path, database_file: Path) -> Path:
    with stores.Store(database_file) as store, store.writing() as work:
        for number, losses in ((1, ("0.9", "nan", "0.5")), (2, ("0.8", "0.4", "0.6"))):
            folder = home / str(number)
            folder.mkdir()
            banner = "=== orchestrator run{0} job {0} task 0 attempt 0 on n1 at {1} ===\n"
            text = banner.format(number, "2026-11-21T08:00:00Z") + "".join(
                EPOCH.format(epoch, epoch + number, loss, 100 * epoch * number)
                for epoch, loss in enumerate(losses, start=1)
            )
            (folder / "log").write_text(text)
            spec = jobs.JobSpec(name=f"run{number}", metrics=jobs.Metrics(patterns=("olivia",)))
            record = builders.make_submission(
                number, NOW, name=f"run{number}", spec=specs.to_json(spec), run_dir=str(folder)
            )
            work.jobs.add_submission(
                record,
                state=jobs.JobState.COMPLETED,
                settled=True,
                job_id=str(number),
                stdout_path=str(folder / "log"),
            )
    return home


def test_rows_are_filtered_and_thinned(run: Run) -> None:
    head = "job_id\tname\tvalue\tunit\tepoch\tstep\ttime\tsource\n"
    line = "1\tthroughput\t{}.0\timages/second\t{}\t\t\tlog:olivia\n"
    one, two, three = (line.format(100 * epoch, epoch) for epoch in (1, 2, 3))

    def asked(*options: object) -> str:
        return run("metrics", "1", "--name", "through*", *options)[1]

    assert asked() == head + one + two + three
    assert asked("--last", 2) == head + two + three
    assert asked("--epochs", "2:") == head + two + three
    assert asked("--epochs", ":1") == asked("--epochs", "1") == head + one
    assert asked("--every", 2) == asked("--points", 2) == head + one + three
    assert asked("--epochs", "2:3", "--last", 1) == head + three
    newest = json.loads(run("metrics", 1, "--last", 1, "--json")[1])["items"]
    assert {item["name"]: item["value"] for item in newest} == {
        "epoch": 3.0,
        "epoch_time": 4.0,
        "val_loss": 0.5,
        "val_accuracy": 0.3,
        "throughput": 300.0,
    }
    assert len(newest) == 5
    items = json.loads(run("metrics", 1, 2, "--name", "val_loss", "--last", 2, "--json")[1])
    assert [(item["job_id"], item["value"]) for item in items["items"]] == [
        *(("1", "NaN"), ("1", 0.5)),
        *(("2", 0.4), ("2", 0.6)),
    ]
    csv = asked("--last", 2, "--format", "csv")
    assert asked("--last", 2, "--format", "csv", "-f") == csv
    assert run("metrics", "1", "--steps", "1:")[1:] == (
        head,
        "No metrics match. Names of these jobs' metrics: epoch, epoch_time, "
        "throughput, val_accuracy, val_loss\n",
    )


def test_statistics(run: Run) -> None:
    asked = ["metrics", "1", "--name", "val_loss", "--name", "throughput", "--stat"]
    assert run(*asked, "count,nan,first,last,mean,median,min,max,best,p50,p95")[1] == (
        "job_id\tname\tunit\tcount\tnan\tfirst\tlast\tmean\tmedian\tmin\tmax\tbest\tp50\tp95\n"
        "1\tthroughput\timages/second\t3\t0\t100.0\t300.0\t200.0\t200.0\t100.0\t300.0\t300.0\t"
        "200.0\t290.0\n"
        "1\tval_loss\t\t2\t1\t0.9\t0.5\t0.7\t0.7\t0.5\t0.9\t0.5\t0.7\t0.88\n"
    )
    (best,) = json.loads(run(*asked[:4], "--stat", "best", "--json")[1])["items"]
    assert best == {
        "job_row": 1,
        "job_id": "1",
        "array_task_id": None,
        "job_name": "run1",
        "name": "val_loss",
        "unit": "",
        "best": 0.5,
        "best_step": None,
        "best_epoch": 3,
    }


def test_comparison_of_jobs(run: Run) -> None:
    asked = ["metrics", "1", "2", "--compare", "--name", "throughput", "--name", "val_loss"]
    assert run(*asked)[1] == (
        "name\tunit\tstatistic\t1\t2\t2/1\n"
        "throughput\timages/second\tmedian\t200.0\t400.0\t2.0\n"
        "val_loss\t\tlast\t0.5\t0.6\t1.2\n"
    )
    assert run(*asked[:6], "--by", "epoch", "--epochs", "2:")[1] == (
        "name\tunit\tepoch\t1\t2\t2/1\n"
        "throughput\timages/second\t2\t200.0\t400.0\t2.0\n"
        "throughput\timages/second\t3\t300.0\t600.0\t2.0\n"
    )
    (item,) = json.loads(run(*asked[:6], "--stat", "max", "--json")[1])["items"]
    assert item["jobs"][1] == {
        "job_row": 2,
        "job_id": "2",
        "job_rows": [2],
        "label": None,
        "value": 600.0,
        "ratio": 2.0,
    }


def test_comparison_joins_the_jobs_of_a_chain(run: Run, home: Path) -> None:
    with stores.Store(home / "orchestrator.db") as store:
        folder = home / "continued"
        folder.mkdir()
        banner = "=== orchestrator run1 job 3 task 0 attempt 0 on n1 at 2026-11-21T08:00:00Z ===\n"
        (folder / "log").write_text(banner + EPOCH.format(3, 1, "0.3", 900))
        with store.writing() as work:
            first = work.jobs.submission_of(1)
            record = dataclasses.replace(first, token="abcd00000003", run_dir=str(folder))
            work.jobs.add_submission(
                record,
                state=jobs.JobState.COMPLETED,
                settled=True,
                job_id="3",
                stdout_path=str(folder / "log"),
                continues=1,
            )
    asked = ("--compare", "--name", "val_loss")
    for of_chain in ("1", "3"):
        assert run("metrics", "2", of_chain, *asked)[1] == (
            f"name\tunit\tstatistic\t2\t{of_chain}\t{of_chain}/2\nval_loss\t\tlast\t0.6\t0.3\t0.5\n"
        )
    # The last value of an epoch counts, which is that of the continuation.
    by_epoch = run("metrics", "2", "1", *asked, "--by", "epoch", "--epochs", "1:")[1]
    assert [line.split("\t")[2:5] for line in by_epoch.splitlines()[1:]] == [
        *(["1", "0.8", "0.9"], ["2", "0.4", "nan"], ["3", "0.6", "0.3"])
    ]
    (item,) = json.loads(run("metrics", "2", "1", *asked, "--json")[1])["items"]
    assert [each["job_rows"] for each in item["jobs"]] == [[2], [1, 3]]
    # Jobs of one chain are compared with each other.
    assert run("metrics", "1", "3", *asked)[1].splitlines()[1] == "val_loss\t\tlast\t0.5\t0.3\t0.6"


def test_options_that_cannot_be_combined(run: Run) -> None:
    for options, message in (
        (["--steps", "x"], "'--steps': 'x' is not a range: write A:B, A:, :B or one number"),
        (["--epochs", "5:1"], "'--epochs': '5:1' ends before it begins: write 1:5"),
        (["--stat", "medain"], "--stat: unknown statistic 'medain': use count, nan, first,"),
        (["--compare"], "--compare requires two or more jobs"),
        (["--plot", "x.gif"], "--plot x.gif: the file must end in .svg, .png or .pdf"),
        (["--output", "x.txt"], "--output x.txt: unknown suffix; use --format"),
        (["--format", "parquet"], "--format parquet requires --output FILE.parquet"),
        (["--stat", "last", "--plot", "x.svg"], "--stat and --plot cannot be combined"),
        (["-f", "--json"], "--follow prints rows as they arrive: use --format jsonl"),
        (["--every", "2", "--points", "2"], "--every and --points cannot be combined"),
    ):
        code, out, err = run("metrics", "1", *options)
        assert (code, out) == (2, "")
        assert message in err


def test_files(run: Run, home: Path) -> None:
    printed = run("metrics", "1", "--format", "csv")[1]
    assert run("metrics", "1", "--output", "x.csv") == (0, "", "Wrote 15 rows to x.csv\n")
    assert (home / "x.csv").read_text() == printed
    code, _, err = run("metrics", "1", "--output", home / "none" / "x.csv")
    assert (code, err) == (
        1,
        f"Error: {home}/none/x.csv cannot be written: No such file or directory; "
        "name another file\n",
    )
    plot = ["metrics", "1", "2", "--name", "val_loss", "--name", "throughput", "--plot", "x.svg"]
    assert run(*plot)[2] == "x.svg: throughput, val_loss\n"
    drawn = (home / "x.svg").read_text()
    for word in ("throughput (images/second)", "val_loss", "epoch", "1 run1", "2 run2"):
        assert f">{word}<" in drawn
    assert not list(home.glob(".x.*"))


def test_plot_without_matplotlib(run: Run, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metric_tables, "_plotted_lines", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    code, _, err = run("metrics", "1", "--plot", "x.svg")
    assert (code, err) == (1, "Error: Plots need matplotlib: run `pip install matplotlib`.\n")
    assert not (home / "x.svg").exists()


def test_parquet(run: Run, home: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="an environment made before")
    assert run("metrics", "1", "2", "--output", "x.parquet") == (
        0,
        "",
        "Wrote 30 rows to x.parquet\n",
    )
    table = parquet.read_table(home / "x.parquet").to_pylist()
    items = json.loads(run("metrics", "1", "2", "--json")[1])["items"]
    assert len(table) == len(items) == 30
    about = {"job_row": 2, "job_name": "run2"}
    assert {**table[-1], "value": "?"} == {**items[-1], **about, "value": "?"}


def test_without_pyarrow(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert run("metrics", "1", "--output", "x.parquet") == (
        1,
        "",
        "Error: Parquet needs pyarrow: `pip install pyarrow`, or use --format csv.\n",
    )


def numbers(home: Path) -> list[tuple[str, float]]:
    with contextlib.closing(sqlite3.connect(home / "orchestrator.db")) as database:
        return database.execute(
            "SELECT name, value FROM metrics WHERE job_row = 1 ORDER BY id"
        ).fetchall()


def test_reparse(run: Run, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("metrics", "1", "2", "--last", "1")[0] == 0
    first, log = numbers(home), home / "1" / "log"
    with contextlib.closing(sqlite3.connect(home / "orchestrator.db")) as database, database:
        database.execute("UPDATE metric_lines SET value0 = 7 WHERE set_id = 1")
    assert numbers(home) != first
    head = "job_id\tpath\tbefore\tafter\tkept\n"
    assert run("metrics", "reparse", "1") == (0, f"{head}1\t{log}\t15\t15\t\n", "")
    assert numbers(home) == first
    # What is read afterwards is new.
    with log.open("a") as file:
        file.write("Epoch Throughput: 1.5 images/second\n")
    assert run("metrics", "1", "--stat", "count", "--name", "throughput")[1].endswith("\t4\n")

    def die(*_: object) -> Iterator[object]:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        # The old ones are taken out by then.
        patch.setattr(stored_metrics.MetricStore, "of_file", die)
        assert run("metrics", "reparse", "1")[0] == 1
    assert len(numbers(home)) == 16

    assert run("metrics", "reparse", "1", "--pattern", "trainer")[1] == f"{head}1\t{log}\t16\t0\t\n"
    assert numbers(home) == []
    assert run("metrics", "reparse", "1")[1] == f"{head}1\t{log}\t0\t16\t\n"
    log.unlink()
    gone = "the log is gone: its old metrics stay"
    assert run("metrics", "reparse", "1")[1] == f"{head}1\t{log}\t16\t16\t{gone}\n"
    log.write_text("=== orchestrator run1 job 1 task 0 attempt 0 on n1 at x ===\n")
    cut = "the log was truncated or replaced: its old metrics stay"
    assert run("metrics", "reparse", "1")[1] == f"{head}1\t{log}\t16\t16\t{cut}\n"
    assert run("metrics", "--", "reparse")[::2] == (
        4,
        "Error: job 'reparse' not found: `orchestrator status --all` lists all jobs\n",
    )


def test_logs_of_several_jobs(run: Run, home: Path) -> None:
    one, two = (home / str(number) / "log" for number in (1, 2))
    assert run("logs", "1", "2", "-n", "1") == (
        0,
        f"==> 1 run1: {one} <==\nEpoch Throughput: 300.000 images/second\n"
        f"\n==> 2 run2: {two} <==\nEpoch Throughput: 600.000 images/second\n",
        "",
    )
    assert run("logs", "1", "2", "--path")[1] == f"{one}\n{two}\n"
    line = "1:3:Validation Loss: 0.9, Validation Accuracy: 0.1000\n"
    assert run("logs", "1", "2", "--grep", "LOSS: 0.9", "-i") == (0, line, "")
    assert run("logs", "--all", "--grep", "^Validation Loss: [0-9]*.9", "--path")[1] == (
        f"{one}{line[1:]}"
    )
    assert run("logs", "1", "2", "--grep", "Loss: (nan|0.8)", "-C", "1")[1] == (
        "1-5-Epoch 2/3 completed in 3.0 seconds\n"
        "1:6:Validation Loss: nan, Validation Accuracy: 0.2000\n"
        "1-7-Epoch Throughput: 200.000 images/second\n"
        "--\n"
        "2-2-Epoch 1/3 completed in 3.0 seconds\n"
        "2:3:Validation Loss: 0.8, Validation Accuracy: 0.1000\n"
        "2-4-Epoch Throughput: 200.000 images/second\n"
    )
    assert run("logs", "1", "--grep", "nosuch") == (1, "", "")
    (home / "error").write_text("oops\n")
    with contextlib.closing(sqlite3.connect(home / "orchestrator.db")) as database, database:
        database.execute("UPDATE jobs SET stderr_path = ?", (str(home / "error"),))
    assert run("logs", "1", "--grep", "")[1].endswith("1 stderr:1:oops\n")
    assert run("logs", "1", "--attempt", "1")[2] == "the log has no attempt 1 of 1\n"
    assert run("logs", "1", "--attempt", "0", "-n", "1")[1] == (
        "Epoch Throughput: 300.000 images/second\n"
    )
    assert run("logs", "1", "2", "-f", "-n", "1") == (
        0,
        "1 | Epoch Throughput: 300.000 images/second\n"
        "2 | Epoch Throughput: 600.000 images/second\n",
        "",
    )
    for options, message in (
        (["--grep", "["], "--grep: '[' is not a regular expression: unterminated character set"),
        (["--all"], "--all requires --grep"),
        (["--grep", "x", "-f"], "--grep reads whole logs: remove --follow and --lines"),
    ):
        code, _, err = run("logs", *(["1"] if "--all" not in options else []), *options)
        assert (code, message in err) == (2, True)


def test_sparkline() -> None:
    values = [0.0, 1.0, None, 7.9, 8.0, float("inf")]
    assert summaries.sparkline(values) == "▁▂x██x"
    assert summaries.sparkline(values, summaries.ASCII) == "_.x##x"
    assert summaries.sparkline([3.0, 3.0]) == "▅▅"


def test_statistics_of_very_large_numbers() -> None:
    summary = summaries.Summary(name="loss")
    for value in (1e308, 1e308, -1e308, 1e308):
        summary.add(value)
    assert (summary.of("mean"), summary.of("std")) == (5e307, 1e308)
