"""A pending reason that names a limit -> which limit it is, and how it stands."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence

from orchestrator.diagnosis.queue import Limit, Request
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
_WHOSE = {"PJ": "a job", "PN": "a node", "PU": "a user", "PA": "an account"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Standing:
    """How a limit that stops a job stands."""

    limit: Limit
    #: "QOS small allows cpu=2 a job, it asks for cpu=4"
    sentence: str
    #: the request alone is more than the limit: it never starts
    never: bool
    #: request and use together are more than the limit; a job that asks for whole nodes may take
    #: more than it names
    beyond: bool = True


def standing(reason: str, request: Request, limits: Sequence[Limit]) -> Standing | None:
    """Return the limit that the reason names, the one that the job goes beyond first.

    None where the reason names none, or Slurm did not tell of it (the association of an account
    above, other users' limits).
    """
    found = _REASON.match(reason)
    if found is None:
        return None
    owners = ("QOS ",) if found["level"] == "QOS" else ("account ", "user ")
    name, wanted = _field(found)
    fitting = [
        limit
        for limit in limits
        if limit.name == name
        and limit.owner.startswith(owners)
        and (not wanted or limit.resource.startswith(wanted))
    ]
    told = [_standing(limit, request, kind=found["kind"]) for limit in fitting]
    stops = [one for one in told if one is not None]
    return max(stops, key=lambda one: (one.never, one.beyond), default=None)


def _field(found: re.Match[str]) -> tuple[str, tuple[str, ...]]:
    """Return the limit's name in Slurm's own listing, and the resources that it may be of."""
    what, kind = found["what"].lower(), found["kind"]
    scope = _SCOPES.get(found["scope"] or "", "")
    if what.startswith("job"):
        return ("GrpJobs" if kind == "Grp" else f"MaxJobs{scope}"), ()
    if what.startswith("wall"):
        return ("GrpWall" if kind == "Grp" else "MaxWallPJ"), ()
    time = {"Minutes": "Mins", "RunMinutes": "RunMins"}.get(found["time"] or "", "")
    if kind == "Min":
        return "MinTRESPJ", _RESOURCES[what]
    return f"{kind}TRES{time}{scope}", _RESOURCES[what]


def _standing(limit: Limit, request: Request, *, kind: str) -> Standing | None:
    """Return how it stands; None where it cannot be what stops the job."""
    if limit.name.startswith(("GrpWall", "GrpTRESMins", "GrpTRESRunMins", "MaxTRESMins")):
        amount = f"{_minutes(limit.allowed)} of {limit.resource or 'time'}"
        gone = "" if limit.used is None else f", {_minutes(limit.used)} are used"
        sentence = f"{limit.owner} has a budget of {amount}{gone}"
        return Standing(limit=limit, sentence=sentence, never=False)
    if limit.name == "MaxWallPJ":
        asked, shown = request.time_limit_seconds, values.elapsed(limit.allowed * 60)
        if asked is None or asked <= limit.allowed * 60:
            return None
        sentence = f"{limit.owner} allows {shown} a job, it asks for {values.elapsed(asked)}"
        return Standing(limit=limit, sentence=sentence, never=True)
    if "Jobs" in limit.name:
        return _of_jobs(limit)
    asked = request.resources.get(limit.resource, 0)
    if limit.name.endswith("PN") and request.nodes:
        asked = -(-asked // request.nodes)
    if kind == "Min":
        sentence = f"{limit.owner} wants at least {_amount(limit.resource, limit.allowed)} a job"
        return Standing(
            limit=limit,
            sentence=f"{sentence}, it asks for {_amount(limit.resource, asked)}",
            never=True,
        )
    used = limit.used or 0
    whose = _WHOSE.get(limit.name[-2:], "")
    once = "" if limit.name.endswith(("PJ", "PN")) else " at one time"
    sentence = f"{limit.owner} allows {_amount(limit.resource, limit.allowed)}"
    sentence += f" {whose}{once}" if whose else once
    running = "" if limit.used is None else f", {used} {_are(used)} used"
    return Standing(
        limit=limit,
        sentence=f"{sentence}{running}, it asks for {_amount(limit.resource, asked)}",
        never=asked > limit.allowed,
        beyond=asked + used > limit.allowed,
    )


def _of_jobs(limit: Limit) -> Standing | None:
    used = limit.used
    if used is not None and used < limit.allowed:
        return None
    whose = _WHOSE.get(limit.name[-2:], "")
    jobs = "1 job" if limit.allowed == 1 else f"{limit.allowed} jobs"
    sentence = f"{limit.owner} allows {jobs}{f' {whose}' if whose else ''} at one time"
    running = "" if used is None else f", {used} {'runs' if used == 1 else 'run'}"
    return Standing(limit=limit, sentence=f"{sentence}{running}", never=limit.allowed == 0)


def _are(number: int) -> str:
    return "is" if number == 1 else "are"


def _amount(resource: str, amount: int) -> str:
    return f"{resource}={amount}M" if resource == "mem" else f"{resource}={amount}"


def _minutes(number: int) -> str:
    return f"{number} minutes" if number < 600 else f"{number / 60:.0f} hours"
