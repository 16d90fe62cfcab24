"""What a command that failed said -> an error with a sentence and a cure."""

from __future__ import annotations

import dataclasses
import re

from orchestrator import errors
from orchestrator.slurm import process

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
#: Texts measured on 22.05, 24.11 and 26.05 with slurmctld, slurmdbd and munged stopped or hung.
_AWAY = re.compile(
    r"Unable to contact slurm controller|Socket timed out|Protocol authentication error"
    r"|Munge encode failed|Zero Bytes were transmitted|Connection (?:refused|reset|timed out)"
    r"|(?:Message|Communication) \w+ failure|Rate limit exceeded|configuration source"
    r"|Problem talking to the database"
)
_NO_ACCOUNTS = re.compile(r"accounting storage is disabled", re.IGNORECASE)
_UNKNOWN_JOB = re.compile(r"Invalid job id specified")
#: `scontrol show job` on stdout, with exit code 1, where it knows the array and not the task.
_UNKNOWN_TASK = re.compile(r"Job \S+ not found\s*")
#: These write their failure to stderr and end with 0 all the same (scontrol write batch_script).
_SILENT_FAILURE = re.compile(r"job script retrieval failed|Problem talking to the database")
_SHOWN_CHARACTERS = 500


class AccountingDisabled(errors.SlurmError):
    """This cluster keeps no accounts (AccountingStorageType=accounting_storage/none)."""


class Unreachable(errors.SlurmError):
    """slurmctld or slurmdbd does not answer."""


def failure(answer: process.Answer) -> errors.SlurmError | None:
    """Return the error that an answer is, or None for a good one."""
    command = answer.command
    text = said(answer)
    if answer.timed_out:
        return Unreachable(
            f"{command} was given up after {answer.seconds:.0f} s{_saying(text)}. "
            "Slurm is busy or away; nothing is lost, try again later."
        )
    if answer.returncode == 0 and not _SILENT_FAILURE.search(answer.stderr):
        return None
    if _NO_ACCOUNTS.search(answer.stderr):
        return AccountingDisabled(
            "this cluster keeps no accounts (sacct: Slurm accounting storage is disabled); "
            "states come from squeue and from the exit records alone"
        )
    if _AWAY.search(answer.stderr):
        daemon = "slurmdbd" if command == "sacct" else "slurmctld"
        return Unreachable(
            f"{command} could not reach {daemon}{_saying(text)}. "
            "Nothing is lost; try again later, or ask the site's administrators."
        )
    if answer.returncode < 0:
        ending = f"was ended by signal {-answer.returncode}"
    else:
        ending = f"failed with exit code {answer.returncode}"
    cure = "Run the same command by hand to see more: " + " ".join(map(ascii, answer.argv))
    return errors.SlurmError(f"{command} {ending}{_saying(text)}. {cure}")


def is_unknown_job(answer: process.Answer) -> bool:
    """Return whether the command says that Slurm has no job with that ID (any more)."""
    if answer.timed_out:
        return False
    told = _UNKNOWN_JOB.search(answer.stderr) or _UNKNOWN_TASK.fullmatch(answer.stdout)
    return told is not None


def less_unknown_jobs(answer: process.Answer) -> process.Answer:
    """Return the answer without complaints about jobs that Slurm has no more; good without others.

    Of scancel, which complains of each of its jobs on a line.
    """
    if answer.timed_out or not is_unknown_job(answer):
        return answer
    lines = [line for line in answer.stderr.splitlines() if not _UNKNOWN_JOB.search(line)]
    stderr = "\n".join(line for line in lines if line.strip())
    return dataclasses.replace(answer, stderr=stderr, returncode=answer.returncode if stderr else 0)


def said(answer: process.Answer) -> str:
    """Return what the command wrote to stderr in one line, fit to be shown."""
    prefix = re.compile(rf"^(?:{re.escape(answer.command)}: )?(?:error: |fatal: )?")
    lines = (prefix.sub("", plain(line)) for line in answer.stderr.splitlines())
    text = "; ".join(dict.fromkeys(line for line in lines if line))
    return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "..."


def plain(text: str) -> str:
    """Return text without control characters: a wrapper's output goes to a terminal."""
    return _CONTROL.sub("", text).strip()


def _saying(text: str) -> str:
    return f": {text.rstrip('.')}" if text else ""
