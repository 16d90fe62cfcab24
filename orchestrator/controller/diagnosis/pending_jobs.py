"""Explain a pending job: asks Slurm at most three questions, selected by the job's reason."""

from __future__ import annotations

import dataclasses
import re

from orchestrator import errors, jobs
from orchestrator.controller.session import clusters, contexts
from orchestrator.diagnosis import pending_jobs, queue, records
from orchestrator.slurm import scontrol

_PARTITION_REASON = re.compile(r"Partition|MaxMemPerLimit|AccountNotAllowed|QOSNotAllowed")
_LIMIT_REASON = re.compile(r"(?:QOS|Assoc)(?:Grp|Max|Min)|Max\w+PerAccount")
_QUEUE_REASON = re.compile(r"Priority|Resources")
_NODE_REASON = re.compile(r"ReqNodeNotAvail|NodeDown")
_UNAVAILABLE_NODES = re.compile(r"UnavailableNodes:(\S+)")


def explain(context: contexts.Context, job: jobs.Job) -> records.Explanation:
    """Return why a job is pending; from its last known reason if Slurm does not answer."""
    slurm_context = context.with_scheduler("slurm")
    facts = clusters.known_facts(slurm_context)
    answers = queue.Queue()
    if facts is not None and facts.cluster == job.cluster and job.job_id is not None:
        try:
            with context.reporter.activity("Asking Slurm why the job is pending (scontrol)"):
                answers = _ask(slurm_context, job, job.job_id)
        except errors.SlurmError as error:
            answers = queue.Queue(error=str(error))
    return pending_jobs.explain(job, answers, context.clock.now())


def _ask(context: contexts.Context, job: jobs.Job, job_id: str) -> queue.Queue:
    slurm = context.slurm
    shown = slurm.show_job(job_id)
    if shown is None:
        return queue.Queue()
    request = scontrol.parse_request(shown)
    reason, answers = request.reason, queue.Queue(request=request)
    try:
        if reason.startswith("Reservation") and request.reservation:
            reservation = slurm.reservation(request.reservation)
            return dataclasses.replace(answers, reservation=reservation)
        if _NODE_REASON.match(reason):
            named = _UNAVAILABLE_NODES.search(reason)
            nodes = named[1] if named else request.node_list
            away = tuple(slurm.unavailable_nodes(nodes)) if nodes else ()
            return dataclasses.replace(answers, unavailable_nodes=away)
        is_limit, is_queue = _LIMIT_REASON.match(reason), _QUEUE_REASON.match(reason)
        if not (is_limit or is_queue or _PARTITION_REASON.match(reason)):
            return answers
        # If a job names several partitions, the numbers of one of them would mislead.
        if request.partition is None or "," in request.partition:
            return answers
        partition = slurm.partition(request.partition)
        answers = dataclasses.replace(answers, partition=partition)
        if is_limit and request.account:
            qos = [name for name in (request.qos, partition.qos if partition else None) if name]
            limits = slurm.limits_of(shown.get("UserId", ""), request.account, qos)
            return dataclasses.replace(answers, limits=tuple(limits))
        if is_queue and request.priority is not None:
            raw_job_id = job.raw_job_id or job_id
            before = slurm.jobs_before(raw_job_id, request.partition, request.priority)
            return dataclasses.replace(answers, before=before)
        return answers
    except errors.SlurmError as error:
        return dataclasses.replace(answers, error=str(error))
