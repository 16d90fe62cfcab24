"""Any command line ends with a documented exit code, without a traceback, within 10 seconds."""

from __future__ import annotations

import json
import os
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import fuzzing
from tests.flow import command_line, fuzzed_commands
from tests.flow.conftest import COMMANDS, FakeSlurm

SPEC = """\
[job]
name = "demo"
labels = ["a=b"]
time_limit = "30"
[launch]
launcher = "python"
script = "train.py"
"""
SWEEP = SPEC.replace("demo", "lr") + '[sweep]\nkind = "grid"\naxes.args.lr = [0.1, 0.01]\n'
GRAPH = """\
[graph]
name = "night"
[graph.nodes.a]
spec = "job.toml"
[graph.nodes.b]
sweep = "sweep.toml"
after_ok = ["a"]
"""
LOG = """\
Epoch 1/3 loss: 0.5 throughput: 120.5 samples/s
Epoch 2/3 loss: 0.4 throughput: 1e154 samples/s
Epoch 3/3 loss: nan throughput: -0.0 samples/s
"""
RECORDS = [
    *(
        {"step": 1, "loss": 0.5, "throughput": 1e154},
        {"step": 2, "loss": -0.0, "throughput": 1e308},
    ),
    *(
        {"step": 3, "loss": 5e-324},
        {"step": 2**70, "loss": 1},
        {"loss": 10**400},
        {"a": {"b": [[]]}},
    ),
]
FIGURES = "gpus,throughput,total_time\n"
WIDE = ("1e-29", "1e29", "1", "1e29", "1e-29")
EXTREME = ("1e154", "1e308", "1e-308", "5e-324", "1e154")


@pytest.fixture(scope="module")
def template(pycache: Path) -> Iterator[Path]:
    """A folder with what a user has: files, and a database with jobs, a sweep and a schedule."""
    hidden = [path for path in Path(__file__).parents if not path.stat().st_mode & 0o001]
    if os.geteuid() == 0 and hidden:
        # As another user; Alembic asks access(2) for its folder, which counts no capability.
        pytest.skip(f"another user cannot enter {hidden[-1]}, in which this checkout lies")
    with tempfile.TemporaryDirectory(prefix="orchestrator-fuzz-") as name:
        base = Path(name)
        base.chmod(0o755)
        folder = base / "template"
        folder.mkdir()
        (folder / "fake-slurm").mkdir()
        cluster = FakeSlurm(folder / "fake-slurm")
        cli = command_line.CommandLine(folder, cluster.environ, pycache)
        work = cli.folder
        for file, text in {
            "job.toml": SPEC,
            "sweep.toml": SWEEP,
            "graph.toml": GRAPH,
            "train.py": "print(1)\n",
            "train.sbatch": "#!/bin/bash\n#SBATCH --time=10\n#SBATCH -N 1\necho\n",
            "log.txt": LOG,
            "metrics.jsonl": "".join(json.dumps(record) + "\n" for record in RECORDS),
            "bad.toml": "[job\n",
            "deep.toml": "a = " + "[" * 400 + "]" * 400,
            "rules.toml": '[[rule]]\ncause = "oom"\nregex = "x"\n',
            "patterns.toml": '[own]\n[[own.line]]\nname = "x"\nregex = "loss (?P<loss>{number})"\n',
            "figures.csv": f"{FIGURES}1,150,2700\n2,250,1620\n4,450,900\n4,430,910\n",
            "extreme.csv": FIGURES + "".join(f"{2**n},{EXTREME[n]},1\n" for n in range(5)),
            "wide.csv": FIGURES + "".join(f"{2**n},{WIDE[n]},1\n" for n in range(5)),
            "hostile.csv": f'{FIGURES}{"9" * 5000},nan,inf\n\u00b2,"x,1\n-1,1e309,\x00\n',
        }.items():
            (work / file).write_text(text, encoding="utf-8")
        for words in (
            ["submit", "job.toml"],
            ["submit", "job.toml", "--name", "two"],
            ["submit", "job.toml"],
            ["sweep", "submit", "sweep.toml"],
            ["schedule", "add", "nightly", "--cron", "@yearly", "--tz", "UTC", "job.toml"],
            ["baseline", "set", "base", "--from", "figures.csv"],
            ["baseline", "set", "extreme", "--from", "wide.csv"],
        ):
            done = cli(*words)
            assert done.code in (0, 1), (words, done)
        jobs = cluster.jobs()
        for job in jobs[:2]:
            cluster.set_state(str(job["job_id"]), "COMPLETED")
        for run in cli.run_folders():
            (run / "metrics.jsonl").write_text((work / "metrics.jsonl").read_text())
            (run / "slurm-0.out").write_text(LOG)
        cli("status", "--refresh")
        cluster.set_state(str(jobs[0]["job_id"]), "COMPLETED")
        # `submit --wait` ends.
        cluster.complete_jobs()
        yield folder


def environ_of(folder: Path, *, slurm: bool) -> dict[str, str]:
    """Return the variables of a batch; without Slurm's commands it finds no program at all."""
    path = os.pathsep.join([str(COMMANDS), str(folder / "fake-slurm" / "bin"), os.defpath])
    return {
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        "USER": "alice",
        "XDG_CONFIG_DIRS": str(folder / "no-site"),
        "PATH": path if slurm else str(folder / "no-programs"),
        "EBROOTFAKESLURM": str(folder / "fake-slurm"),
        "ORCHESTRATOR_SCHEDULER": "slurm",
        "ORCHESTRATOR_POLL_FLOOR_SECONDS": "1",
        "ORCHESTRATOR_TRACEBACK": "1",
    }


def fuzz(template: Path, count: int) -> int:
    """Run `count` command lines; return their number. AssertionError lists those that failed."""
    seed, numbers = fuzzing.numbers_of(count)
    known = [
        command
        for command in fuzzed_commands.commands()
        if command[0] not in fuzzed_commands.LEFT_OUT
    ]
    cases = [
        (number, fuzzed_commands.command_line(random.Random(f"commands:{seed}:{number}"), known))
        for number in numbers
    ]
    size = fuzzed_commands.CASES_OF_A_BATCH
    failures = []
    for start in range(0, len(cases), size):
        folder = template.parent / f"batch-{start}"
        environ = environ_of(folder, slurm=start // size % 8 == 0)
        failures += fuzzed_commands.run_batch(
            template, folder, cases[start : start + size], environ
        )
    reported = {failure.err[-160:]: failure for failure in failures}
    assert not failures, f"{len(failures)} of {len(cases)}:\n" + "\n\n".join(
        f"ORCHESTRATOR_TEST_FUZZ={seed}:{item.number} orchestrator {[w[:80] for w in item.argv]}\n"
        f"  exit {item.code} after {item.seconds:.1f} s: {item.err[-1500:]}"
        for item in reported.values()
    )
    return len(cases)


def test_a_batch_with_slurm_submits_jobs_that_end(template):
    folder = template.parent / "batch-with-slurm"
    cases = [(fuzzed_commands.GOOD, ["submit", "job.toml", "--name", "x", "--wait"])]
    environ = environ_of(folder, slurm=True)
    assert fuzzed_commands.run_batch(template, folder, cases, environ) == []


def test_command_lines(template):
    assert fuzz(template, 240)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_many_command_lines(template):
    assert fuzz(template, 4000)
