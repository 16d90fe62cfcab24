"""Finds and reads the GPU samples of a job, written by the trainer's monitor or nvidia-smi."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from orchestrator import files, jobs
from orchestrator.files import run_folder
from orchestrator.usage import gpus

#: For all files of a job. One sample each five seconds makes 1.4 MB per GPU and day.
LIMIT_BYTES = 64 * 1024 * 1024
_MAX_FILES = 256
_HEAD_BYTES = 16 * 1024
_LINE_BYTES = 4096


def read(job: jobs.Job, spec: jobs.JobSpec, provenance: Mapping[str, Any]) -> list[gpus.GpuUsage]:
    """Return the usage of each GPU, ordered by host and index."""
    # Relative paths are relative to where the job runs.
    own = run_folder.RunFolder(Path(job.run_dir))
    folder = own.working_folder(spec, str(provenance.get("folder") or ""))
    named = {} if folder is None else _named_files(job, spec.metrics.gpu_csv, folder)
    hosts = {**_monitor_files(job), **named}
    limit_bytes = LIMIT_BYTES // max(1, len(hosts))
    usage = [gpu for path, host in hosts.items() for gpu in _read_file(path, host, limit_bytes)]
    return sorted(usage, key=lambda gpu: (gpu.host, len(gpu.index), gpu.index))


def _monitor_files(job: jobs.Job) -> dict[Path, str]:
    """Return the host of each file of trainers/tools/monitor.py in the run folder."""
    # gpu.HOST.csv, or gpu.HOST.LOCAL_RANK.csv if each rank sees only its own GPU, which then has
    # index 0. In an array gpu.TASK.HOST.csv.
    task = "" if job.array_task_id is None else f".{job.array_task_id}"
    name = re.compile(rf"gpu{re.escape(task)}\.(?P<host>.+?)(?:\.(?P<rank>\d{{1,3}}))?\.csv")
    try:
        names = sorted(os.listdir(job.run_dir))
    except OSError:
        return {}
    hosts = {}
    for match in [match for match in map(name.fullmatch, names) if match][:_MAX_FILES]:
        rank = f" rank {match['rank']}" if match["rank"] else ""
        hosts[Path(job.run_dir, match[0])] = f"{match['host']}{rank}"
    return hosts


def _named_files(job: jobs.Job, patterns: Sequence[str], folder: Path) -> dict[Path, str]:
    """Return the host of each file that the spec names."""
    if job.job_id is None or not patterns:
        return {}
    name = run_folder.name_in_slurm(job)
    hosts: dict[Path, str] = {}
    for pattern in patterns:
        filled = run_folder.expand(pattern, job_id=job.job_id, raw_job_id=job.raw_job_id, name=name)
        paths = sorted(glob.glob(os.path.join(folder, filled))) if filled else []
        # These files do not contain the host.
        host = job.node_list if job.nodes == 1 and len(paths) == 1 else None
        hosts.update({Path(path): host or Path(path).stem for path in paths[:_MAX_FILES]})
    return hosts


def _read_file(path: Path, host: str, limit_bytes: int) -> list[gpus.GpuUsage]:
    reader = gpus.Reader()
    try:
        with files.open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            if size > limit_bytes:
                # Of a large file the head and the end are read.
                reader.read([file.readline(_HEAD_BYTES).decode(errors="replace")])
                file.seek(size - limit_bytes)
                file.readline(_LINE_BYTES)
            reader.read(_lines(iter(lambda: file.readline(_LINE_BYTES), b""), limit_bytes))
    except OSError:
        return []
    return reader.usage(host)


def _lines(lines: Iterator[bytes], limit_bytes: int) -> Iterator[str]:
    """Yield lines up to the limit: the file may grow meanwhile."""
    left = limit_bytes
    for line in lines:
        left -= len(line)
        if left < 0:
            return
        yield line.decode(errors="replace")
