"""Values in the output of Slurm's commands; each parser returns None for what it cannot read."""

from __future__ import annotations

import datetime
import itertools
import re
from collections.abc import Iterable, Iterator

from orchestrator.toml import values

_COUNT = re.compile(r"(\d+(?:\.\d+)?)([KMGTP]?)", re.ASCII)
_GPU = re.compile(r"(?:gres[/:])?gpu(?:[:=]([^:=,]+))?(?:[:=]([^:=,]+))?")
_EXIT_CODE = re.compile(r"(\d{1,4}):(\d{1,4})", re.ASCII)
#: A part of a list of hosts. Commas inside brackets do not separate parts.
_HOSTS = re.compile(r"(?:[^,\[\]]|\[[^\]]*\])+")
_BRACKETS = re.compile(r"\[([^\]]*)\]")
#: What Slurm prints for a missing value.
_MISSING = frozenset({"", "N/A", "None", "None assigned", "(null)", "Unknown", "n/a"})
# Larger values do not fit into the database, and Slurm never means them.
_MAX_DIGITS = 12
_MAX_YEAR = 2999
_MAX_COUNT = 2**31 - 1
_MAX_AMOUNT = 2**63 - 1
#: No job has more nodes.
_MAX_HOSTS = 100_000


def parse_exit_code(raw: str) -> tuple[int, int] | tuple[None, None]:
    """Parse `3:0` or `0:53`: exit code and signal.

    sacct up to 25.05 subtracts 128 from codes of 128 and more: `9:0` is 9 or 137 (Slurm commit
    831571cb84). squeue and the exit record have the full code.
    """
    match = _EXIT_CODE.fullmatch(raw.strip())
    return (None, None) if match is None else (int(match[1]), int(match[2]))


def parse_wait_status(raw: str) -> tuple[int, int] | tuple[None, None]:
    """Parse squeue's exit_code: a wait status (`35072`) in 22.05, `137:0` in 24.11 and later."""
    if ":" in raw:
        return parse_exit_code(raw)
    status = parse_count(raw)
    if status is None or status > 0xFFFF:
        return None, None
    # WEXITSTATUS and WTERMSIG. Bit 7 is set if a core was dumped.
    return (status >> 8) & 0xFF, status & 0x7F


def parse_time(raw: str) -> datetime.datetime | None:
    """Parse a time stamp: epoch seconds (SLURM_TIME_FORMAT=%s), or ISO in UTC (TZ=UTC)."""
    text = raw.strip()
    try:
        if text.isascii() and text.isdigit():
            time = datetime.datetime.fromtimestamp(int(text), datetime.UTC)
        else:
            time = datetime.datetime.strptime(text, "%Y-%m-%dT%H:%M:%S")
            time = time.replace(tzinfo=datetime.UTC)
    except (ValueError, OverflowError, OSError):
        return None
    return time if time.timestamp() > 0 and time.year <= _MAX_YEAR else None


def parse_duration_seconds(raw: str) -> int | None:
    """Parse `[D-]HH:MM:SS`, `MM:SS`, `D-HH` or minutes; UNLIMITED and the like are None."""
    try:
        return values.seconds(raw.strip())
    except ValueError:
        return None


def parse_count(raw: str) -> int | None:
    """Parse a number of things (nodes, CPUs, restarts), at most 2^31 - 1."""
    amount = parse_amount(raw)
    return amount if amount is not None and amount <= _MAX_COUNT else None


def parse_amount(raw: str) -> int | None:
    """Parse a number that may be large (bytes, joules, a priority), with a suffix such as `4K`."""
    match = _COUNT.fullmatch(raw.strip())
    if match is None or len(match[1]) > _MAX_DIGITS:
        return None
    amount = int(float(match[1]) * 1024 ** " KMGTP".index(match[2] or " "))
    return amount if amount <= _MAX_AMOUNT else None


def parse_gpus(raw: str) -> int | None:
    """Count the GPUs in a TRES or gres list; None if it contains none.

    `gres/gpu=4,gres/gpu:a100=4` is 4 (the total and its parts), `gpu:a100:4(S:0-1)` is 4,
    `gpu:a100:2,gpu:v100:1` is 3, `gpu` is 1.
    """
    total: int | None = None
    typed: int | None = None
    for item in re.sub(r"\([^)]*\)", "", raw).split(","):
        match = _GPU.fullmatch(item.strip())
        if match is None:
            continue
        numbers = [parse_count(part) for part in match.groups() if part is not None]
        count = numbers[-1] if numbers and numbers[-1] is not None else 1
        if match[1] is not None and parse_count(match[1]) is None:
            typed = (typed or 0) + count
        else:
            total = (total or 0) + count
    return total if total is not None else typed


def parse_tres(raw: str) -> dict[str, str]:
    """Parse a list of trackable resources: `cpu=4,mem=1200M,node=2,gres/gpu=4`."""
    pairs = (item.partition("=") for item in raw.strip().split(","))
    return {name.strip(): value.strip() for name, _, value in pairs if value}


def parse_cpus(raw: str) -> int | None:
    """Return the number of CPUs in a TRES list."""
    return parse_count(parse_tres(raw).get("cpu", ""))


def parse_text(raw: str) -> str | None:
    """Return the text; None for the words that Slurm prints for a missing value."""
    text = raw.strip()
    return None if text in _MISSING else text


def expand_hosts(node_list: str) -> list[str]:
    """Return the hosts of `gpu[01-03,07],login1`; numbers keep leading zeros."""
    parts = map(_expand_brackets, _HOSTS.findall(node_list))
    return [host for part in parts for host in itertools.islice(part, _MAX_HOSTS)]


def _expand_brackets(part: str) -> Iterator[str]:
    brackets = _BRACKETS.search(part)
    if brackets is None:
        yield part
        return
    for item in brackets[1].split(","):
        first, _, last = item.partition("-")
        numbers: Iterable[str] = [item]
        if first.isdecimal() and last.isdecimal():
            count = range(int(first), int(last) + 1)
            numbers = (str(number).zfill(len(first)) for number in count)
        for number in numbers:
            yield from _expand_brackets(part[: brackets.start()] + number + part[brackets.end() :])
