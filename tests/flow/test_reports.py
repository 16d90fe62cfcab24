"""Reports and baselines of completed jobs: from `sweep submit` to the exact table."""

from __future__ import annotations

import html
import json
import sqlite3

import pytest

from tests.flow import command_line

SPEC = """\
[job]
name = "study"
time_limit = "10"
[launch]
launcher = "python"
script = "train.py"
[args]
batch_size = 64
[sweep]
kind = "strong"
gpus = [1, 2, 4]
gpus_per_node = 4
repeats = 2
"""
#: 1,000 samples a second on a GPU, 5 % serial; the second repeat is 1 % faster. Of 4 GPUs the
#: second repeat fails.
TRAIN = """\
import json, os, pathlib, sys
gpus, task = int(os.environ["SLURM_GPUS_ON_NODE"]), int(os.environ["SLURM_ARRAY_TASK_ID"])
if (gpus, task) == (4, FAILING):
    sys.exit(3)
speed = SPEED * 1000 * gpus / (1 + 0.05 * (gpus - 1)) * (1 + 0.01 * task)
def write_metric(name, value, **fields):
    with open(os.environ["ORCHESTRATOR_METRICS_FILE"], "a") as file:
        record = {"name": name, "value": value, "unit": "", "rank": 0, "world_size": gpus, **fields}
        print(json.dumps(record), file=file)
for epoch in (1, 2, 3):
    for window in (1, 2, 3):
        write_metric("window_throughput", speed * (0.99 + 0.005 * window), step=10 * epoch + window)
        write_metric("step_time", 64 / speed, step=10 * epoch + window)
        write_metric("data_wait_share", 0.02 * gpus, step=10 * epoch + window)
    write_metric("epoch_time", 36000 / speed * (2 if epoch == 1 else 1), epoch=epoch)
    write_metric("val_accuracy", 0.6 + 0.05 * epoch, epoch=epoch)
write_metric("total_time", 120000 / speed)
for rank in range(gpus):
    write_metric("gpu_memory_reserved_peak", 2**30 * (1 + rank), rank=rank)
folder = pathlib.Path(os.environ["ORCHESTRATOR_RUN_DIR"])
(folder / f"result.{task}.json").write_text(json.dumps({
    "environment": {"mode": "single" if gpus == 1 else "ddp", "torch": "2.13", "device": "H100"},
    "settings": {"precision": "bf16", "batch_size": 64},
}))
(folder / f"gpu.{task}.n1.csv").write_text(
    "timestamp, index, utilization.gpu [%]\\nnow, 0, 90 %\\nnow, 1, 80 %\\nnow, 2, [N/A]\\n"
)
"""


@pytest.fixture
def study(cli, fake_slurm):
    """Run the sweep; `failing`: the task of 4 GPUs that ends badly."""
    fake_slurm.run_jobs()

    def run(name="study", speed=1.0, failing=-1):
        text = TRAIN.replace("SPEED", str(speed)).replace("FAILING", str(failing))
        (cli.folder / "train.py").write_text(text)
        spec = cli.spec(SPEC.replace('"study"', f'"{name}"'), f"{name}.toml")
        assert cli("sweep", "submit", spec, "--yes").code == 0
        cli("wait", "--sweep", name)

    return run


def test_report_of_a_sweep(cli, fake_slurm, study, tmp_path):
    study(failing=1)
    done = cli("sweep", "report", "study", "--format", "table", "--to", tmp_path / "r")
    assert done.code == 0
    table = done.out.split("\n\n")[0].splitlines()
    expected = (command_line.CHECKOUT / "tests/data/study_table.txt").read_text()
    assert "".join(f"{line.rstrip()}\n" for line in table) == expected
    assert (
        done.out.split("\n\n", 1)[1]
        == """\
Warnings
  left out (FAILED): 5_1
  not repeated: 4 GPUs

Fits
  Amdahl's law: 1006 samples/s on 1 GPU (95 % CI 994.2 to 1017); serial fraction 0.05187 \
(0.04318 to 0.06075); RMS deviation 0.6 %
  Experimentally determined serial fraction (Karp-Flatt metric): 0.05000 (0.01869 to 0.08227) at \
2; 0.05191 (0.03789 to 0.06646) at 4 GPUs
  Efficiency stays above 80.0 % up to 5 GPUs (by Amdahl's law, extrapolated beyond the 4 measured)

Method
  5 runs, 3 points of 1 to 2 repeats each, 45 windows; 95 % confidence intervals
  speedup is relative to 1 GPU, 1005 samples/s
  strong scaling: the global batch is the same at all sizes
  left out as warm-up: the first window of each attempt
  throughput measured in the trainer (metrics.jsonl): 5 runs
  same in all runs: batch_size=64, device=H100, mode=ddp, partition=gpu, precision=bf16, \
program=train.py, torch=2.13
"""
    )
    folder = tmp_path / "r"
    figures = ("speedup", "efficiency", "throughput", "steps", "utilisation")
    assert {path.name for path in folder.iterdir()} == {
        *(f"report.{kind}" for kind in ("md", "tex", "csv", "json", "html")),
        *(f"{figure}.{kind}" for figure in figures for kind in ("svg", "png", "pdf", "csv")),
    }
    assert (folder / "steps.csv").read_text().splitlines()[-1] == "all else,bars,4,16.928,,"
    assert html.escape("left out (FAILED): 5_1") in (folder / "report.html").read_text()
    # What was written is what the other forms print.
    as_json = cli("sweep", "report", "study", "--json")
    assert as_json.items == json.loads((folder / "report.json").read_text())
    assert as_json.items[0]["points"][2]["memory_bytes"].count(";") == 3


def test_nothing_measured(cli, fake_slurm):
    fake_slurm.run_jobs()
    (cli.folder / "train.py").write_text("print('no numbers')\n")
    cli("sweep", "submit", cli.spec(SPEC), "--yes", "--wait")
    done = cli("sweep", "report", "study")
    assert (done.code, done.out, done.err) == (
        4,
        "",
        "Error: sweep study (@1): nothing is measured yet\n"
        "left out (no throughput found): 1_0, 1_1, 3_0, 3_1, 5_0 and 1 more\n",
    )


def test_unknown_baseline(cli):
    message = "Error: baseline 'x' not found: `orchestrator baseline show` lists all baselines\n"
    for words in (("show", "x"), ("show", "x", "--all")):
        done = cli("baseline", *words)
        assert (done.code, done.err) == (4, message)


def test_a_baseline_outlives_its_jobs(cli, fake_slurm, study):
    study()
    done = cli("baseline", "set", "monday", "--sweep", "study")
    assert (done.code, done.out, done.err) == (
        0,
        "Baseline monday: 6 runs of sweep study (@1)\n",
        "",
    )
    with sqlite3.connect(cli.database) as database:
        database.execute("DELETE FROM metric_lines")
    database.close()
    study("again", speed=0.9)
    done = cli("baseline", "compare", "--sweep", "again", "--against", "monday", "--json")
    assert done.code == 1
    # Below the report, though this is no terminal.
    compared = cli("sweep", "report", "again", "--against", "monday", "--metric", "accuracy")
    assert compared.code == 0
    assert compared.out.index("\nFits\n") < compared.out.index("\nCompared with monday\n")
    assert [(item["size"], item["metric"], item["verdict"]) for item in done.items] == [
        (1, "throughput", "slower"),
        (1, "accuracy", "no evidence"),
        (2, "throughput", "slower"),
        (2, "accuracy", "no evidence"),
        (4, "throughput", "slower"),
        (4, "accuracy", "no evidence"),
    ]
    assert done.err == (
        "95 % confidence intervals, joint for all 6 comparisons\n"
        "Error: worse than monday: throughput of 1 GPU is -10.0 % (-16.6 to -2.8 %); throughput "
        "of 2 GPUs is -10.0 % (-16.6 to -2.8 %); throughput of 4 GPUs is -10.0 % "
        "(-16.6 to -2.8 %)\n"
    )
    # A job against those of its name and size that came before its study.
    study("again", speed=0.9)
    done = cli("baseline", "compare", "17_1", "--history", "5", "--metric", "throughput")
    assert (done.code, done.err) == (
        0,
        "These runs show nothing worse than jobs 11_1, 11_0.\n",
    )
    assert cli("baseline", "compare", "11_1", "--history", "5").err == (
        "Error: no earlier job named again with this size completed\n"
    )


def test_history_is_of_the_same_number_of_ranks(cli, fake_slurm):
    # Without GPUs Slurm allocates none to any of them.
    fake_slurm.run_jobs()
    (cli.folder / "train.py").write_text(
        "import json, os\n"
        "ranks = int(os.environ['RANKS'])\n"
        "with open(os.environ['ORCHESTRATOR_METRICS_FILE'], 'a') as file:\n"
        "    for window in range(6):\n"
        "        record = {'name': 'window_throughput', 'value': 100.0 * ranks + window,\n"
        "                  'world_size': ranks, 'rank': 0, 'step': window}\n"
        "        print(json.dumps(record), file=file)\n"
    )
    for ranks in (1, 1, 2, 2, 1):
        spec = cli.spec(
            f'[job]\nname = "nightly"\ntime_limit = "10"\n[launch]\nnproc_per_node = {ranks}\n'
            f'command = "RANKS={ranks} python3 train.py"\n'
        )
        assert cli("submit", spec, "--wait").code == 0
    done = cli("baseline", "compare", "5", "--history", "2", "--metric", "throughput")
    assert done.err.endswith("These runs show nothing worse than jobs 2, 1.\n")
