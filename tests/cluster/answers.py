"""Slurm's output as rows: commands and parsers for the fields that tests use."""

from __future__ import annotations

SQUEUE_FIELDS = (
    *("JobID", "Name", "UserName", "State", "Reason", "Partition", "NodeList", "ArrayJobID"),
    *("ArrayTaskID", "Comment", "RestartCnt", "StdOut"),
)
SACCT_COLUMNS = (
    *("JobID", "JobIDRaw", "JobName", "State", "ExitCode", "NodeList", "Start", "End"),
    *("Comment", "Partition"),
)


def squeue_command(*options: str) -> list[str]:
    """All jobs of slurmctld, in all states."""
    layout = ",".join(f"{field}:|" for field in SQUEUE_FIELDS)
    # A later -t wins over an earlier one.
    return ["squeue", "-h", "-a", "-t", "all", "-O", layout, *options]


def parse_squeue(text: str) -> list[dict[str, str]]:
    """Rows by squeue's own long field names."""
    rows = [line.split("|") for line in text.splitlines()]
    return [dict(zip(SQUEUE_FIELDS, (c.strip() for c in row), strict=False)) for row in rows]


def sacct_command(job_id: str, *options: str) -> list[str]:
    """A job and its steps, every attempt."""
    return ["sacct", "-P", "-D", "-j", job_id, "-o", ",".join(SACCT_COLUMNS), *options]


def parse_sacct(text: str) -> list[dict[str, str]]:
    """Rows by column name."""
    head, *rows = text.splitlines()
    return [dict(zip(head.split("|"), row.split("|"), strict=True)) for row in rows]


def parse_scontrol_show(text: str) -> dict[str, str]:
    """The first KEY=VALUE of each key in `scontrol show job -o`; a value ends at a space."""
    result: dict[str, str] = {}
    for word in text.split():
        key, equals, value = word.partition("=")
        if equals:
            result.setdefault(key, value)
    return result
