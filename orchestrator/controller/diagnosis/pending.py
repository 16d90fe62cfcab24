"""Why a job waits: at most three questions to Slurm, chosen by the reason that it gives."""

from __future__ import annotations

import dataclasses
import re

from orchestrator import diagnosis, errors, jobs
from orchestrator.controller.session import clusters, contexts
from orchestrator.diagnosis import pending, queue
from orchestrator.slurm import scontrol

#: Reasons whose numbers are those of the partition.
_OF_PARTITION = re.compile(r"Partition|MaxMemPerLimit|AccountNotAllowed|QOSNotAllowed")
_OF_LIMIT = re.compile(r"(?:QOS|Assoc)(?:Grp|Max|Min)|Max\w+PerAccount")
_OF_ORDER = re.compile(r"Priority|Resources")
_OF_NODES = re.compile(r"ReqNodeNotAvail|NodeDown")
_UNAVAILABLE = re.compile(r"UnavailableNodes:(\S+)")


def explain(context: contexts.Context, job: jobs.Job) -> diagnosis.Explanation:
    """Return why a job waits; where Slurm does not answer, what its last reason tells."""
    facts = clusters.known_facts(context.with_scheduler("slurm"))
    here = facts is not None and facts.cluster == job.cluster and job.job_id is not None
    found = _ask(context, job) if here else queue.Queue()
    return pending.explain(job, found, context.clock.now())


def _ask(context: contexts.Context, job: jobs.Job) -> queue.Queue:
    here = context.with_scheduler("slurm")
    assert job.job_id is not None, "without one there is nobody to ask"
    found = queue.Queue()
    try:
        with context.reporter.activity("Asking Slurm why it waits (scontrol)"):
            papers = here.slurm.show_job(job.job_id)
            if papers is None:
                return found
            request = scontrol.parse_request(papers)
            found = dataclasses.replace(found, request=request)
            return _more(here, job, found, request, papers.get("UserId", ""))
    except errors.SlurmError as exc:
        return dataclasses.replace(found, error=str(exc))


def _more(
    context: contexts.Context,
    job: jobs.Job,
    found: queue.Queue,
    request: queue.Request,
    user: str,
) -> queue.Queue:
    """Ask for what the reason names, in one or two questions more."""
    slurm, reason = context.slurm, request.reason
    if reason.startswith("Reservation") and request.reservation:
        return dataclasses.replace(found, reservation=slurm.reservation(request.reservation))
    if _OF_NODES.match(reason):
        named = _UNAVAILABLE.search(reason)
        nodes = named[1] if named else request.node_list
        away = tuple(slurm.unavailable_nodes(nodes)) if nodes else ()
        return dataclasses.replace(found, nodes=away)
    needed = [pattern.match(reason) for pattern in (_OF_PARTITION, _OF_LIMIT, _OF_ORDER)]
    # A job may name several partitions: the numbers of one of them would mislead.
    if not any(needed) or request.partition is None or "," in request.partition:
        return found
    partition = slurm.partition(request.partition)
    found = dataclasses.replace(found, partition=partition)
    if needed[1] and request.account:
        qos = [request.qos, partition.qos if partition else None]
        limits = slurm.limits_of(user, request.account, [one for one in qos if one])
        return dataclasses.replace(found, limits=tuple(limits))
    if needed[2] and request.priority is not None:
        raw_job_id = job.raw_job_id or str(job.job_id)
        before = slurm.jobs_before(raw_job_id, request.partition, request.priority)
        return dataclasses.replace(found, before=before)
    return found
