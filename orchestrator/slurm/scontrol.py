"""scontrol: what slurmctld is, what it knows of one job, and what it is asked to do with jobs."""

from __future__ import annotations

import dataclasses
import datetime
import re
from collections.abc import Mapping, Sequence

from orchestrator.slurm import fields

_SETTING = re.compile(r"([A-Za-z_]\w*(?:\[\d+\])?)\s*= ?(.*)", re.ASCII)
# `scontrol -o show job` separates NAME=VALUE with spaces, and values may hold spaces: a name is
# what looks like one of Slurm's ("AllocNode:Sid", "MinMemoryNode", "TresPerNode").
#: First line of `scontrol show config`: slurmctld's time as it answers (proc_req.c).
_AS_OF = "Configuration data as of "
_JOB_FIELD = re.compile(r"(?:^|\s)([A-Z][A-Za-z_]*(?:[:/][A-Za-z]+)*)=")

_REFUSED = re.compile(r"(?P<why>.+?) for job (?P<job>\d+(?:_\d+|_\[\d+\])?)", re.ASCII)
_REFUSED_TASK = re.compile(r"(?P<job>\d+_(?:\d+|\[\d+\])): (?P<why>.+)", re.ASCII)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClusterConfig:
    """The settings of slurmctld that decide how it must be asked."""

    cluster_name: str
    #: "24.11.5"
    slurm_version: str
    #: after it a client gives up on slurmctld
    message_timeout_seconds: int
    #: how long an ended job stays in squeue
    min_job_age_seconds: int
    max_array_size: int
    #: whether sacct has anything to tell
    accounting: bool
    #: whether sacct tells of GPUs: a job without any is then one that has none
    counts_gpus: bool
    #: when slurmctld was started; another value: it was restarted
    boot_time: datetime.datetime | None
    #: by the clock of slurmctld's host
    answered_at: datetime.datetime | None
    #: short names of the hosts that slurmctld and its backups run on
    controller_hosts: tuple[str, ...]
    #: all settings by their own names
    settings: Mapping[str, str]


def scontrol_config_command() -> list[str]:
    """Ask for slurmctld's configuration; any user may."""
    return ["scontrol", "show", "config"]


def parse_scontrol_config(text: str) -> ClusterConfig:
    """Read `scontrol show config`; ValueError where it does not even name the cluster."""
    settings: dict[str, str] = {}
    as_of = ""
    for line in text.splitlines():
        if line.startswith(_AS_OF):
            as_of = line.removeprefix(_AS_OF)
        found = _SETTING.fullmatch(line.strip())
        if found:
            # The cgroup settings come last and may repeat a name.
            settings.setdefault(found[1], found[2].strip())
    cluster = fields.parse_text(settings.get("ClusterName", ""))
    version = fields.parse_text(settings.get("SLURM_VERSION", ""))
    if cluster is None or version is None:
        raise ValueError("no ClusterName or no SLURM_VERSION in the answer")
    storage = settings.get("AccountingStorageType", "")
    return ClusterConfig(
        cluster_name=cluster,
        slurm_version=version,
        # Defaults of man slurm.conf, for a site whose scontrol is cut down.
        message_timeout_seconds=_number(settings, "MessageTimeout", 10),
        min_job_age_seconds=_number(settings, "MinJobAge", 300),
        max_array_size=_number(settings, "MaxArraySize", 1001),
        # 22.05 prints accounting_storage/none, 24.11 and later (null).
        accounting=fields.parse_text(storage) is not None and not storage.endswith("/none"),
        counts_gpus="gres/gpu" in settings.get("AccountingStorageTRES", "").split(","),
        boot_time=fields.parse_time(settings.get("BOOT_TIME", "")),
        answered_at=fields.parse_time(as_of),
        controller_hosts=tuple(
            re.split(r"[.(]", value)[0]
            for name, value in settings.items()
            if name.startswith("SlurmctldHost[")
        ),
        settings=settings,
    )


def scontrol_show_job_command(job_id: str) -> list[str]:
    """Ask for one job, on one line."""
    return ["scontrol", "-o", "show", "job", job_id]


def parse_scontrol_job(line: str) -> dict[str, str]:
    """Read one line of `scontrol -o show job`: JobId, JobName, Restarts, StdOut, Command, ..."""
    _, *parts = _JOB_FIELD.split(line)
    found: dict[str, str] = {}
    for name, value in zip(parts[::2], parts[1::2], strict=True):
        found.setdefault(name, value.strip())
    return found


def scontrol_ping_command() -> list[str]:
    """Ask whether slurmctld is there."""
    return ["scontrol", "ping"]


def parse_scontrol_ping(text: str) -> bool:
    """Return whether a controller is up (exit code 1 and DOWN when it hangs or is away)."""
    return re.search(r"\bis UP\b", text) is not None


def scontrol_write_batch_script_command(job_id: str) -> list[str]:
    """Ask for the job's script, on stdout."""
    return ["scontrol", "write", "batch_script", job_id, "-"]


def scontrol_hold_command(job_ids: Sequence[str]) -> list[str]:
    """Keep waiting jobs from starting."""
    return ["scontrol", "hold", ",".join(job_ids)]


def scontrol_release_command(job_ids: Sequence[str]) -> list[str]:
    """Let held jobs start; answers 0 for jobs that are not held too."""
    return ["scontrol", "release", ",".join(job_ids)]


def scontrol_requeue_command(job_ids: Sequence[str], *, hold: bool = False) -> list[str]:
    """End jobs that run and let them, or jobs that ended, wait again; `hold`: held."""
    return ["scontrol", "requeuehold" if hold else "requeue", ",".join(job_ids)]


def scontrol_dependency_command(job_id: str, dependency: str) -> list[str]:
    """Let a waiting job wait for others than before; "": for nothing."""
    return ["scontrol", "update", f"jobid={job_id}", f"dependency={dependency}"]


def parse_scontrol_refusals(stderr: str) -> dict[str, str]:
    """Read which jobs of a list were refused, and why; those not named were taken.

    22.05 to 26.05: `Job has already finished for job 7`, `7_1: Invalid job id specified`, which
    26.05 writes `7_[1]: Invalid job id specified`.
    """
    refused: dict[str, str] = {}
    for line in stderr.splitlines():
        behind = _REFUSED.fullmatch(line.strip()) or _REFUSED_TASK.fullmatch(line.strip())
        if behind:
            refused[re.sub(r"[\[\]]", "", behind["job"])] = behind["why"]
    return refused


def scancel_command(job_ids: Sequence[str], name: str | None = None) -> list[str]:
    """Cancel the jobs; with a full name only those that have it: no other with a reused ID.

    A name makes scancel fetch the jobs of all users first; it takes no list of names. Some tasks of
    an array are cancelled without one: with any filter scancel 22.05 takes a task that waits for
    all that wait (`scancel --name=a.t 12_3` ended 12_[0-9]; 24.11 and 26.05 do not).
    """
    if not job_ids:
        raise ValueError("scancel without job IDs")
    return ["scancel", *([] if name is None else [f"--name={name}"]), *job_ids]


def _number(settings: Mapping[str, str], name: str, default: int) -> int:
    """Read `30 sec` or `1001`."""
    value = fields.parse_count((settings.get(name, "").split() or [""])[0])
    return default if value is None else value
