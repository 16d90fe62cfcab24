"""Ratios, each measured in one run on one machine; script/bench calls it."""

from __future__ import annotations

import argparse
import importlib
import sys

#: What can be measured: module of this package, and help.
MEASURED = {
    "start-up": ("startup", "--help and status against the imports that they cannot do without"),
    "metrics": ("numbers", "metrics of one job in a million numbers, against one with none"),
    "submit": ("submissions", "an array and single jobs against submitit and sbatch, on the lab"),
    "logs": ("logs", "large logs, from bytes to rows, against grep with the same patterns"),
    "service": ("service", "the controller with 10,000 jobs that wait and run: processor, memory"),
    "trainer": ("trainer", "the trainer against a loop written as source S2's is"),
}


def main() -> int:
    """Run the benchmark that was asked for."""
    parser = argparse.ArgumentParser(
        prog="script/bench", formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parsers = parser.add_subparsers(required=True, metavar="WHAT", dest="what")
    wanted = next((word for word in sys.argv[1:] if word in MEASURED), None)
    for name, (module, told) in MEASURED.items():
        one = parsers.add_parser(
            name, help=told, formatter_class=argparse.ArgumentDefaultsHelpFormatter
        )
        # The trainer's needs torch, which the environment of the others has not.
        if name == wanted:
            measured = importlib.import_module(f"tests.benchmarks.{module}")
            measured.add_arguments(one)
            one.set_defaults(run=measured.run)
    arguments = parser.parse_args()
    return arguments.run(arguments)


if __name__ == "__main__":
    sys.exit(main())
