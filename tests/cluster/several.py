"""Run several `orchestrator` commands in one process: Python starts once.

    several.py <LINES       a line is a JSON list, the arguments of one command

Prints one line for each: its exit code and its last line of output.
"""

import contextlib
import io
import json
import sys

from orchestrator import cli, errors


def run(argv):
    """Run one command; return its exit code and its last word."""
    captured = io.StringIO()
    sys.argv = ["orchestrator", *argv]
    try:
        with contextlib.redirect_stdout(captured):
            cli.cli(argv, standalone_mode=False)
    except errors.OrchestratorError as error:
        return error.exit_code, str(error).splitlines()[-1]
    return 0, captured.getvalue().rstrip().rpartition("\n")[2]


if __name__ == "__main__":
    for line in sys.stdin:
        print(*run(json.loads(line)), flush=True)
