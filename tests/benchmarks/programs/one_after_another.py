"""Seconds that single submissions of SPEC take in one process, in turns with sbatch of SCRIPT.

The arguments are SPEC, SCRIPT and how often; printed is a JSON list of each kind's seconds.
"""

import contextlib
import io
import json
import subprocess
import sys
import time

from orchestrator import cli


def submit(spec: str) -> None:
    """Submit as `orchestrator submit SPEC` does."""
    with contextlib.redirect_stdout(io.StringIO()):
        cli.cli(["submit", spec, "--parsable"], standalone_mode=False)


def sbatch(script: str) -> None:
    """Submit as a user does without us."""
    subprocess.run(["sbatch", "--parsable", script], check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    spec, script, repeats = sys.argv[1], sys.argv[2], int(sys.argv[3])
    ours, bare = [], []
    for number in range(repeats + 1):
        began = time.perf_counter()
        submit(spec)
        between = time.perf_counter()
        sbatch(script)
        # The first pays for the imports.
        if number:
            ours.append(between - began)
            bare.append(time.perf_counter() - between)
    print(json.dumps([ours, bare]))
