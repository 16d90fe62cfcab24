"""A Slurm cluster on this machine, for tests and interactive use.

python3 -m tests.cluster COMMAND, with COMMAND one of

  build              make the root file system, the image and the Python environment (cached)
  up                 start hosts ctl, n1..n4 and all daemons; they stay until `down`
  down               end everything
  status             what runs
  run CMD...         run CMD on the login host as root
  as USER CMD...     run CMD on the login host as alice, bob or carol
  on HOST CMD...     run CMD on a host as root
  cut NODE           take a node off the network
  heal NODE          put it back
  shell [USER]       a shell on the login host, by default as alice
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Sequence

from tests.cluster import configuration, lab, machine, root

COMMANDS = ("build", "up", "down", "status", "run", "as", "on", "cut", "heal", "shell")


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The command line; what follows the command stays as it is."""
    parser = argparse.ArgumentParser(
        prog="python3 -m tests.cluster",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("command", choices=COMMANDS, metavar="COMMAND")
    parser.add_argument("words", nargs=argparse.REMAINDER, metavar="...")
    for action in (parser,):
        action.add_argument("--release", choices=sorted(root.SUITES), default=None)
        action.add_argument("--state", type=pathlib.Path, default=None, metavar="DIR")
        action.add_argument("--fresh", action="store_true", help="build anew, not from the cache")
        action.add_argument("--no-accounting", action="store_true", help="up: without slurmdbd")
    options = parser.parse_args(argv)
    if options.command in ("build", "up", "down", "status") and options.words:
        # REMAINDER swallows options that stand after the command.
        before = [word for word in argv if word not in options.words and word != options.command]
        return parse([*before, *options.words, options.command])
    return options


def main(argv: Sequence[str]) -> int:
    """Run a command; return the exit code."""
    options = parse(argv)
    cache = machine.lab_dir()
    where = lab.Lab(options.state or cache / "run", cache)
    release = options.release or machine.slurm_release()
    words = options.words
    if options.command == "build":
        print(*where.build(release, fresh=options.fresh), sep="\n")
    elif options.command == "up":
        if options.fresh:
            where.build(release, fresh=True)
        started = time.monotonic()
        where.up(release, accounting=not options.no_accounting)
        print(f"Slurm {release} is up after {time.monotonic() - started:.1f} s. Try:", flush=True)
        print("  python3 -m tests.cluster as alice sbatch --wrap hostname")
    elif options.command == "down":
        where.down()
    elif options.command == "status":
        return status(where)
    elif options.command in ("cut", "heal"):
        if len(words) != 1 or words[0] not in configuration.HOSTS:
            raise machine.LabError(f"{options.command} takes one of {configuration.HOSTS}.")
        getattr(where.attach(), options.command)(words[0])
    else:
        return go(where.attach(), options.command, words)
    return 0


def status(where: lab.Lab) -> int:
    """Print what runs; 1 when nothing does."""
    if not where.alive():
        print(f"No cluster runs in {where.state}.")
        return 1
    print(f"Slurm {where.settings.release} in {where.state}")
    print(json.dumps(where.daemons_alive(), indent=2))
    print(where.run(["sinfo"], user="root").stdout, end="")
    return 0


def go(where: lab.Lab, command: str, words: Sequence[str]) -> int:
    """Run the words of `run`, `as`, `on` and `shell` on this terminal; returns their exit code."""
    user, host, argv = "root", configuration.LOGIN_HOST, list(words)
    if command == "as":
        user, *argv = argv or [""]
    elif command == "on":
        host, *argv = argv or [""]
    elif command == "shell":
        user, argv = (argv or ["alice"])[0], ["bash", "-i"]
    if user not in ("root", *configuration.USERS) or host not in configuration.HOSTS or not argv:
        raise machine.LabError("Say who or where, and what: as USER CMD..., on HOST CMD...")
    env = {"TERM": os.environ.get("TERM", "dumb")}
    return subprocess.call(where.command(argv, user=user, host=host, env=env))


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except machine.LabError as error:
        print(f"lab: {error}", file=sys.stderr)
        sys.exit(1)
