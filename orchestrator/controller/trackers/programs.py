"""Runs the programs that need the package of a tracker, in the user's Python."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from orchestrator import errors, jobs
from orchestrator.controller.environments import attempts
from orchestrator.controller.session import contexts
from orchestrator.processes import process
from orchestrator.trackers import scripts

#: A large run takes minutes.
TIMEOUT_SECONDS = 1800.0
#: Exit code of the programs if the package cannot be imported.
_NO_PACKAGE = 3


class ProgramError(errors.OrchestratorError):
    """The program of a tracker failed."""


def python_of(context: contexts.Context, chain: Sequence[jobs.Job], given: str | None) -> str:
    """Return the Python that is given, else the newest that the jobs used and that is here."""
    if given is not None:
        return given
    for job in reversed(chain):
        for known in reversed(attempts.of_job(context, job)):
            python = known.environment.python
            if os.path.isabs(python) and os.access(python, os.X_OK):
                return python
    return sys.executable


def argv(python: str, script: str) -> list[str]:
    return [python, str(Path(scripts.__file__).with_name(f"{script}.py"))]


def run(
    python: str,
    package: str,
    request: Mapping[str, Any],
    environ: Mapping[str, str],
    timeout_seconds: float = TIMEOUT_SECONDS,
) -> dict[str, Any]:
    """Run the program of a package with this request and return its answer."""
    # The folder of the program is no place to import from.
    environ = {**environ, "PYTHONSAFEPATH": "1"}
    result = process.run(
        argv(python, f"{package}_export"),
        timeout_seconds,
        environ,
        die_with_parent=True,
        stdin=json.dumps(request).encode(),
    )
    return parse(python, package, result)


def parse(python: str, package: str, result: process.Result) -> dict[str, Any]:
    last = (result.stderr.strip().splitlines() or ["no message"])[-1]
    if result.timed_out:
        message = f"{package} did not finish in {result.seconds:.0f} s; what it wrote is kept"
        raise ProgramError(f"{message}, run the command again")
    if result.returncode == _NO_PACKAGE:
        raise ProgramError(
            f"{python} cannot import {package} ({last}): install it there with "
            f"`{python} -m pip install {package}`, or name another Python with --python"
        )
    if result.returncode:
        raise ProgramError(f"{package} failed with exit code {result.returncode}: {last}")
    try:
        answer: dict[str, Any] = json.loads(result.stdout.strip().splitlines()[-1])
    except (ValueError, IndexError) as error:
        raise ProgramError(f"{package} printed no answer: {last}") from error
    return answer
