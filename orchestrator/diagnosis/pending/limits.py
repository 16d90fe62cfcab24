"""Which limit of a QOS or association a pending reason means, with request and usage. Pure."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence

from orchestrator.diagnosis.pending.facts import Limit, PendingRequest
from orchestrator.text import nouns
from orchestrator.toml import values

# Source: job_reason_codes.html and slurm_protocol_defs.c of 22.05 to 26.05: QOSMaxCpuPerUserLimit,
# AssocGrpCPURunMinutesLimit, QOSMaxGRESMinutesPerJob, QOSMaxWallDurationPerJobLimit, ...
_REASON = re.compile(
    r"(?P<level>QOS|Assoc)?(?P<kind>Grp|Max|Min)"
    r"(?P<what>Cpu|CPU|Memory|Mem|Node|GRES|Billing|Energy|BB|Lic|Jobs?|Wall(?:Duration)?)"
    r"(?P<time>Minutes|RunMinutes)?"
    r"(?P<scope>PerJob|PerUser|PerAccount|PerNode)?(?:Limit)?",
    re.ASCII,
)
_RESOURCES = {
    "cpu": ("cpu",),
    "mem": ("mem",),
    "memory": ("mem",),
    "node": ("node",),
    "billing": ("billing",),
    "energy": ("energy",),
    "gres": ("gres/",),
    "bb": ("bb/",),
    "lic": ("license/",),
}
_SCOPES = {"PerJob": "PJ", "PerUser": "PU", "PerAccount": "PA", "PerNode": "PN"}
_PER = {"PJ": " per job", "PN": " per node", "PU": " per user", "PA": " per account"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Exceeded:
    limit: Limit
    #: "QOS small allows cpu=2 per job, it requests cpu=4"
    sentence: str
    #: the request alone exceeds the limit, so that the job can never start
    never: bool
    #: request and usage together exceed the limit
    beyond: bool = False


def exceeded(reason: str, request: PendingRequest, limits: Sequence[Limit]) -> Exceeded | None:
    """Return the limit that the reason means, preferably one that the job exceeds.

    None if the reason means no limit, or if Slurm did not report it (parent accounts, other users).
    """
    parts = _REASON.match(reason)
    if parts is None:
        return None
    owners = ("QOS ",) if parts["level"] == "QOS" else ("account ", "user ")
    name, resources = _limit_name(parts)
    exceeded = [
        _exceeded(limit, request)
        for limit in limits
        if limit.name == name
        and limit.owner.startswith(owners)
        and (not resources or limit.resource.startswith(resources))
    ]
    known = [each for each in exceeded if each is not None]
    return max(known, key=lambda each: (each.never, each.beyond), default=None)


def _limit_name(parts: re.Match[str]) -> tuple[str, tuple[str, ...]]:
    """Return the limit's name in `scontrol show assoc_mgr`, and the resources that it may limit."""
    resource, kind = parts["what"].lower(), parts["kind"]
    scope = _SCOPES.get(parts["scope"] or "", "")
    if resource.startswith("job"):
        return ("GrpJobs" if kind == "Grp" else f"MaxJobs{scope}"), ()
    if resource.startswith("wall"):
        return ("GrpWall" if kind == "Grp" else "MaxWallPJ"), ()
    if kind == "Min":
        return "MinTRESPJ", _RESOURCES[resource]
    time = {"Minutes": "Mins", "RunMinutes": "RunMins"}.get(parts["time"] or "", "")
    return f"{kind}TRES{time}{scope}", _RESOURCES[resource]


def _exceeded(limit: Limit, request: PendingRequest) -> Exceeded | None:
    """Return how request and usage compare with a limit; None if it cannot be the reason."""
    name, allowed, used = limit.name, limit.allowed, limit.used
    if name.startswith(("GrpWall", "GrpTRESMins", "GrpTRESRunMins", "MaxTRESMins")):
        budget = f"{limit.owner} has a budget of {_minutes(allowed)} of {limit.resource or 'time'}"
        usage = "" if used is None else f", {_minutes(used)} are used"
        return Exceeded(limit=limit, sentence=budget + usage, never=False)
    if name == "MaxWallPJ":
        seconds = request.time_limit_seconds or 0
        requests = f"it requests {values.elapsed(seconds)}"
        sentence = f"{limit.owner} allows {values.elapsed(allowed * 60)} per job, {requests}"
        never = seconds > allowed * 60
        return Exceeded(limit=limit, sentence=sentence, never=True) if never else None
    per = _PER.get(name[-2:], "")
    if "Jobs" in name:
        if used is not None and used < allowed:
            return None
        running = "" if used is None else f", {used} {'is' if used == 1 else 'are'} running"
        sentence = f"{limit.owner} allows {nouns.count(allowed, 'job')}{per} at one time{running}"
        return Exceeded(limit=limit, sentence=sentence, never=allowed == 0)
    amount = request.resources.get(limit.resource, 0)
    if name.endswith("PN") and request.nodes:
        amount = -(-amount // request.nodes)
    unit = "M" if limit.resource == "mem" else ""
    is_least = name.startswith("Min")
    at_once = "" if is_least or per in (" per job", " per node") else " at one time"
    usage = "" if used is None else f", {used} {'is' if used == 1 else 'are'} used"
    return Exceeded(
        limit=limit,
        sentence=f"{limit.owner} {'requires' if is_least else 'allows'} "
        f"{limit.resource}={allowed}{unit}{per}{at_once}{usage}, "
        f"it requests {limit.resource}={amount}{unit}",
        never=is_least or amount > allowed,
        beyond=amount + (used or 0) > allowed,
    )


def _minutes(number: int) -> str:
    return f"{number} minutes" if number < 600 else f"{number / 60:.0f} hours"
