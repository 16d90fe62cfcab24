"""Read the dumps of PyTorch's flight recorder in a run folder: flight.TASK.ATTEMPT.RANK."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from pathlib import Path

from orchestrator import files, jobs
from orchestrator.clocks import deadlines
from orchestrator.controller.diagnosis import rank_files
from orchestrator.diagnosis import flight_recorder
from orchestrator.diagnosis.records import Evidence, Finding, Level, Source

_NAME = re.compile(r"flight\.(\d{1,10})\.(\d{1,10})\.(\d{1,6})", re.ASCII)
_LIMIT_BYTES = 32 * 1024 * 1024
#: What the dumps explain.
CAUSES = frozenset({"nccl_timeout", "gloo_timeout"})


def findings(
    job: jobs.Job, found: Sequence[Finding], deadline: deadlines.Deadline
) -> tuple[Finding, ...]:
    """Return what the dumps show about a timeout that the logs show."""
    timeout = next((finding for finding in found if finding.cause in CAUSES), None)
    if timeout is None:
        return ()
    own = job.array_task_id or 0, job.attempt
    dumps: dict[int, flight_recorder.Dump] = {}
    for file in rank_files.entries(Path(job.run_dir)):
        match = _NAME.fullmatch(file.name)
        if match is None or (int(match[1]), int(match[2])) != own or deadline.is_over:
            continue
        # Of a damaged dump it is only known that it exists.
        dumps[int(match[3])] = flight_recorder.Dump(collectives=(), ranks=frozenset())
        with contextlib.suppress(OSError, ValueError):
            data = files.read_bytes(file, limit_bytes=_LIMIT_BYTES)
            dumps[int(match[3])] = flight_recorder.parse(data)
    result = flight_recorder.judge(dumps)
    if result is None or deadline.is_over:
        # Of ranks whose dumps were not read nothing is known.
        return ()
    path = str(Path(job.run_dir, f"flight.{own[0]}.{own[1]}.*"))
    text = f"flight recorder: {len(dumps)} dumps"
    return (
        Finding(
            cause="collective_mismatch" if result.is_mismatch else timeout.cause,
            rule="flight-recorder",
            evidence=Evidence(text=text, source=Source.LOG, path=path),
            rank=result.rank,
            summary=result.sentence,
            level=Level.TIMEOUT,
        ),
    )
