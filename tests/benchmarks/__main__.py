"""Speed ratios, each measured in one run on one machine; for script/bench."""

from __future__ import annotations

import argparse
import importlib
import os
import sys

#: Benchmark -> its module and help.
MEASURED = {
    "start-up": ("startup", "--help and status, relative to importing their libraries"),
    "metrics": ("numbers", "queries of one job's metrics among a million"),
    "submit": ("submissions", "an array and single jobs, relative to submitit and sbatch"),
    "logs": ("logs", "reading large logs into the database, relative to grep"),
    "service": ("service", "CPU and memory of the controller with 10,000 pending and running jobs"),
    "prune": ("prune", "how long the removal of rows keeps other writers waiting"),
    "web": (
        "web",
        "CPU of web pages with 10,000 jobs, and of pages that are only open",
    ),
    "top": ("top", "CPU of `top` until its first list of jobs, and while nothing changes"),
    "remote": ("remote", "calls with --host over an open connection of ssh, relative to the host"),
    "snapshots": ("snapshots", "snapshots of code, relative to git add"),
    "trainer": ("trainer", "the trainer, relative to a loop written like source S2"),
}


def main() -> int:
    """Run one benchmark."""
    parser = argparse.ArgumentParser(
        prog="script/bench", formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parsers = parser.add_subparsers(required=True, metavar="WHAT", dest="what")
    selected = next((word for word in sys.argv[1:] if word in MEASURED), None)
    for name, (module, description) in MEASURED.items():
        subparser = parsers.add_parser(
            name, help=description, formatter_class=argparse.ArgumentDefaultsHelpFormatter
        )
        # Only the trainer's module needs torch.
        if name == selected:
            benchmark = importlib.import_module(f"tests.benchmarks.{module}")
            benchmark.add_arguments(subparser)
            subparser.set_defaults(run=benchmark.run)
    arguments = parser.parse_args()
    # Users have bytecode: compiling takes most of the time of an import.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    return arguments.run(arguments)


if __name__ == "__main__":
    sys.exit(main())
