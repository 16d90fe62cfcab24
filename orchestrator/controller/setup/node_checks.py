"""doctor --job: checks that only a job on a compute node can make."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from orchestrator import config, fabrics, files, jobs
from orchestrator.controller.actions import cancel, wait
from orchestrator.controller.session import contexts
from orchestrator.controller.setup import fabric_checks, site_checks
from orchestrator.controller.submission import job_scripts, submit
from orchestrator.diagnosis import exit_codes
from orchestrator.diagnosis.pending import reasons as pending_reasons

NAME = "doctor"
#: A larger difference of clocks makes times in logs and ages of files misleading.
_MAX_CLOCK_SECONDS = 5
#: Slurm counts in seconds, and a job prints its first line some time after its start.
_LAUNCH_SECONDS = 3
#: The script prints a few lines; a module may print many.
_MAX_LOG_BYTES = 4 * 1024 * 1024
#: Oldest Linux driver for a CUDA major version: table 3 of the CUDA release notes (12.9, 13.0).
_OLDEST_DRIVERS = {11: (450, 80), 12: (525, 60), 13: (580, 65)}

# One line per fact; what a node does not have prints nothing.
_SCRIPT = """
echo "probe host $(hostname)"
echo "probe clock $(date +%s)"
for runtime in apptainer singularity podman-hpc ch-run; do
    if command -v "$runtime" >/dev/null; then
        case $runtime in
            podman-hpc) version=$(podman-hpc infohpc 2>&1 | sed -n 's/.*Version: /podman-hpc /p');;
            ch-run) version="ch-run $(ch-run --version 2>&1)" ;;
            *) version=$("$runtime" --version) ;;
        esac
        echo "probe container ${version:-$runtime}"
    fi
done
options=$(srun --help 2>/dev/null)
case $options in *--container-image*) echo "probe container srun --container-image (pyxis)" ;; esac
case $options in *--environment*) echo "probe container srun --environment (EDF)" ;; esac
if command -v nvidia-smi >/dev/null; then
    nvidia-smi --query-gpu=driver_version,name --format=csv,noheader | sed 's/^/probe gpu /'
fi
for python in python python3 ''; do
    if command -v "$python" >/dev/null; then
        "$python" -c 'import torch; print("probe torch", torch.__version__, torch.version.cuda)' \\
            2>/dev/null && break
    fi
done
"""
_END = 'echo "probe end"\n'
_Facts: TypeAlias = Mapping[str, Sequence[str]]
_LINE = re.compile(r"^probe (\w+)(?: (.*))?$", re.MULTILINE)


def request(
    configuration: config.Configuration, *, partition: str | None, gpus_per_node: int | None
) -> job_scripts.Request:
    """Return the job that examines a compute node in the profile's environment.

    Raises SpecError if the profile names a fabric that cannot be used.
    """
    fabric = _fabric(configuration)
    of_fabric = "" if fabric is None else fabric_checks.script(fabric)
    spec = jobs.JobSpec(
        name=NAME,
        partition=partition,
        # With a fabric torch is imported twice.
        time_limit="1" if fabric is None else "3",
        resources=jobs.Resources(gpus_per_node=gpus_per_node),
        launch=jobs.Launch(command=f"{_SCRIPT}{of_fabric}{_END}"),
        # What a profile sets for trainings.
        code=jobs.Code(snapshot=False),
        tracking=jobs.Tracking(trackers=()),
        labels=("doctor=probe",),
    )
    return job_scripts.Request(
        spec=config.with_profile(spec, configuration.profile), source="doctor --job", argv=()
    )


def run(
    context: contexts.Context, request: job_scripts.Request, *, timeout_seconds: float
) -> Iterator[site_checks.Check]:
    """Submit the job, wait for it, and yield its checks.

    Raises what submit raises. Cancels a job that does not start in time, or at Ctrl-C.
    """
    job = submit.submit(context, request)
    try:
        context.reporter.info(f"Submitted job {job.job_id} to examine a compute node ...")
        (job,) = wait.wait(context, [job.row], timeout_seconds=timeout_seconds)
    except KeyboardInterrupt:
        (outcome,) = cancel.cancel(context, [job])
        context.reporter.info(outcome.why or f"Job {job.job_id} is {outcome.job.state}")
        raise
    if job.state in jobs.TERMINAL:
        profile = context.configuration.profile
        log, fabric = _log(job.stdout_path), _fabric(context.configuration)
        yield from checks(job, log, fabric=fabric, own_variables=profile.variables)
        return
    reason = pending_reasons.reason_sentence(job) or str(job.state)
    cancel.cancel(context, [job])
    yield site_checks.warning(
        "compute node",
        f"job {job.job_id} did not end in {timeout_seconds:.0f} s: {reason}",
        "try again with --timeout, or with --partition and an idle partition",
    )


def facts_in(log: str) -> dict[str, list[str]]:
    """Return the lines that the script prints, by their word."""
    facts: dict[str, list[str]] = {}
    for word, rest in _LINE.findall(log):
        facts.setdefault(word, []).append(rest.strip())
    return facts


def _fabric(configuration: config.Configuration) -> fabrics.Fabric | None:
    return job_scripts.fabric_of(configuration, jobs.JobSpec(name=NAME))


def checks(
    job: jobs.Job,
    log: str,
    *,
    fabric: fabrics.Fabric | None = None,
    own_variables: Mapping[str, str] | None = None,
) -> list[site_checks.Check]:
    """Return the checks of the job's end and of its log; own_variables: of the profile."""
    facts = facts_in(log)
    end = _end(job, facts)
    if end.outcome != site_checks.OK:
        return [end]
    # Without Slurm there is one clock.
    clock = [] if job.scheduler == "local" else [_clock(job, facts)]
    found = [end, *clock, _container(facts), _gpus(facts)]
    if fabric is not None:
        found += fabric_checks.checks(fabric, facts, own_variables or {})
    return found


def _end(job: jobs.Job, facts: _Facts) -> site_checks.Check:
    node = job.node_list or "the compute node"
    if job.state is jobs.JobState.COMPLETED and "end" in facts:
        return site_checks.ok("runs_dir from a node", f"{node} writes it, and this host sees it")
    code = "" if job.exit_code is None else f", exit code {job.exit_code}:{job.exit_signal or 0}"
    ended = f"job {job.job_id} on {node} ended {job.state}{code}"
    is_launch_failure = job.exit_signal == exit_codes.LAUNCH_FAILED_SIGNAL
    if is_launch_failure or job.exit_code == exit_codes.NO_RUN_FOLDER or not facts:
        return site_checks.bad(
            "runs_dir from a node",
            f"{ended}: {Path(job.run_dir).parent} is not the same folder there",
            "set runs_dir to a folder on a file system that the compute nodes share",
        )
    known = exit_codes.meaning(job)
    problem = f"{ended}: {known[1]}" if known else ended
    return site_checks.bad("compute node", problem, f"read its log: orchestrator logs {job.job_id}")


def _clock(job: jobs.Job, facts: _Facts) -> site_checks.Check:
    """Compare the node's clock and this host's with slurmctld's, which stamps submit and start."""
    pairs = {"this host": (job.created_at, job.submitted_at)}
    if facts.get("clock") and facts["clock"][0].isdigit() and job.started_at is not None:
        at = datetime.datetime.fromtimestamp(int(facts["clock"][0]), datetime.UTC)
        pairs[facts["host"][0]] = (job.started_at, at)
    for host, (earlier, later) in pairs.items():
        seconds = 0.0 if later is None else (later - earlier).total_seconds()
        if not -_MAX_CLOCK_SECONDS <= seconds <= _MAX_CLOCK_SECONDS + _LAUNCH_SECONDS:
            return site_checks.warning(
                "clock",
                f"{host} and slurmctld differ by {abs(seconds):.0f} s",
                "tell your administrators: the hosts' clocks are not synchronised",
            )
    return site_checks.ok("clock", f"{', '.join(pairs)}: same as slurmctld")


def _container(facts: _Facts) -> site_checks.Check:
    name, host = "container on a node", facts["host"][0]
    if "container" in facts:
        # `singularity` may be a link to apptainer.
        programs = ", ".join(dict.fromkeys(facts["container"]))
        return site_checks.ok(name, f"{programs} on {host}")
    cure = "only needed for specs with [container]; a module may provide it: set modules"
    return site_checks.warning(name, f"not on {host}: {site_checks.RUNTIMES}", cure)


def _gpus(facts: _Facts) -> site_checks.Check:
    name = "GPU driver"
    version, cuda = ([*facts.get("torch", [""])[0].split(), "None", "None"])[:2]
    gpus = [line.partition(",") for line in facts.get("gpu", ())]
    if not gpus:
        torch = "" if version == "None" else f"; torch {version}"
        cure = "`orchestrator doctor --job --gpus-per-node 1` examines a GPU"
        return site_checks.ok(name, f"the job had no NVIDIA GPU{torch}", cure)
    driver, _, gpu_name = gpus[0]
    found = f"{len(gpus)} x {gpu_name.strip()}, driver {driver}"
    if version == "None":
        cure = "only a warning if specs set their own venv, conda or container"
        return site_checks.warning(name, f"{found}; no torch in the profile's environment", cure)
    found += f"; torch {version}"
    if cuda == "None":
        return site_checks.bad(
            name, f"{found} is built without CUDA", "install a CUDA build of torch"
        )
    oldest = _OLDEST_DRIVERS.get(int(cuda.partition(".")[0]))
    if oldest is not None and tuple(map(int, re.findall(r"\d+", driver)))[:2] < oldest:
        cure = f"CUDA {cuda} needs driver {oldest[0]}.{oldest[1]} or newer: use an older torch"
        return site_checks.bad(name, f"{found} is built for CUDA {cuda}", cure)
    return site_checks.ok(name, f"{found}, CUDA {cuda}")


def _log(path: str | None) -> str:
    if path is None:
        return ""
    try:
        return files.read_text(path, limit_bytes=_MAX_LOG_BYTES, errors="replace")
    except OSError:
        return ""
