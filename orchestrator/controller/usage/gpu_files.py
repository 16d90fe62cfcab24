"""What the monitor and nvidia-smi wrote of a job's GPUs: found, and read within bounds."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from orchestrator import files, jobs
from orchestrator.tracking import run_folder
from orchestrator.usage import gpus

#: Of all files of a job: a reading of each GPU every five seconds makes 1.4 MB a GPU and day.
LIMIT_BYTES = 64 * 1024 * 1024
#: More files than a job has nodes were not meant.
_MOST_FILES = 256
_HEAD_BYTES = 16 * 1024
_LINE_BYTES = 4096


def figures(job: jobs.Job, spec: jobs.JobSpec, papers: Mapping[str, Any]) -> list[gpus.Figures]:
    """Return what is known of each GPU, by host and number; `papers`: the job's provenance."""
    # Relative paths count from where the job runs.
    folder = Path(str(papers.get("folder") or ""), spec.chdir or "")
    found = {**_own(job), **_named(job, spec.metrics.gpu_csv, folder)}
    each_bytes = LIMIT_BYTES // max(1, len(found))
    told = [one for path, host in found.items() for one in _read(path, host, each_bytes)]
    return sorted(told, key=lambda one: (one.host, len(one.index), one.index))


def _own(job: jobs.Job) -> dict[Path, str]:
    # gpu.HOST.csv; gpu.HOST.LOCAL_RANK.csv where each rank sees its own GPU alone, always as the
    # first one; in an array gpu.TASK.HOST.csv. trainers/monitor.py writes them.
    task = "" if job.array_task_id is None else f".{job.array_task_id}"
    name = re.compile(rf"gpu{re.escape(task)}\.(?P<host>.+?)(?:\.(?P<rank>\d{{1,3}}))?\.csv")
    try:
        names = sorted(os.listdir(job.run_dir))
    except OSError:
        return {}
    matches = [match for match in map(name.fullmatch, names) if match]
    return {
        Path(job.run_dir, match[0]): f"{match['host']}{_rank(match['rank'])}"
        for match in matches[:_MOST_FILES]
    }


def _rank(rank: str | None) -> str:
    return "" if rank is None else f" rank {rank}"


def _named(job: jobs.Job, patterns: Sequence[str], folder: Path) -> dict[Path, str]:
    if job.job_id is None or not patterns:
        return {}
    name = run_folder.name_in_slurm(job)
    found: dict[Path, str] = {}
    for pattern in patterns:
        filled = run_folder.expand(pattern, job_id=job.job_id, raw_job_id=job.raw_job_id, name=name)
        paths = sorted(glob.glob(os.path.join(folder, filled))) if filled else []
        for path in map(Path, paths[:_MOST_FILES]):
            # Nothing in the file says whose it is.
            one_node = job.nodes == 1 and len(paths) == 1
            found[path] = (job.node_list or path.stem) if one_node else path.stem
    return found


def _read(path: Path, host: str, limit_bytes: int) -> list[gpus.Figures]:
    reader = gpus.Reader()
    try:
        with files.open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            if size > limit_bytes:
                # Its head says what the columns are; of the rest the newest part is read.
                reader.read([file.readline(_HEAD_BYTES).decode(errors="replace")])
                file.seek(size - limit_bytes)
                file.readline(_LINE_BYTES)
            reader.read(_lines(iter(lambda: file.readline(_LINE_BYTES), b""), limit_bytes))
    except OSError:
        return []
    return reader.figures(host)


def _lines(lines: Iterator[bytes], limit_bytes: int) -> Iterator[str]:
    left = limit_bytes
    for line in lines:
        left -= len(line)
        if left < 0:
            # It grew while it was read.
            return
        yield line.decode(errors="replace")
