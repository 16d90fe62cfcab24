"""`sweep results` of a stored sweep and its logs, in this process: the exact text."""

from __future__ import annotations

import csv
import datetime
import json
from pathlib import Path

import pytest
from click import testing

from orchestrator import config, jobs, specs, sweeps
from orchestrator.controller.session import stores
from orchestrator.toml import documents
from tests import builders
from tests.unit.cli.conftest import Run

NOW = datetime.datetime(2026, 11, 21, 8, 0, tzinfo=datetime.UTC)
SPEC = """\
[job]
name = "grid"
[launch]
script = "train.py"
[metrics]
patterns = ["olivia"]
[sweep]
kind = "grid"
axes.args.lr = [0.1, 0.01, 1.0]
axes.args.seed = [1, 2]
"""
EPOCH = (
    "Epoch {0}/3 completed in 1.0 seconds\n"
    "Validation Loss: {1}, Validation Accuracy: {2}00\n"
    "Epoch Throughput: {3}.000 images/second\n"
)
#: Losses and accuracies by epoch of the points; the last point was never submitted. In the order
#: of the points: lr 0.1, 0.01, 1.0, each with seeds 1 and 2.
POINTS = (
    (jobs.JobState.COMPLETED, (("0.9", "0.50"), ("0.4", "0.80"), ("0.5", "0.78"))),
    (jobs.JobState.COMPLETED, (("0.8", "0.55"), ("0.3", "0.84"), ("0.6", "0.80"))),
    (jobs.JobState.COMPLETED, (("0.9", "0.40"), ("0.7", "0.60"), ("0.5", "0.70"))),
    (jobs.JobState.COMPLETED, (("0.9", "0.42"), ("0.7", "0.62"), ("0.5", "0.74"))),
    (jobs.JobState.FAILED, (("0.9", "0.90"), ("nan", "0.10"))),
)


def add_job(store: stores.Store, number: int, text: str, **fields: object) -> jobs.Job:
    folder = Path.cwd() / f"run{number}"
    folder.mkdir()
    banner = (
        f"=== orchestrator grid job {number} task 0 attempt 0 on n1 at 2026-11-21T08:00:00Z ===\n"
    )
    (folder / "log").write_text(banner + text)
    spec = jobs.JobSpec(name="grid", metrics=jobs.Metrics(patterns=("olivia",)))
    record = builders.make_submission(
        number, NOW, name="grid", spec=specs.to_json(spec), run_dir=str(folder)
    )
    with store.writing() as work:
        (job,) = work.jobs.add_submission(
            record,
            sweep="grid",
            settled=True,
            job_id=str(number),
            stdout_path=str(folder / "log"),
            **fields,
        )
    return job


def log(epochs: tuple[tuple[str, str], ...], first: int = 1) -> str:
    return "".join(
        EPOCH.format(epoch, *values, 100 * epoch) for epoch, values in enumerate(epochs, first)
    )


@pytest.fixture
def home(home: Path, database_file: Path) -> Path:
    document, problems = documents.parse(SPEC, "grid.toml")
    with stores.Store(database_file) as store:
        with store.writing() as work:
            stored = work.sweeps.add(
                sweeps.expand(document, config.Profile(name="lab"), problems),
                profile="lab",
                cluster="lab",
                scheduler="slurm",
                source="grid.toml",
                folder=str(home),
                created_at=NOW,
            )
        for number, (state, epochs) in enumerate(POINTS, 1):
            job = add_job(store, number, log(epochs), state=state)
            assign(store, stored.row, number, job)
    return home


def assign(store: stores.Store, row: int, number: int, job: jobs.Job) -> None:
    with store.writing() as work:
        point = sweeps.points_of(work.sweeps.points(row))[number - 1]
        assert work.sweeps.assign_jobs(row, [point], [job.row])


ASKED = ("sweep", "results", "grid", "--no-refresh")
NOT_COUNTED = "Not counted: 1 FAILED run, 1 not submitted; --unfinished counts what they reported\n"
MEANS = "Rows are means over seed; ± is the 95 % confidence interval of the mean (Student's t)\n"


def test_table(run: Run) -> None:
    options = ("--metric", "val_acc", "--metric", "val_loss@val_accuracy", "--format", "table")
    code, out, err = run(*ASKED, *options)
    assert [line.rstrip() for line in out.splitlines()] == [
        "RANK  POINT  LR    VAL_ACCURACY  VAL_LOSS@VAL_ACCURACY  RUNS  STATE",
        "1     1      0.1   0.79 ± 0.13   0.35 ± 0.64            2     COMPLETED",
        "2     3      0.01  0.72 ± 0.25   0.5 ± 0                2     COMPLETED",
        "      5      1.0   0.1           0.9                    0/2   1 FAILED, 1 not submitted",
    ]
    assert (code, err) == (
        0,
        "val_accuracy: last value of each run; higher is better\n"
        "val_loss@val_accuracy: val_loss where val_accuracy is highest; lower is better\n"
        f"{MEANS}{NOT_COUNTED}"
        "No clear winner: the intervals of lr=0.1 (0.79 ± 0.13) and lr=0.01 (0.72 ± 0.25) "
        "overlap\n",
    )


def test_without_a_metric_the_usual_one_is_shown(run: Run) -> None:
    _, out, err = run(*ASKED, "--each", "--best", "2")
    assert out == (
        "rank\tpoint\tlr\tseed\tval_accuracy\tstate\tjob_id\n"
        "1\t2\t0.1\t2\t0.8\tCOMPLETED\t2\n"
        "2\t1\t0.1\t1\t0.78\tCOMPLETED\t1\n"
    )
    assert err == (
        "--metric val_accuracy; other metrics: epoch_time, throughput, val_loss\n"
        "val_accuracy: last value of each run; higher is better\n"
        f"{NOT_COUNTED}"
    )


def test_sorted_and_reversed(run: Run) -> None:
    def points(*options: str) -> list[str]:
        out = run(*ASKED, "--metric", "val_loss:best", "--each", "--format", "csv", *options)[1]
        return [row["point"] for row in csv.DictReader(out.splitlines())]

    assert points() == ["2", "1", "3", "4", "5", "6"]
    assert points("--reverse") == ["5", "3", "4", "1", "2", "6"]
    assert points("--sort", "seed", "--best", "3") == ["1", "3", "2"]
    assert points("--sort", "lr") == ["3", "4", "2", "1", "5", "6"]
    assert points("--direction", "max") == ["1", "3", "4", "2", "5", "6"]
    assert points("--unfinished")[-1] == "6"


def test_unfinished_runs_count_if_asked(run: Run) -> None:
    options = ("--metric", "val_accuracy:best", "--format", "csv", "--unfinished")
    _, out, err = run(*ASKED, *options)
    first = next(csv.DictReader(out.splitlines()))
    assert (first["rank"], first["lr"], first["val_accuracy:best"]) == ("1", "1.0", "0.9")
    assert (first["runs"], first["state"]) == ("1/2", "1 FAILED, 1 not submitted")
    assert "Counted with what they reported: 1 FAILED run, 1 not submitted\n" in err


def test_json(run: Run) -> None:
    _, out, _ = run(*ASKED, "--metric", "val_accuracy:best", "--best", "1", "--json")
    listed = json.loads(out)
    assert (listed["schema"], listed["kind"]) == ("orchestrator/v1", "sweep_results")
    (item,) = listed["items"]
    metric = item["metrics"].pop("val_accuracy:best")
    assert metric.pop("value") == pytest.approx(0.82)
    # t(0.975, 1) = 12.7062 of half the difference.
    assert metric.pop("high") - 0.82 == pytest.approx(12.7062 * 0.02, rel=1e-5)
    assert metric.pop("low") == pytest.approx(0.82 - 12.7062 * 0.02, rel=1e-5)
    assert metric == {
        "name": "val_accuracy",
        "statistic": "max",
        "at": None,
        "direction": "max",
        "count": 2,
        "unit": "",
    }
    first, _ = item.pop("runs")
    assert item == {
        "rank": 1,
        "point": 1,
        "parameters": {"args.lr": 0.1},
        "metrics": {},
        "is_final": True,
        "state": "COMPLETED",
    }
    assert first == {
        "number": 1,
        "name": first["name"],
        "repeat": 1,
        "settings": {"args.lr": 0.1, "args.seed": 1},
        "state": "COMPLETED",
        "job_id": "1",
        "row": 1,
        "metrics": {"val_accuracy:best": {"value": 0.8, "step": None, "epoch": 2}},
    }
    (nan,) = json.loads(run(*ASKED, "--metric", "val_loss", "--sort", "lr", "--json")[1])["items"][
        2:
    ]
    assert nan["metrics"]["val_loss"]["value"] == "NaN"


def test_files(run: Run, home: Path) -> None:
    options = ("--metric", "val_accuracy", "--metric", "throughput", "--best", "1", "--output")
    parquet = pytest.importorskip("pyarrow.parquet", reason="an environment made before")
    for name in ("x.csv", "x.md", "x.json", "x.parquet"):
        code, out, err = run(*ASKED, *options, name)
        assert (code, out, err.splitlines()[0]) == (0, "", f"Wrote 1 row to {name}")
    (row,) = csv.DictReader((home / "x.csv").read_text().splitlines())
    assert list(row) == [
        *("rank", "point", "lr", "val_accuracy", "val_accuracy_low", "val_accuracy_high"),
        *("val_accuracy_count", "throughput", "throughput_low", "throughput_high"),
        *("throughput_count", "runs", "state"),
    ]
    (stored,) = parquet.read_table(home / "x.parquet").to_pylist()
    assert (stored["lr"], stored["rank"], stored["throughput"]) == (0.1, 1, 200.0)
    assert str(stored["val_accuracy_low"]) == row["val_accuracy_low"]
    assert (home / "x.md").read_text() == (
        "| rank | point | lr | val\\_accuracy | throughput | runs | state |\n"
        "| --- | --- | --- | --- | --- | --- | --- |\n"
        "| 1 | 1 | 0.1 | 0.79 ± 0.13 | 200 ± 0 | 2 | COMPLETED |\n\n"
        "- val\\_accuracy: last value of each run; higher is better\n"
        "- throughput: median of each run, images/second; higher is better\n"
        "- Rows are means over seed; ± is the 95 % confidence interval of the mean (Student's t)\n"
    )


def test_plot(run: Run, home: Path) -> None:
    code, out, err = run(*ASKED, "--metric", "val_accuracy", "--each", "--plot", "x.svg")
    assert (code, out) == (0, "")
    assert err.startswith("x.svg: val_accuracy by lr, val_accuracy by seed\n")
    drawn = (home / "x.svg").read_text()
    for word in ("val_accuracy by lr", "lr", "0.01", "0.1", "seed=1", "lr=0.1"):
        assert f">{word}<" in drawn
    assert ">1<" in drawn and "lr=1.0" not in drawn
    assert run(*ASKED, "--plot", "x.gif")[2].endswith("the file must end in .svg, .png or .pdf\n")


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (
            ("--metric", "val_acuracy"),
            4,
            "Error: --metric: no run has a metric 'val_acuracy': did you mean val_accuracy? Names: "
            "epoch, epoch_time, throughput, val_accuracy, val_loss\n",
        ),
        (("--metric", "epoch:best"), 2, "epoch is best: write epoch:min or epoch:max\n"),
        (
            ("--metric", "epoch", "--best", "1"),
            2,
            "--best: it is not known whether a high or a low epoch is better; state --direction "
            "max or min\n",
        ),
        (("--sort", "no"), 2, "--sort: there is no column 'no': use val_accuracy, lr, point\n"),
        (("--over", "no"), 2, "--over: there is no parameter 'no'; use lr, seed\n"),
        (("--over", "lr", "--each"), 2, "--each shows single runs: remove --over\n"),
        (
            ("--output", "x.txt"),
            2,
            "use --format, or one of .tsv, .csv, .json, .jsonl, .md, .parquet\n",
        ),
        (("--plot", "x.svg", "--output", "x.csv"), 2, "remove --format and --output\n"),
        (("--plot", "x.svg", "--format", "csv"), 2, "remove --format and --output\n"),
    ],
)
def test_invalid_options(run: Run, options: tuple[str, ...], code: int, message: str) -> None:
    done, out, err = run(*ASKED, *options)
    assert (done, out) == (code, "")
    assert err.endswith(message)


def test_unknown_sweep(run: Run) -> None:
    assert run("sweep", "results", "other")[::2] == (
        4,
        "Error: sweep 'other' not found: `orchestrator sweep list` lists all sweeps\n",
    )


def test_continued_point_counts_once(run: Run, home: Path) -> None:
    """The second job continued after epoch 1, and replaces what the first reported after that."""
    with stores.Store(home / "orchestrator.db") as store:
        text = log((("0.2", "0.81"), ("0.1", "0.82")), first=2)
        later = add_job(store, 6, text, state=jobs.JobState.COMPLETED, continues=5)
        with store.writing() as work:
            work.sweeps.replace_jobs([(5, later.row)])
    options = ("--metric", "val_accuracy:best", "--metric", "val_accuracy:count", "--each")
    _, out, err = run(*ASKED, *options, "--best", "1", "--format", "csv")
    (row,) = csv.DictReader(out.splitlines())
    # Epoch 1 of the first job has 0.90.
    assert (row["point"], row["job_id"], row["val_accuracy:best"]) == ("5", "6", "0.9")
    assert row["val_accuracy:count"] == "3.0"
    assert "Not counted: 1 not submitted\n" in err


def test_point_that_was_run_again_counts_alone(run: Run, home: Path) -> None:
    with stores.Store(home / "orchestrator.db") as store:
        again = add_job(store, 6, log((("0.2", "0.33"),)), state=jobs.JobState.COMPLETED)
        assign(store, 1, 5, again)
    _, out, _ = run(*ASKED, "--metric", "val_accuracy:best", "--each", "--format", "csv")
    values = {row["point"]: row["val_accuracy:best"] for row in csv.DictReader(out.splitlines())}
    assert values["5"] == "0.33"


def test_sweep_without_metrics(run: Run, home: Path) -> None:
    for path in home.glob("run*/log"):
        path.write_text("")
    code, out, err = run(*ASKED, "--each", "--format", "csv")
    assert (code, out.splitlines()[:2]) == (
        0,
        ["rank,point,lr,seed,state,job_id", ",1,0.1,1,COMPLETED,1"],
    )
    assert err == (
        "Not counted: 1 FAILED run, 1 not submitted\n"
        "No metrics yet: no line of the logs matches a pattern (spec key metrics.patterns; "
        "`orchestrator logs --sweep @1` prints the logs)\n"
    )


def test_comparison_of_sweep_jobs_is_headed_by_parameters(run: Run, home: Path) -> None:
    asked = ("--compare", "--name", "val_accuracy")
    assert run("metrics", "1", "3", *asked)[1] == (
        "name\tunit\tstatistic\tlr=0.1\tlr=0.01\tlr=0.01 ratio\n"
        "val_accuracy\t\tlast\t0.78\t0.7\t0.8974358974358974\n"
    )
    assert run("metrics", "--sweep", "grid", *asked)[1].splitlines()[0].split("\t")[3:6] == [
        "lr=0.1 seed=1",
        "lr=0.1 seed=2",
        "lr=0.1 seed=2 ratio",
    ]
    (item,) = json.loads(run("metrics", "1", "3", *asked, "--json")[1])["items"]
    assert [(each["job_id"], each["label"]) for each in item["jobs"]] == [
        ("1", "lr=0.1"),
        ("3", "lr=0.01"),
    ]
    with stores.Store(home / "orchestrator.db") as store:
        other = add_job(store, 7, log((("0.5", "0.60"),)), state=jobs.JobState.COMPLETED)
        assert other.job_id == "7"
    # A job that no point has any more keeps its ID.
    assert run("metrics", "1", "3", "7", *asked)[1].splitlines()[0].split("\t")[3:] == [
        *("lr=0.1", "lr=0.01", "lr=0.01 ratio", "7", "7 ratio"),
    ]


def test_jobs_that_do_not_fit_side_by_side(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    # A terminal.
    monkeypatch.setattr(testing._NamedTextIOWrapper, "isatty", lambda self: True)
    monkeypatch.setenv("TERM", "dumb")
    asked = ("--compare", "--format", "table", "--name", "val_accuracy")
    monkeypatch.setenv("COLUMNS", "80")
    assert run("metrics", "1", "3", *asked)[1] == (
        "NAME          UNIT  STATISTIC  LR=0.1  LR=0.01  LR=0.01 RATIO\n"
        "val_accuracy        last       0.78    0.7      0.89744\n"
    )
    monkeypatch.setenv("COLUMNS", "70")
    listed = (
        "NAME          UNIT  STATISTIC  JOB             VALUE  RATIO\n"
        "val_accuracy        last       lr=0.1 seed=1   0.78   1\n"
        "val_accuracy        last       lr=0.1 seed=2   0.8    1.0256\n"
        "val_accuracy        last       lr=0.01 seed=1  0.7    0.89744\n"
        "val_accuracy        last       lr=0.01 seed=2  0.74   0.94872\n"
        "val_accuracy        last       lr=1.0 seed=1   0.1    0.12821\n"
    )
    assert run("metrics", "--sweep", "grid", *asked)[1] == listed
    monkeypatch.setenv("COLUMNS", "80")
    heading = run("metrics", "--sweep", "grid", *asked)[1].splitlines()[0]
    assert heading.split()[:2] == ["NAME", "LR=0.1"]
