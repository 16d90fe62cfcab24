"""Why a job waits, whether it can ever start, the numbers that show it, and what to change."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Mapping

from orchestrator import jobs
from orchestrator.diagnosis import kinds, limits
from orchestrator.diagnosis.causes import Cause
from orchestrator.diagnosis.queue import Partition, Queue, Request
from orchestrator.diagnosis.records import Evidence, Explanation, Source
from orchestrator.diagnosis.waiting import Waiting, is_held, waiting
from orchestrator.jobs import JobState
from orchestrator.toml import values

_STATES = frozenset(
    {
        JobState.PENDING,
        JobState.REQUEUED,
        JobState.REQUEUE_HOLD,
        JobState.SPECIAL_EXIT,
        JobState.RESV_DEL_HOLD,
    }
)
#: What we know of a job that Slurm has not, or not yet.
_UNSENT = {
    JobState.SUBMITTING: "it is being submitted: sbatch has not answered yet",
    JobState.SUBMIT_UNKNOWN: (
        "sbatch gave no answer that can be believed, so Slurm may have it or not: it is looked for "
        "under its name"
    ),
}
#: Reasons that need more than their class; the others of a class never start or need a person.
_CAUSES = {
    "DependencyNeverSatisfied": Cause.DEPENDENCY,
    "InvalidAccount": Cause.BAD_ACCOUNT,
    "AccountNotAllowed": Cause.BAD_ACCOUNT,
    "InvalidQOS": Cause.BAD_QOS,
    "QOSNotAllowed": Cause.BAD_QOS,
    "DeadLine": Cause.DEADLINE,
    "ReservationDeleted": Cause.HELD,
}
_LIMIT = re.compile(r"(?:QOS|Assoc)(?:Grp|Max|Min)|Max\w+PerAccount")
_LAUNCH_FAILED = re.compile(r"launch failed")
_ADMIN = re.compile(r"\bJobHeldAdmin\b")


def waits(job: jobs.Job) -> bool:
    """Return whether there is something to explain about its waiting."""
    return job.state in _STATES or job.is_deferred or job.state in _UNSENT


def explain(job: jobs.Job, queue: Queue, now: datetime.datetime) -> Explanation:
    """Return why the job waits and what has to happen before it starts."""
    if job.job_id is None:
        return _unsent(job)
    request = queue.request
    reason = (request.reason if request is not None else None) or job.reason or "None"
    kind, sentence = waiting(reason)
    word = re.split(r"[\s,(]", reason, maxsplit=1)[0]
    numbers = "" if request is None else _numbers(word, request, queue)
    standing = None if request is None else limits.standing(reason, request, queue.limits)
    if standing is not None:
        numbers = standing.sentence
        kind = Waiting.NEVER if standing.never else kind
    cause = _cause(job, kind, word)
    start = None if request is None or kind is not Waiting.WILL_START else request.expected_start
    told = f"{kind.value}: {sentence}"
    parts = [f"{told} ({numbers})" if numbers else told]
    if start is not None and start > now:
        left = values.elapsed((start - now).total_seconds())
        parts.append(f"Slurm expects it to start at {_at(start)}, in {left}")
    return Explanation(
        cause=cause,
        summary="; ".join(parts),
        evidence=(Evidence(text=f"{job.state}, reason {reason}", source=Source.SLURM),),
        cures=_cures(job, cause, kind, word, queue, standing),
        details=_details(queue, kind, reason, start if start is not None and start > now else None),
    )


def _details(
    queue: Queue, kind: Waiting, reason: str, start: datetime.datetime | None
) -> dict[str, object]:
    """Return what programs want to know; what is not known is left out."""
    details = {
        "waiting": kind.value,
        "reason": reason,
        "can_start": kind is not Waiting.NEVER,
        "expected_start": None if start is None else start.isoformat(),
        "jobs_before": queue.before,
        "slurm_error": queue.error or None,
    }
    return {name: value for name, value in details.items() if value is not None}


def _unsent(job: jobs.Job) -> Explanation:
    if job.is_deferred:
        assert job.resend_at is not None, "that is what waiting for room means"
        summary = f"{job.reason or 'Slurm refused it for now'}; it is sent again at"
        summary = f"{summary} {_at(job.resend_at)} by the next command that looks at Slurm then"
        cures: tuple[str, ...] = ("orchestrator wait JOB sends it as soon as there is room",)
    else:
        summary = _UNSENT[job.state]
        cures = (
            "do not submit it again: orchestrator status JOB goes on looking, and says which it is",
        )
    return Explanation(
        cause=None,
        summary=summary,
        evidence=(Evidence(text=job.reason or str(job.state), source=Source.OURS),),
        cures=cures,
        details={"waiting": Waiting.WILL_START.value, "reason": job.reason, "can_start": True},
    )


def _cause(job: jobs.Job, kind: Waiting, word: str) -> Cause | None:
    if kind in (Waiting.WILL_START, Waiting.LIMIT):
        return None
    if _LAUNCH_FAILED.match(job.reason or ""):
        return Cause.LAUNCH_FAILED
    if is_held(job):
        return Cause.HELD
    if word in _CAUSES:
        return _CAUSES[word]
    if _LIMIT.match(word):
        return Cause.LIMIT_REACHED
    return Cause.BAD_RESOURCES if kind is Waiting.NEVER else Cause.UNAVAILABLE


def _time(request: Request, queue: Queue) -> str:
    asked = request.time_limit_seconds
    partition = queue.partition
    if partition is None or partition.max_time_seconds is None:
        return ""
    time = "no time limit" if asked is None else values.elapsed(asked)
    allowed = values.elapsed(partition.max_time_seconds)
    return f"it asks for {time}, partition {partition.name} allows {allowed}"


def _nodes(request: Request, queue: Queue) -> str:
    partition, asked = queue.partition, request.nodes
    if partition is None or asked is None:
        return ""
    most = partition.max_nodes
    if most is not None and asked > most:
        return f"it asks for {asked} nodes, partition {partition.name} allows {most} a job"
    if partition.nodes is not None and asked > partition.nodes:
        return f"it asks for {asked} nodes, partition {partition.name} has {partition.nodes}"
    cpus = request.resources.get("cpu", 0)
    if partition.cpus is not None and cpus > partition.cpus:
        return f"it asks for {cpus} CPUs, partition {partition.name} has {partition.cpus}"
    return ""


def _memory(request: Request, queue: Queue) -> str:
    partition = queue.partition
    if partition is None or partition.max_memory_mib is None or request.memory_mib is None:
        return ""
    return (
        f"it asks for {request.memory_mib} MiB a node, partition {partition.name} allows"
        f" {partition.max_memory_mib}"
    )


def _state(request: Request, queue: Queue) -> str:
    partition = queue.partition
    return "" if partition is None else f"partition {partition.name} is {partition.state}"


def _dependency(request: Request, queue: Queue) -> str:
    return "" if request.dependency is None else f"dependency {request.dependency}"


def _begin(request: Request, queue: Queue) -> str:
    at = request.eligible_at or request.expected_start
    return "" if at is None else f"not before {_at(at)}"


def _reservation(request: Request, queue: Queue) -> str:
    name, held = request.reservation, queue.reservation
    if name is None:
        return ""
    if held is None:
        return f"reservation {name}"
    if held.state == "INACTIVE" and held.begins_at is not None:
        return f"reservation {name} begins at {_at(held.begins_at)}"
    until = "" if held.ends_at is None else f" until {_at(held.ends_at)}"
    return f"reservation {name} is {held.state}{until}"


def _allowed(whom: str, takes: Callable[[Partition], str | None]) -> _Numbers:
    def told(request: Request, queue: Queue) -> str:
        if queue.partition is None or not takes(queue.partition):
            return ""
        own = request.account if whom == "account" else request.qos
        return (
            f"partition {queue.partition.name} takes {takes(queue.partition)}, its {whom} is {own}"
        )

    return told


def _gone(request: Request, queue: Queue) -> str:
    return "; ".join(f"{node.name} is {node.state} ({node.why})" for node in queue.nodes)


def _before(request: Request, queue: Queue) -> str:
    if queue.before is None or queue.partition is None:
        return ""
    count = {0: "no job comes", 1: "1 job comes"}.get(queue.before, f"{queue.before} jobs come")
    return f"{count} before it in partition {queue.partition.name}"


def _deadline(request: Request, queue: Queue) -> str:
    return "" if request.deadline is None else f"its deadline is {_at(request.deadline)}"


def _features(request: Request, queue: Queue) -> str:
    return "" if request.features is None else f"it asks for {request.features}"


def _licenses(request: Request, queue: Queue) -> str:
    return "" if request.licenses is None else request.licenses


_Numbers = Callable[[Request, Queue], str]
_BY_REASON: Mapping[str, _Numbers] = {
    "PartitionTimeLimit": _time,
    "PartitionNodeLimit": _nodes,
    "PartitionConfig": _nodes,
    "MaxMemPerLimit": _memory,
    "PartitionDown": _state,
    "PartitionInactive": _state,
    "Dependency": _dependency,
    "DependencyNeverSatisfied": _dependency,
    "BeginTime": _begin,
    "Reservation": _reservation,
    "ReservationDeleted": _reservation,
    "AccountNotAllowed": _allowed("account", lambda partition: partition.accounts),
    "QOSNotAllowed": _allowed("QOS", lambda partition: partition.allowed_qos),
    "ReqNodeNotAvail": _gone,
    "NodeDown": _gone,
    "Priority": _before,
    "Resources": _before,
    "DeadLine": _deadline,
    "BadConstraints": _features,
    "Constraints": _features,
    "Licenses": _licenses,
}


def _numbers(word: str, request: Request, queue: Queue) -> str:
    told = _BY_REASON.get(word)
    return "" if told is None else told(request, queue)


def _cures(
    job: jobs.Job,
    cause: Cause | None,
    kind: Waiting,
    word: str,
    queue: Queue,
    standing: limits.Standing | None,
) -> tuple[str, ...]:
    """Return what to do; changes of a waiting job keep its place in the queue."""
    change = f"while it waits: scontrol update JobId={job.job_id}"
    anew = "orchestrator cancel JOB, change the spec, and submit it again"
    most = None if queue.partition is None else queue.partition.max_time_seconds
    if standing is not None and standing.limit.name == "MaxWallPJ":
        most = standing.limit.allowed * 60
        word = "PartitionTimeLimit"
    if word == "PartitionTimeLimit" and most is not None:
        return (f"{change} TimeLimit={values.elapsed(most)}", f"or {anew}")
    if cause is Cause.HELD:
        if _ADMIN.search(job.reason or ""):
            return ("ask the site's support why an administrator holds it",)
        return kinds.kind_of(Cause.HELD).cures
    if cause is Cause.LAUNCH_FAILED:
        drained = "sinfo -R tells which node is drained: the site's prolog may have failed there"
        return (f"orchestrator release JOB, then it starts on other nodes ({drained})",)
    if cause is Cause.DEPENDENCY:
        return ("see why that job ended: orchestrator explain ITS-JOB", f"or {anew}")
    if cause in (Cause.BAD_RESOURCES, Cause.LIMIT_REACHED, Cause.DEADLINE):
        return (anew,)
    if cause is not None:
        return kinds.kind_of(cause).cures
    if word in ("Priority", "Resources"):
        return ("a shorter time limit or fewer nodes fit into gaps, and start sooner",)
    if kind is Waiting.LIMIT:
        return ("it starts when other jobs have ended, or when a budget is renewed",)
    return ()


def _at(time: datetime.datetime) -> str:
    return time.astimezone().strftime("%Y-%m-%d %H:%M:%S")
