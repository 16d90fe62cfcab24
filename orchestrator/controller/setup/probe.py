"""doctor --job: what only a job on a compute node can tell."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from orchestrator import config, files, jobs
from orchestrator.controller.actions import cancel, wait
from orchestrator.controller.session import contexts
from orchestrator.controller.setup import doctor
from orchestrator.controller.submission import render, submit
from orchestrator.diagnosis import exit_codes, pending_reasons

NAME = "doctor"
#: Clocks that differ by more spoil the times in logs and the ages of files.
CLOCK_SECONDS = 5
#: Slurm counts in seconds, and a job's first line is printed some time after its start.
LAUNCH_SECONDS = 3
#: The probe prints some lines; a module may greet at length.
_LOG_LIMIT_BYTES = 4 * 1024 * 1024
#: Oldest Linux driver for a CUDA major version: table 3 of the CUDA release notes (12.9, 13.0).
DRIVERS = {11: (450, 80), 12: (525, 60), 13: (580, 65)}

# Each line says one thing; what a node lacks says nothing.
_SCRIPT = """
echo "probe host $(hostname)"
echo "probe clock $(date +%s)"
for runtime in apptainer singularity; do
    if command -v "$runtime" >/dev/null; then
        echo "probe container $("$runtime" --version)"
        break
    fi
done
if command -v nvidia-smi >/dev/null; then
    nvidia-smi --query-gpu=driver_version,name --format=csv,noheader | sed 's/^/probe gpu /'
fi
for python in python python3; do
    if command -v "$python" >/dev/null; then
        "$python" -c 'import torch; print("probe torch", torch.__version__, torch.version.cuda)' \\
            2>/dev/null && break
    fi
done
echo "probe end"
"""
_LINE = re.compile(r"^probe (\w+)(?: (.*))?$", re.MULTILINE)


def request(
    configuration: config.Configuration, *, partition: str | None, gpus_per_node: int | None
) -> render.Request:
    """Return the job that looks around on a compute node, within the profile's environment."""
    spec = jobs.JobSpec(
        name=NAME,
        partition=partition,
        time_limit="1",
        resources=jobs.Resources(gpus_per_node=gpus_per_node),
        launch=jobs.Launch(command=_SCRIPT),
        labels=("doctor=probe",),
    )
    return render.Request(
        spec=config.with_profile(spec, configuration.profile), source="doctor --job", argv=()
    )


def probe(
    context: contexts.Context, asked: render.Request, *, timeout_seconds: float
) -> Iterator[doctor.Check]:
    """Submit the job, wait for it, and yield what it found.

    Raises what submit raises. A job that does not start in time is cancelled.
    """
    job = submit.submit(context, asked)
    context.reporter.info(f"Submitted job {job.job_id} to look at a compute node ...")
    (job,) = wait.wait(context, [job.row], timeout_seconds=timeout_seconds)
    if job.state not in jobs.TERMINAL:
        why = pending_reasons.explain(job) or str(job.state)
        cancel.cancel(context, [job])
        yield doctor.Check(
            name="compute node",
            outcome=doctor.WARNING,
            found=f"job {job.job_id} did not end in {timeout_seconds:.0f} s: {why}",
            cure="try again with --timeout, or with --partition and one that is free",
        )
        return
    log = _text(job.stdout_path)
    yield from checks(job, log)


def checks(job: jobs.Job, log: str) -> list[doctor.Check]:
    """Return what the job's end and its log say."""
    told = facts(log)
    seen = _seen(job, told)
    if seen.outcome != doctor.OK:
        return [seen]
    return [seen, *_clock(job, told), _container(told), _gpus(told)]


def facts(log: str) -> Mapping[str, Sequence[str]]:
    """Return the probe's lines by their first word."""
    found: dict[str, list[str]] = {}
    for word, rest in _LINE.findall(log):
        found.setdefault(word, []).append(rest.strip())
    return found


def _seen(job: jobs.Job, told: Mapping[str, Sequence[str]]) -> doctor.Check:
    node = job.node_list or "the compute node"
    if job.state is jobs.JobState.COMPLETED and "end" in told:
        found = f"{node} writes there and it is seen here"
        return doctor.Check(name="runs_dir from a node", outcome=doctor.OK, found=found)
    code = "" if job.exit_code is None else f", exit code {job.exit_code}:{job.exit_signal or 0}"
    ended = f"job {job.job_id} on {node} ended {job.state}{code}"
    launch = job.exit_signal == exit_codes.LAUNCH_FAILED_SIGNAL
    if launch or job.exit_code == 73 or not told:
        return doctor.Check(
            name="runs_dir from a node",
            outcome=doctor.BAD,
            found=f"{ended}: {Path(job.run_dir).parent} is not the same folder there",
            cure="set runs_dir to a folder on a file system that the compute nodes share",
        )
    why = exit_codes.explain(job)
    return doctor.Check(
        name="compute node",
        outcome=doctor.BAD,
        found=f"{ended}{': ' + why if why else ''}",
        cure=f"read its log: orchestrator logs {job.job_id}",
    )


def _clock(job: jobs.Job, told: Mapping[str, Sequence[str]]) -> Iterator[doctor.Check]:
    """Compare the node's clock and ours with slurmctld's, which stamps submission and start."""
    clocks = {"this host": _seconds(job.created_at, job.submitted_at)}
    if told.get("clock") and told["clock"][0].isdigit() and job.started_at is not None:
        at = datetime.datetime.fromtimestamp(int(told["clock"][0]), datetime.UTC)
        clocks[told["host"][0]] = _seconds(job.started_at, at)
    for host, seconds in clocks.items():
        if seconds is not None and not -CLOCK_SECONDS <= seconds <= CLOCK_SECONDS + LAUNCH_SECONDS:
            yield doctor.Check(
                name="clock",
                outcome=doctor.WARNING,
                found=f"{host} and slurmctld differ by {abs(seconds):.0f} s",
                cure="tell your administrators: the hosts' clocks are not synchronised",
            )
            return
    yield doctor.Check(name="clock", outcome=doctor.OK, found=f"{', '.join(clocks)}: as slurmctld")


def _seconds(earlier: datetime.datetime, later: datetime.datetime | None) -> float | None:
    return None if later is None else (later - earlier).total_seconds()


def _container(told: Mapping[str, Sequence[str]]) -> doctor.Check:
    if "container" in told:
        found = f"{told['container'][0]} on {told['host'][0]}"
        return doctor.Check(name="container on a node", outcome=doctor.OK, found=found)
    return doctor.Check(
        name="container on a node",
        outcome=doctor.WARNING,
        found=f"neither apptainer nor singularity on {told['host'][0]}",
        cure="only needed for specs with [container]; a module may bring it: set modules",
    )


def _gpus(told: Mapping[str, Sequence[str]]) -> doctor.Check:
    outcome, found, cure = _driver(told)
    return doctor.Check(name="GPU driver", outcome=outcome, found=found, cure=cure)


def _driver(told: Mapping[str, Sequence[str]]) -> tuple[str, str, str]:
    """Return outcome, what was found and the cure."""
    version, cuda = _torch(told)
    drivers = [line.partition(",") for line in told.get("gpu", ())]
    if not drivers:
        found = "no NVIDIA GPU was given to the job"
        torch = "" if version is None else f"; torch {version}"
        return (
            doctor.OK,
            found + torch,
            "`orchestrator doctor --job --gpus-per-node 1` looks at one",
        )
    driver, _, name = drivers[0]
    found = f"{len(drivers)} x {name.strip()}, driver {driver}"
    if version is None:
        cure = "only a warning where specs name their own venv, conda or container"
        return doctor.WARNING, f"{found}; no torch in the profile's environment", cure
    if cuda is None:
        cure = "install a CUDA build of torch"
        return doctor.BAD, f"{found}; torch {version} is built without CUDA", cure
    needed = DRIVERS.get(int(cuda.partition(".")[0]))
    if needed is not None and _numbers(driver) < needed:
        oldest = f"{needed[0]}.{needed[1]}"
        cure = f"CUDA {cuda} needs driver {oldest} or newer: use an older torch"
        return doctor.BAD, f"{found}; torch {version} is built for CUDA {cuda}", cure
    return doctor.OK, f"{found}; torch {version}, CUDA {cuda}", ""


def _torch(told: Mapping[str, Sequence[str]]) -> tuple[str | None, str | None]:
    """Return torch's version and that of its CUDA, each None where there is none."""
    words = told.get("torch", ["None None"])[0].split()
    version, cuda, *_ = (*words, "None", "None")
    return (None if version == "None" else version), (None if cuda == "None" else cuda)


def _numbers(version: str) -> tuple[int, int]:
    first, second, *_ = (*map(int, re.findall(r"\d+", version)), 0, 0)
    return first, second


def _text(path: str | None) -> str:
    if path is None:
        return ""
    try:
        return files.read_text(path, limit_bytes=_LOG_LIMIT_BYTES, errors="replace")
    except OSError:
        return ""
