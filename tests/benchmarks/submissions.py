"""Submissions on a real Slurm, the lab of the cluster tests; nothing of them runs."""

from __future__ import annotations

import argparse
import json
import pathlib
import sys
import tempfile

from tests.benchmarks import ratios
from tests.cluster import lab as cluster
from tests.cluster import machine, site

PROGRAMS = pathlib.Path(__file__).parent / "programs"
HOME = "/home/alice/bench"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what can be chosen."""
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--tasks", type=int, default=1000, help="of the array")
    parser.add_argument("--jobs", type=int, default=30, help="single jobs, one after another")
    parser.add_argument("--release", default="24.11", help="of Slurm")


def run(arguments: argparse.Namespace) -> int:
    """Start a lab, print the table; 1 when a ratio is over its budget."""
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
            found = [
                _array(alice, arguments.tasks, arguments.repeats),
                _one_after_another(alice, arguments.jobs),
                _whole_commands(alice, arguments.repeats),
            ]
        finally:
            lab.down()
    print(f"Slurm {arguments.release}")
    print(ratios.table(found))
    return 0 if all(ratio.kept for ratio in found) else 1


def _program(alice: site.Site, name: str) -> str:
    path = f"{HOME}/{name}"
    alice.lab.write(path, (PROGRAMS / name).read_text())
    return path


def _run(alice: site.Site, argv: list[str]) -> str:
    done = alice.lab.run(argv, env=alice.environ, cwd=HOME, timeout_seconds=300)
    done.check_returncode()
    return done.stdout


def _array(alice: site.Site, count: int, repeats: int) -> ratios.Ratio:
    program = _program(alice, "map_array.py")
    tasks = "".join(f"  {{ number = {number} }},\n" for number in range(count))
    alice.lab.write(f"{HOME}/program.py", "import sys\n")
    spec = alice.spec(
        "array",
        '[job]\nname = "array"\ntime_limit = "5"\n'
        '[launch]\nlauncher = "python"\nscript = "program.py"\n'
        "[sbatch]\nhold = true\n"
        f"[array]\ntasks = [\n{tasks}]\n",
    )
    return ratios.measure(
        f"an array of {count} tasks / submitit's `map_array`",
        lambda: alice.submit(spec),
        lambda: _run(alice, [site.PYTHON, program, f"{HOME}/mapped", str(count)]),
        repeats=repeats,
        budget=1.2,
        after=lambda: alice.lab.run(["scancel", "-u", "alice"]).check_returncode(),
    )


def _single(alice: site.Site) -> tuple[str, str]:
    spec = alice.shell("single", "true", sbatch="hold = true")
    alice.lab.write(f"{HOME}/bare.sh", "#!/bin/bash\n#SBATCH --hold --time=5\ntrue\n")
    return spec, f"{HOME}/bare.sh"


def _one_after_another(alice: site.Site, count: int) -> ratios.Ratio:
    program = _program(alice, "one_after_another.py")
    spec, script = _single(alice)
    ours, bare = json.loads(_run(alice, [site.PYTHON, program, spec, script, str(count)]))
    return ratios.Ratio(
        what=f"{count} single jobs in one process, each / `sbatch`",
        ours_seconds=ours,
        bare_seconds=bare,
        budget=2.0,
    )


def _whole_commands(alice: site.Site, repeats: int) -> ratios.Ratio:
    spec, script = _single(alice)
    return ratios.measure(
        "`orchestrator submit`, the start of Python with it / `sbatch`",
        lambda: alice.submit(spec),
        lambda: _run(alice, ["sbatch", "--parsable", script]),
        repeats=repeats,
        budget=None,
    )
