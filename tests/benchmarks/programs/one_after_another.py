"""Seconds that single submissions of SPEC take in one process, in turns with sbatch of SCRIPT.

The arguments are SPEC, SCRIPT and how often; printed is a JSON list of each kind's seconds.
"""

import json
import subprocess
import sys
import time

import in_process


def sbatch(script: str) -> None:
    """Submit as a user does without us."""
    subprocess.run(["sbatch", "--parsable", script], check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    spec, script, repeats = sys.argv[1], sys.argv[2], int(sys.argv[3])
    context = in_process.open_context()
    ours, bare = [], []
    for number in range(repeats + 1):
        began = time.perf_counter()
        in_process.submit_spec(context, spec)
        between = time.perf_counter()
        sbatch(script)
        # The first opens the database and asks Slurm for its configuration.
        if number:
            ours.append(between - began)
            bare.append(time.perf_counter() - between)
    print(json.dumps([ours, bare]))
