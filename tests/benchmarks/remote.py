"""Calls of `orchestrator --host` over an open connection of ssh, on the test cluster."""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import statistics
import sys
import tempfile

from tests.cluster import lab as cluster
from tests.cluster import laptop, machine, site

PROGRAM = pathlib.Path(__file__).parent / "programs" / "calls.py"
HOME = "/home/alice/bench"
#: What the connection may add to a command, beyond the start of Python on this side: in starts of
#: Python, which other load slows down as much. On a machine that starts it in 15 ms, 0.15 s.
BUDGET_STARTS = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--calls", type=int, default=100)
    parser.add_argument("--release", default="24.11", help="release of Slurm")


def run(arguments: argparse.Namespace) -> int:
    """Start a cluster and print the table; return 1 if a call takes too long."""
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
            with laptop.connected(lab, alice) as remote:
                seconds = _seconds(remote, arguments.calls)
        finally:
            lab.down()
    return _print(seconds)


def _seconds(remote: laptop.Remote, calls: int) -> dict[str, list[float]]:
    lab = remote.site.lab
    lab.write(f"{HOME}/calls.py", PROGRAM.read_text())
    assert remote.ssh("-M", "-f", "-N", "-o", "ControlPersist=600").returncode == 0
    here = remote.site.environ
    commands: dict[str, tuple[list[str], dict[str, str]]] = {
        "start": ([site.PYTHON, "-c", "pass"], {}),
        "ssh": (["ssh", "-F", f"{remote.folder}/ssh_config", "mill", "true"], {}),
    }
    for words in (["status"], ["config", "show"]):
        name = " ".join(words)
        commands[f"{name} there"] = (["orchestrator", *words], here)
        commands[f"{name} from here"] = (["orchestrator", "--host", "mill", *words], {})
    argv = [site.PYTHON, f"{HOME}/calls.py", str(calls), json.dumps(list(commands.values()))]
    done = remote.on_laptop(argv, timeout_seconds=60 + 10 * calls)
    done.check_returncode()
    return dict(zip(commands, json.loads(done.stdout), strict=True))


def _print(seconds: dict[str, list[float]]) -> int:
    medians = {name: statistics.median(each) for name, each in seconds.items()}
    print(f"median of {len(seconds['start'])} calls; load average {os.getloadavg()[0]:.1f}\n")
    print("| what | seconds |\n|---|---|")
    print(f"| start of Python | {medians['start']:.3f} |")
    print(f"| `ssh mill true` | {medians['ssh']:.3f} |")
    is_kept = True
    for name in ("status", "config show"):
        there, here = medians[f"{name} there"], medians[f"{name} from here"]
        added = here - there - medians["start"]
        starts = added / medians["start"]
        is_kept = is_kept and starts <= BUDGET_STARTS
        print(f"| `orchestrator {name}` on the host | {there:.3f} |")
        print(f"| `orchestrator --host mill {name}` | {here:.3f} |")
        print(f"| the difference without the start of Python: {starts:.1f} starts | {added:.3f} |")
    print(f"\nBudget of the differences: {BUDGET_STARTS} starts of Python")
    return 0 if is_kept else 1
