"""Facts about the cluster, or about this machine where there is no Slurm."""

from __future__ import annotations

import dataclasses
import datetime
import json
import math
import socket
from typing import Any

from orchestrator import errors, jobs
from orchestrator.controller.session import contexts
from orchestrator.jobs import naming

#: Facts change when the cluster is upgraded.
MAX_AGE_SECONDS = 24 * 3600
#: sbatch retries for up to 120 s, so an accepted job may appear in Slurm this late.
MIN_GRACE_SECONDS = 120.0
#: Each task of a local array is one or two files of 1 KB.
MAX_LOCAL_ARRAY_SIZE = 10_001


@dataclasses.dataclass(frozen=True, kw_only=True)
class Facts:
    """Settings of a cluster from `scontrol show config`, stored for a day."""

    #: ClusterName, or local:HOST
    cluster: str
    slurm_version: str
    message_timeout_seconds: int
    min_job_age_seconds: int
    #: largest array index + 1
    max_array_size: int
    #: False: accounting_storage/none, so there is no sacct
    accounting: bool
    #: AccountingStorageTRES has gres/gpu
    counts_gpus: bool
    asked_at: datetime.datetime


def facts(
    context: contexts.Context,
    *,
    known: Facts | None = None,
    max_age_seconds: float = MAX_AGE_SECONDS,
) -> Facts:
    """Return the facts, from Slurm if the stored ones are old; old ones if Slurm does not answer.

    `known`: the stored facts, if they are read already. Raises SlurmError if Slurm does not answer
    and no facts are stored.
    """
    known = known or known_facts(context)
    if known is not None:
        age_seconds = (context.clock.now() - known.asked_at).total_seconds()
        if context.is_local or 0 <= age_seconds < max_age_seconds:
            return known
    try:
        settings = context.slurm.config()
    except errors.SlurmError:
        if known is None:
            raise
        return known
    current = Facts(
        cluster=settings.cluster_name,
        slurm_version=settings.slurm_version,
        message_timeout_seconds=settings.message_timeout_seconds,
        min_job_age_seconds=settings.min_job_age_seconds,
        max_array_size=settings.max_array_size,
        accounting=settings.accounting,
        counts_gpus=settings.counts_gpus,
        asked_at=context.clock.now(),
    )
    with context.store.writing() as work:
        work.settings.put(_key(context), _to_json(current))
    return current


def current_fields(context: contexts.Context) -> dict[str, Any]:
    """Return where and when this is, as rows of sweeps, schedules and graphs contain it.

    May ask Slurm: call it while the database is not locked.
    """
    return {
        "folder": str(context.calling_folder),
        "profile": context.profile.name,
        "scheduler": "local" if context.is_local else "slurm",
        "cluster": facts(context).cluster,
        "created_at": context.clock.now(),
    }


def known_facts(context: contexts.Context) -> Facts | None:
    """Return the stored facts, of any age, without asking Slurm; None: there are none."""
    if context.is_local:
        # This machine is a cluster of its own.
        return Facts(
            cluster=machine_cluster(),
            slurm_version="",
            message_timeout_seconds=0,
            min_job_age_seconds=0,
            max_array_size=MAX_LOCAL_ARRAY_SIZE,
            accounting=True,
            counts_gpus=True,
            asked_at=context.clock.now(),
        )
    with context.store.reading() as work:
        return _from_json(work.settings.get(_key(context)) or "")


def machine_cluster() -> str:
    """Return the cluster name of local jobs: several machines may share a database."""
    return f"local:{socket.gethostname()}"


def elsewhere(job: jobs.Job, cluster: str) -> str:
    """Return why a host of this cluster cannot act on the job; "": it can."""
    if job.cluster == cluster:
        return ""
    return (
        f"{naming.name_of(job)} belongs to cluster {job.cluster} and this host to {cluster}: "
        "run the command on a host of its cluster"
    )


def other_machine(job: jobs.Job) -> str:
    """Return why this machine cannot act on a local job of another machine; "": it can."""
    return elsewhere(job, machine_cluster()) if job.scheduler == "local" else ""


def grace_seconds(context: contexts.Context, facts: Facts) -> float:
    """Return how long a job may be unknown to Slurm before it counts as not submitted or lost."""
    if context.is_local:
        # A local job is in the spool as soon as it is submitted.
        return 0.0
    if context.clock.doubt:
        return math.inf
    configured = context.profile.submit_grace_seconds
    if configured is not None:
        return float(configured)
    return max(3.0 * facts.message_timeout_seconds, MIN_GRACE_SECONDS)


def _key(context: contexts.Context) -> str:
    # Login hosts of two clusters may share a home, and SLURM_CONF selects one of several clusters.
    slurm_conf = context.environ.get("SLURM_CONF", "")
    return f"cluster:{context.profile.name}:{socket.gethostname()}:{slurm_conf}"


def _to_json(facts: Facts) -> str:
    return json.dumps({**vars(facts), "asked_at": facts.asked_at.isoformat()})


def _from_json(text: str) -> Facts | None:
    try:
        fields = json.loads(text)
        asked_at = datetime.datetime.fromisoformat(fields.pop("asked_at"))
        return Facts(**fields, asked_at=asked_at)
    except (ValueError, TypeError, KeyError, AttributeError):
        # Missing, or written by another version.
        return None
