"""Columns of squeue, sacct and scontrol -> values; what cannot be read is None, never an error."""

from __future__ import annotations

import dataclasses
import datetime
import re

_DURATION = re.compile(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?(?:\.\d+)?", re.ASCII)
_COUNT = re.compile(r"(\d+(?:\.\d+)?)([KMGTP]?)", re.ASCII)
_GPU = re.compile(r"(?:gres[/:])?gpu(?:[:=]([^:=,]+))?(?:[:=]([^:=,]+))?")
_EXIT_CODE = re.compile(r"(\d{1,4}):(\d{1,4})", re.ASCII)
_PATTERN = re.compile(r"%(\d*)(.?)", re.ASCII | re.DOTALL)
#: An epoch or a number of seconds longer than this is no time.
_LONGEST_DIGITS = 12
#: What is beyond these bounds cannot be stored, and no Slurm means it.
_FIRST_YEAR, _LAST_YEAR = 1970, 2999
_LARGEST_COUNT = 2**31 - 1
_LARGEST_AMOUNT = 2**63 - 1
_LONGEST_SECONDS = 60 * 2**32


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExitCode:
    """How a job or a step ended: `STATUS:SIGNAL`."""

    code: int
    signal: int


def parse_exit_code(raw: str) -> ExitCode | None:
    """Read `3:0` or `0:53`.

    From sacct up to 25.05 a status of 128 and more lacks its 128: `9:0` is 9 or 137 (Slurm commit
    831571cb84); the exit record and squeue know better.
    """
    found = _EXIT_CODE.fullmatch(raw.strip())
    return None if found is None else ExitCode(code=int(found[1]), signal=int(found[2]))


def parse_wait_status(raw: str) -> ExitCode | None:
    """Read squeue's exit_code: a wait status (`35072`) in 22.05, `137:0` in 24.11 and later."""
    if ":" in raw:
        return parse_exit_code(raw)
    status = parse_count(raw)
    if status is None or status > 0xFFFF:
        return None
    # WTERMSIG and WEXITSTATUS; bit 7 says that a core was dumped.
    return ExitCode(code=(status >> 8) & 0xFF, signal=status & 0x7F)


def parse_time(raw: str) -> datetime.datetime | None:
    """Read a time stamp: epoch seconds (SLURM_TIME_FORMAT=%s), or ISO in UTC as TZ=UTC makes it.

    Unknown, None, N/A, Invalid, an empty column, 0 and a time before 1970 or after 2999 are None.
    """
    found = _time(raw.strip())
    return found if found is not None and _FIRST_YEAR <= found.year <= _LAST_YEAR else None


def _time(text: str) -> datetime.datetime | None:
    if text.isascii() and text.isdigit():
        if len(text) > _LONGEST_DIGITS or int(text) == 0:
            return None
        try:
            return datetime.datetime.fromtimestamp(int(text), datetime.UTC)
        except (ValueError, OverflowError, OSError):
            return None
    try:
        return datetime.datetime.strptime(text, "%Y-%m-%dT%H:%M:%S").replace(tzinfo=datetime.UTC)
    except ValueError:
        return None


def parse_duration_seconds(raw: str) -> int | None:
    """Read `[D-]HH:MM:SS`, `MM:SS`, `D-HH`; UNLIMITED, Partition_Limit, INVALID are None."""
    found = _DURATION.fullmatch(raw.strip())
    if found is None or any(len(part or "") > _LONGEST_DIGITS for part in found.groups()):
        return None
    days, first, second, third = (int(part) if part else None for part in found.groups())
    parts = [part for part in (first, second, third) if part is not None]
    if days is not None:
        hours, minutes, seconds = [*parts, 0, 0][:3]
    elif len(parts) == 3:
        hours, minutes, seconds = parts
    else:
        # man squeue: a time without days is [HOURS:]MINUTES:SECONDS; a lone number is minutes.
        hours, (minutes, seconds) = 0, [*parts, 0][:2]
    total = (days or 0) * 86400 + hours * 3600 + minutes * 60 + seconds
    return total if total <= _LONGEST_SECONDS else None


def parse_minutes_as_seconds(raw: str) -> int | None:
    """Read sacct's TimelimitRaw, in minutes."""
    minutes = parse_count(raw)
    return None if minutes is None else minutes * 60


def parse_count(raw: str) -> int | None:
    """Read a number of things (nodes, CPUs, restarts); None where it is missing or too large."""
    amount = parse_amount(raw)
    return amount if amount is not None and amount <= _LARGEST_COUNT else None


def parse_amount(raw: str) -> int | None:
    """Read a number that may be large (bytes, joules, a priority), with a suffix such as `4K`."""
    found = _COUNT.fullmatch(raw.strip())
    if found is None or len(found[1]) > _LONGEST_DIGITS:
        return None
    amount = int(float(found[1]) * 1024 ** " KMGTP".index(found[2] or " "))
    return amount if amount <= _LARGEST_AMOUNT else None


def parse_gpus(raw: str) -> int | None:
    """Count the GPUs in a TRES list or a gres list; None where it names none.

    `gres/gpu=4,gres/gpu:a100=4` is 4 (the total and its parts), `gpu:a100:4(S:0-1)` is 4,
    `gpu:a100:2,gpu:v100:1` is 3, `gpu` is 1.
    """
    total: int | None = None
    typed: int | None = None
    for item in re.sub(r"\([^)]*\)", "", raw).split(","):
        found = _GPU.fullmatch(item.strip())
        if found is None:
            continue
        numbers = [parse_count(part) for part in found.groups() if part is not None]
        count = numbers[-1] if numbers and numbers[-1] is not None else 1
        has_type = found[1] is not None and parse_count(found[1]) is None
        if has_type:
            typed = (typed or 0) + count
        else:
            total = (total or 0) + count
    return total if total is not None else typed


def parse_tres(raw: str) -> dict[str, str]:
    """Read a list of trackable resources: `cpu=4,mem=1200M,node=2,gres/gpu=4`."""
    pairs = (item.partition("=") for item in raw.strip().split(","))
    return {name.strip(): value.strip() for name, _, value in pairs if value}


def parse_cpus(raw: str) -> int | None:
    """Return the CPUs in a TRES list; None where it names none."""
    return parse_count(parse_tres(raw).get("cpu", ""))


def parse_text(raw: str) -> str | None:
    """Return the text, or None for the words Slurm prints where there is none."""
    text = raw.strip()
    return None if text in _NOTHING else text


_NOTHING = frozenset({"", "N/A", "None", "None assigned", "(null)", "Unknown", "n/a"})


def expand_output_path(
    pattern: str, *, name: str, job_id: str | None, array_job_id: str | None, task: int | None
) -> str | None:
    """Fill in a log file's `%j`, `%A`, `%a`, `%x` as Slurm does; None where that is not enough.

    squeue prints the pattern as it was given (seen on 22.05, 24.11 and 26.05), and 26.05 a
    relative one without its folder.
    """
    values = {
        "j": job_id,
        "J": job_id,
        "A": array_job_id or job_id,
        "a": None if task is None else str(task),
        "x": name,
        "%": "%",
    }
    missing = False

    def fill(found: re.Match[str]) -> str:
        nonlocal missing
        value = values.get(found[2])
        if value is None:
            missing = True
            return ""
        return value.zfill(min(int(found[1] or 0), 10)) if value.isdigit() else value

    path = _PATTERN.sub(fill, pattern.strip())
    return path if path.startswith("/") and not missing else None
