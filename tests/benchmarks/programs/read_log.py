"""Read the log LOG of a job into a new database in FOLDER; print times and memory as JSON."""

from __future__ import annotations

import datetime
import json
import pathlib
import resource
import sys
import time

from orchestrator import config, jobs, specs
from orchestrator.controller.metrics import ingest
from orchestrator.controller.session import contexts, stores
from orchestrator.slurm.client import Client


def main(log: str, folder: pathlib.Path) -> None:
    """Time only the reading: database and job exist before."""
    record = jobs.Submission(
        token="abcd00000001",
        cluster="lab",
        scheduler="slurm",
        name="bench",
        script="",
        spec=specs.to_json(jobs.JobSpec(name="bench")),
        run_dir=str(folder),
        provenance="{}",
        created_at=datetime.datetime.now(datetime.UTC),
    )
    context = contexts.Context(
        configuration=config.load({"HOME": str(folder)}, folder),
        store=stores.Store(folder / "bench.db"),
        slurm_client=lambda: Client(environ={}),
        environ={},
        folder=folder,
        reporter=contexts.Reporter(write=lambda level, text: None),
    )
    about = {"tracked_name": "bench", "job_id": "1", "stdout_path": log}
    with context.store.writing() as work:
        (job,) = work.jobs.add_submission(record, state=jobs.JobState.RUNNING, **about)
    peak = _peak_kib()
    began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF)
    stored = ingest.ingest(context, [job]).stored
    took, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF)
    context.store.close()
    reported = {
        "stored": stored,
        "seconds": took,
        "cpu_seconds": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        "grown_mib": (_peak_kib() - peak) / 1024,
    }
    print(json.dumps(reported))


def _peak_kib() -> int:
    # Not ru_maxrss, which includes the parent's memory at the start of this process.
    status = pathlib.Path("/proc/self/status").read_text("ascii")
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))


if __name__ == "__main__":
    main(sys.argv[1], pathlib.Path(sys.argv[2]))
