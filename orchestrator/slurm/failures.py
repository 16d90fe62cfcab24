"""Failed commands of Slurm -> errors that name the cause and the fix."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence

from orchestrator import errors
from orchestrator.processes import process

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
#: Texts measured on 22.05, 24.11 and 26.05 with slurmctld, slurmdbd and munged stopped or hung.
_UNREACHABLE = re.compile(
    r"Unable to contact slurm controller|Socket timed out|Protocol authentication error"
    r"|Munge encode failed|Zero Bytes were transmitted|Connection (?:refused|reset|timed out)"
    r"|(?:Message|Communication) \w+ failure|Rate limit exceeded|configuration source"
    r"|Problem talking to the database"
)
_ACCOUNTING_DISABLED = re.compile(r"accounting storage is disabled", re.IGNORECASE)
_UNKNOWN_JOB = re.compile(r"Invalid job id specified")
#: scontrol prints this on stdout, with exit code 1, for an unknown task of a known array.
_UNKNOWN_TASK = re.compile(r"Job \S+ not found\s*")
#: Failures with exit code 0 (scontrol write batch_script).
_SILENT_FAILURE = re.compile(r"job script retrieval failed|Problem talking to the database")
_MAX_CHARACTERS = 500


class AccountingDisabled(errors.SlurmError):
    """This cluster has no accounting database (AccountingStorageType=accounting_storage/none)."""


class Unreachable(errors.SlurmError):
    """slurmctld or slurmdbd does not respond."""


class MissingCommandError(errors.SlurmError):
    """A command of Slurm is not on PATH."""


def run(
    argv: Sequence[str],
    timeout_seconds: float,
    environ: Mapping[str, str],
    *,
    die_with_parent: bool = False,
    folder: str | None = None,
) -> process.Result:
    """Run a command of Slurm like process.run().

    Raises MissingCommandError, or another SlurmError if it cannot be started.
    """
    try:
        return process.run(
            argv, timeout_seconds, environ, die_with_parent=die_with_parent, folder=folder
        )
    except process.CommandNotFound as exc:
        if isinstance(exc.__cause__, FileNotFoundError):
            raise MissingCommandError(
                f"{exc}. On a cluster, use a login node and put Slurm's commands on PATH (load the "
                "Slurm module)."
            ) from exc
        raise errors.SlurmError(f"{exc}.") from exc
    except process.TooMuchOutputError as exc:
        raise errors.SlurmError(str(exc)) from exc


def failure(result: process.Result) -> errors.SlurmError | None:
    """Return the error of a failed command; None if it succeeded."""
    command = result.command
    text = message(result)
    detail = f": {text.rstrip('.')}" if text else ""
    if result.timed_out:
        return Unreachable(
            f"{command} {ending(result)}{detail}. "
            "Slurm is busy or down. Nothing is lost; try again later."
        )
    if result.returncode == 0 and not _SILENT_FAILURE.search(result.stderr):
        return None
    if _ACCOUNTING_DISABLED.search(result.stderr):
        return AccountingDisabled(
            "this cluster has no accounting (sacct: Slurm accounting storage is disabled); "
            "job states come only from squeue and the exit records"
        )
    if _UNREACHABLE.search(result.stderr):
        daemon = "slurmdbd" if command == "sacct" else "slurmctld"
        return Unreachable(
            f"{command} could not reach {daemon}{detail}. "
            "Nothing is lost; try again later, or ask the site's administrators."
        )
    command_line = " ".join(map(ascii, result.argv))
    return errors.SlurmError(
        f"{command} {ending(result)}{detail}. To see more, run the same command: {command_line}"
    )


def ending(result: process.Result) -> str:
    """Return how a command failed: "failed with exit code 1"."""
    if result.timed_out:
        return f"timed out after {result.seconds:.0f} s"
    if result.returncode < 0:
        return f"was killed by signal {-result.returncode}"
    return f"failed with exit code {result.returncode}"


def is_unknown_job(result: process.Result) -> bool:
    """Return whether Slurm has no job with that ID (any more)."""
    if result.timed_out:
        return False
    match = _UNKNOWN_JOB.search(result.stderr) or _UNKNOWN_TASK.fullmatch(result.stdout)
    return match is not None


def without_unknown_jobs(result: process.Result) -> process.Result:
    """Return scancel's result without its lines about unknown jobs; success if none is left."""
    if result.timed_out or not is_unknown_job(result):
        return result
    lines = [line for line in result.stderr.splitlines() if not _UNKNOWN_JOB.search(line)]
    stderr = "\n".join(line for line in lines if line.strip())
    return dataclasses.replace(result, stderr=stderr, returncode=result.returncode if stderr else 0)


def message(result: process.Result) -> str:
    """Return the command's stderr as one printable line."""
    prefix = re.compile(rf"^(?:{re.escape(result.command)}: )?(?:error: |fatal: )?")
    lines = (prefix.sub("", printable(line)) for line in result.stderr.splitlines())
    text = "; ".join(dict.fromkeys(line for line in lines if line))
    return text if len(text) <= _MAX_CHARACTERS else text[:_MAX_CHARACTERS] + "..."


def printable(text: str) -> str:
    """Return text without control characters, safe for a terminal."""
    return _CONTROL.sub("", text).strip()
