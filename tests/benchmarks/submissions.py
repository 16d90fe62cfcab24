"""Submissions of held jobs on the test cluster with a real Slurm."""

from __future__ import annotations

import argparse
import json
import pathlib
import shutil
import sys
import tempfile

from tests.benchmarks import ratios
from tests.cluster import lab as cluster
from tests.cluster import machine, site

PROGRAMS = pathlib.Path(__file__).parent / "programs"
HOME = "/home/alice/bench"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--tasks", type=int, default=1000, help="tasks of the array")
    parser.add_argument("--jobs", type=int, default=30, help="number of single jobs")
    parser.add_argument("--release", default="24.11", help="release of Slurm")
    parser.add_argument(
        "--peer",
        metavar="DIR",
        help="srunx 5.0.0 and its dependencies, as `pip install --target DIR` leaves them",
    )


def run(arguments: argparse.Namespace) -> int:
    """Start a cluster and print the table; return 1 if a ratio exceeds its budget."""
    try:
        machine.require()
    except machine.Unavailable as error:
        print(f"no test cluster: {error}", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder:
        lab = cluster.Lab(pathlib.Path(folder), machine.lab_dir())
        lab.build(arguments.release)
        lab.up(arguments.release, tie_to_caller=True)
        try:
            lab.make_folder(HOME)
            alice = site.Site.make(lab, HOME)
            result = [
                *_arrays(alice, arguments.tasks, arguments.repeats),
                *_one_after_another(alice, arguments.jobs),
                *_complete_commands(alice, arguments.repeats, arguments.peer),
            ]
        finally:
            lab.down()
    print(f"Slurm {arguments.release}")
    print(ratios.table(result))
    return 0 if all(ratio.kept for ratio in result) else 1


def _program(alice: site.Site, name: str) -> list[str]:
    for needed in (name, "in_process.py"):
        alice.lab.write(f"{HOME}/{needed}", (PROGRAMS / needed).read_text())
    return [site.PYTHON, f"{HOME}/{name}"]


def _run(alice: site.Site, argv: list[str]) -> str:
    done = alice.lab.run(argv, env=alice.environ, cwd=HOME, timeout_seconds=300)
    done.check_returncode()
    return done.stdout


def _submit(alice: site.Site, spec: str) -> str:
    # In a process of its own: `Site.submit` forks one that has the modules.
    return _run(alice, ["orchestrator", "submit", spec])


def _arrays(alice: site.Site, count: int, repeats: int) -> list[ratios.Ratio]:
    """Measure the function call alone and the complete command."""
    tasks = "".join(f"  {{ number = {number} }},\n" for number in range(count))
    alice.lab.write(f"{HOME}/program.py", "import sys\n")
    spec = alice.spec(
        "array",
        '[job]\nname = "array"\ntime_limit = "5"\n'
        '[launch]\nlauncher = "python"\nscript = "program.py"\n'
        "[sbatch]\nhold = true\n"
        f"[array]\ntasks = [\n{tasks}]\n",
    )
    ours = [*_program(alice, "one_submission.py"), spec]
    theirs = [*_program(alice, "map_array.py"), f"{HOME}/mapped", str(count)]
    cancel = ["scancel", "-u", "alice"]
    seconds: tuple[list[float], list[float]] = ([], [])
    for number in range(repeats + 1):
        # submitit's watcher queries all jobs of a process, so each call has its own process.
        for argv, kept in zip((ours, theirs), seconds, strict=True):
            took = json.loads(_run(alice, argv))
            alice.lab.run(cancel).check_returncode()
            if number:
                kept += took
    call = ratios.Ratio(
        label=f"an array of {count} tasks, imports left out / submitit's `map_array`",
        ours_seconds=seconds[0],
        bare_seconds=seconds[1],
        budget=1.2,
    )
    whole = ratios.measure(
        f"`orchestrator submit` of it / Python with submitit and `map_array({count})`",
        lambda: _submit(alice, spec),
        lambda: _run(alice, theirs),
        repeats=repeats,
        budget=None,
        after=lambda: alice.lab.run(cancel).check_returncode(),
    )
    return [call, whole]


def _single(alice: site.Site) -> tuple[str, str]:
    spec = alice.shell("single", "true", sbatch="hold = true")
    alice.lab.write(f"{HOME}/bare.sh", "#!/bin/bash\n#SBATCH --hold --time=5\ntrue\n")
    return spec, f"{HOME}/bare.sh"


def _one_after_another(alice: site.Site, count: int) -> list[ratios.Ratio]:
    spec, script = _single(alice)
    program = _program(alice, "one_after_another.py")
    ours, bare, floor = json.loads(_run(alice, [*program, spec, script, str(count)]))
    one = ratios.Ratio(
        label=f"{count} single jobs in one process, each / `sbatch`",
        ours_seconds=ours,
        bare_seconds=bare,
        budget=3.0,
    )
    # No budget: it shows the share of the disk and of the fork.
    least = ratios.Ratio(
        label="a run folder, a durable commit, `sbatch` and a commit, nothing else / `sbatch`",
        ours_seconds=floor,
        bare_seconds=bare,
        budget=None,
    )
    return [one, least]


def _complete_commands(alice: site.Site, repeats: int, peer: str | None) -> list[ratios.Ratio]:
    spec, script = _single(alice)
    ours = "`orchestrator submit` with Python's start"
    imports = "import click, jinja2, sqlalchemy, submitit"
    measured = [
        ratios.measure(
            f"{ours} / `{imports}`",
            lambda: _submit(alice, spec),
            lambda: _run(alice, [site.PYTHON, "-c", imports]),
            repeats=repeats,
            budget=1.3,
        ),
        ratios.measure(
            f"{ours} / `sbatch`",
            lambda: _submit(alice, spec),
            lambda: _run(alice, ["sbatch", "--parsable", script]),
            repeats=repeats,
            budget=None,
        ),
    ]
    if peer is not None:
        folder = f"{HOME}/peer"
        shutil.copytree(peer, alice.lab.path(folder), dirs_exist_ok=True)
        srunx = (
            f"import sys; sys.path.insert(0, {folder!r}); from srunx.cli.main import main; main()"
        )
        measured.append(
            ratios.measure(
                f"{ours} / `srunx sbatch`",
                lambda: _submit(alice, spec),
                lambda: _run(alice, ["python3", "-c", srunx, "sbatch", script]),
                repeats=repeats,
                budget=1.0,
            )
        )
    return measured
