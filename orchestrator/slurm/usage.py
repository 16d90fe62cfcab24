"""sacct: what one job used, of its steps."""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Sequence

from orchestrator.slurm import fields, job_ids, sacct
from orchestrator.usage import efficiency

_DELIMITER = "\x1f"
# TRESUsageInTot and not AveRSS: the sum over a step's tasks (man sacct, 22.05).
_COLUMNS = (
    "JobID",
    "Submit",
    "End",
    "ElapsedRaw",
    "TotalCPU",
    "NCPUS",
    "NNodes",
    "NTasks",
    "AllocTRES",
    "MaxRSS",
    "TRESUsageInTot",
    "ConsumedEnergyRaw",
)
_CPU_TIME = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+(?:\.\d+)?)", re.ASCII)
#: Larger is Slurm's "no value" (NO_VAL64), printed as a number by some releases.
_MOST_JOULES = 1 << 60

Row = dict[str, str]


def sacct_usage_command(job_id: str, since: datetime.datetime) -> list[str]:
    """Ask for all attempts of one job with their steps."""
    base = sacct.sacct_steps_command([job_id], since)
    form = base.index("-o") + 1
    return [*base[:form], ",".join(_COLUMNS), *base[form + 1 :]]


def parse_sacct_usage(
    lines: Sequence[str], submitted_at: datetime.datetime | None
) -> efficiency.Used | None:
    """Return what the attempt used that was submitted then (a requeue has a time of its own).

    Where none was, the newest attempt's; None where sacct knows no such job.
    """
    attempts: list[tuple[Row, list[Row]]] = []
    for line in lines:
        parts = line.split(_DELIMITER)
        if len(parts) != len(_COLUMNS):
            continue
        row = dict(zip(_COLUMNS, parts, strict=True))
        try:
            step = job_ids.parse_job_id(row["JobID"]).step
        except ValueError:
            continue
        if step is None:
            attempts.append((row, []))
        elif attempts:
            attempts[-1][1].append(row)
    if not attempts:
        return None
    same = [pair for pair in attempts if fields.parse_time(pair[0]["Submit"]) == submitted_at]
    return _used(*(same or attempts)[-1])


def _used(row: Row, steps: Sequence[Row]) -> efficiency.Used:
    tres = fields.parse_tres(row["AllocTRES"])
    nodes = fields.parse_count(row["NNodes"]) or 1
    asked = fields.parse_amount(tres.get("mem", ""))
    peaks = [peak for step in steps if (peak := _peak_bytes(step))]
    cpu_seconds = _cpu_seconds(row["TotalCPU"])
    joules = fields.parse_amount(row["ConsumedEnergyRaw"])
    return efficiency.Used(
        elapsed_seconds=fields.parse_count(row["ElapsedRaw"]),
        cpus=fields.parse_count(row["NCPUS"]),
        # jobacct_gather/none leaves 0 and no memory; no job takes no time at all.
        cpu_seconds=cpu_seconds or None,
        memory_peak_bytes=max(peaks, default=None),
        memory_asked_bytes=asked and asked // nodes,
        energy_joules=joules if joules and joules < _MOST_JOULES else None,
        complete=bool(steps) and all(fields.parse_time(one["End"]) for one in (row, *steps)),
    )


def _peak_bytes(step: Row) -> int | None:
    """Return the memory of a step on its fullest node, as far as sacct tells.

    MaxRSS is of one task. Of several on a node it is at most that many times as much, and at most
    the sum over all tasks; with a task a node, as torchrun has it, MaxRSS is exact.
    """
    largest = fields.parse_amount(step["MaxRSS"])
    if largest is None:
        return None
    tasks = fields.parse_count(step["NTasks"]) or 1
    a_node = math.ceil(tasks / (fields.parse_count(step["NNodes"]) or 1))
    total = fields.parse_amount(fields.parse_tres(step["TRESUsageInTot"]).get("mem", ""))
    return min(largest * a_node, max(total or largest * a_node, largest))


def _cpu_seconds(raw: str) -> float | None:
    """Read TotalCPU: `[D-][HH:]MM:SS[.mmm]`."""
    found = _CPU_TIME.fullmatch(raw.strip())
    if found is None or len(raw) > 30:
        return None
    days, hours, minutes = (int(part or 0) for part in found.groups()[:3])
    return days * 86400 + hours * 3600 + minutes * 60 + float(found[4])
