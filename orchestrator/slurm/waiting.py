"""What a waiting job waits for: scontrol's partitions, reservations and limits, squeue's order.

Recorded on 24.11.5; 22.05 and 26.05 print the same names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from orchestrator.diagnosis import queue
from orchestrator.slurm import fields, scontrol

_FIELD = re.compile(r"(?P<name>(?:Max|Grp|Min)\w*)=(?P<value>\S*)", re.ASCII)
_LIMIT = re.compile(r"(?:(?P<resource>[a-z][\w/:.-]*)=)?(?P<allowed>\d+)(?:\((?P<used>\d+)\S*)?")
_OWN_PART = re.compile(r"(?P<whose>[^\s={}]+)=\{(?P<limits>[^}]*)\}")
_DELIMITER = "|"
#: Reasons of jobs that compete for the nodes that are free.
_IN_LINE = frozenset({"None", "Priority", "Resources"})


def parse_request(job: Mapping[str, str]) -> queue.Request:
    """Read what `scontrol show job` says of a waiting job."""
    resources = dict(_resources(job.get("ReqTRES") or job.get("TRES") or ""))
    nodes = fields.parse_count((job.get("NumNodes") or "").partition("-")[0])
    memory = _memory(job.get("MinMemoryNode") or "")
    return queue.Request(
        reason=_reason(job.get("Reason") or "None"),
        partition=fields.parse_text(job.get("Partition") or ""),
        account=fields.parse_text(job.get("Account") or ""),
        qos=fields.parse_text(job.get("QOS") or ""),
        nodes=nodes,
        time_limit_seconds=fields.parse_duration_seconds(job.get("TimeLimit") or ""),
        resources=resources,
        memory_mib=memory,
        features=fields.parse_text(job.get("Features") or ""),
        node_list=fields.parse_text(job.get("ReqNodeList") or ""),
        dependency=fields.parse_text(job.get("Dependency") or ""),
        reservation=fields.parse_text(job.get("Reservation") or ""),
        licenses=fields.parse_text(job.get("Licenses") or ""),
        priority=fields.parse_amount(job.get("Priority") or ""),
        eligible_at=fields.parse_time(job.get("EligibleTime") or ""),
        deadline=fields.parse_time(job.get("Deadline") or ""),
        expected_start=fields.parse_time(job.get("StartTime") or ""),
    )


def scontrol_show_partition_command(name: str) -> list[str]:
    """Ask for one partition, on one line."""
    return ["scontrol", "-o", "show", "partition", name]


def parse_partition(text: str) -> queue.Partition | None:
    """Read that line; None where there is none."""
    found = scontrol.parse_scontrol_job(text)
    name = fields.parse_text(found.get("PartitionName", ""))
    if name is None:
        return None
    return queue.Partition(
        name=name,
        state=found.get("State", ""),
        nodes=fields.parse_count(found.get("TotalNodes", "")),
        cpus=fields.parse_count(found.get("TotalCPUs", "")),
        max_nodes=fields.parse_count(found.get("MaxNodes", "")),
        max_time_seconds=fields.parse_duration_seconds(found.get("MaxTime", "")),
        max_memory_mib=fields.parse_count(found.get("MaxMemPerNode", "")),
        accounts=_chosen(found.get("AllowAccounts", "")),
        allowed_qos=_chosen(found.get("AllowQos", "")),
        qos=fields.parse_text(found.get("QoS", "")),
    )


def scontrol_show_reservation_command(name: str) -> list[str]:
    """Ask for one reservation, on one line."""
    return ["scontrol", "-o", "show", "reservation", name]


def parse_reservation(text: str) -> queue.Reservation | None:
    """Read that line; None where there is none."""
    found = scontrol.parse_scontrol_job(text)
    name = fields.parse_text(found.get("ReservationName", ""))
    if name is None:
        return None
    return queue.Reservation(
        name=name,
        state=found.get("State", ""),
        nodes=fields.parse_text(found.get("Nodes", "")),
        begins_at=fields.parse_time(found.get("StartTime", "")),
        ends_at=fields.parse_time(found.get("EndTime", "")),
    )


def scontrol_show_limits_command(user: str, account: str, qos: Sequence[str]) -> list[str]:
    """Ask for the limits of a user ("alice(2001)"), an account and some QOS, and their use."""
    return [
        *("scontrol", "-o", "show", "assoc_mgr", "flags=assoc,qos"),
        *(f"users={user.partition('(')[0]}", f"accounts={account}", f"qos={','.join(qos)}"),
    ]


def parse_limits(text: str, user: str, account: str) -> list[queue.Limit]:
    """Read the limits that are set: `GrpJobs=1(0)`, `MaxTRESPJ=cpu=2,node=1`, `GrpTRES=cpu=N(32)`.

    N and an empty value are no limit; the number in brackets is used. `user`: "alice(2001)".
    """
    names = {user, *re.split(r"[()]", user), account}
    found: list[queue.Limit] = []
    for line in text.splitlines():
        first = re.match(r"QOS=([^\s(]+)", line)
        if first:
            plain, own = _OWN_PART.sub(" ", line), _OWN_PART.finditer(line)
            owner = f"QOS {first[1]}"
            found += _limits(plain, owner)
            for part in own:
                # 22.05 has the user's ID alone.
                if part["whose"] in names:
                    found += _limits(part["limits"], owner)
        elif line.startswith("ClusterName="):
            record = scontrol.parse_scontrol_job(line)
            name = record.get("UserName", "")
            owner = f"user {name.partition('(')[0]}" if name else f"account {record.get('Account')}"
            if name in ("", user):
                found += _limits(line, owner)
    return found


def squeue_order_command(partition: str) -> list[str]:
    """Ask for the priorities of the jobs that wait in a partition."""
    form = _DELIMITER.join(("%A", "%Q", "%r"))
    return ["squeue", "-h", "-a", "-t", "PD", "-p", partition, "-o", form]


def count_before(lines: Iterable[str], job_id: str, priority: int) -> int:
    """Count the jobs that may start and come before this one; of like priority the older ones.

    An array's waiting tasks are one line, and count once.
    """
    count = 0
    for line in lines:
        number, _, rest = line.strip().partition(_DELIMITER)
        other, _, reason = rest.partition(_DELIMITER)
        theirs, own = fields.parse_amount(other), fields.parse_count(job_id)
        if theirs is None or reason not in _IN_LINE or number == job_id:
            continue
        older = (fields.parse_count(number) or 0) < (own or 0)
        count += theirs > priority or (theirs == priority and older)
    return count


def sinfo_reasons_command(nodes: str) -> list[str]:
    """Ask for the state of nodes, and why they are not available."""
    return ["sinfo", "-h", "-N", "-n", nodes, "-o", _DELIMITER.join(("%N", "%T", "%E"))]


def parse_reasons(text: str) -> list[queue.Node]:
    """Read those lines, each node once; those of which sinfo names no reason are left out."""
    found: dict[str, queue.Node] = {}
    for line in text.splitlines():
        name, _, rest = line.partition(_DELIMITER)
        state, _, why = rest.partition(_DELIMITER)
        if why.strip() not in ("", "none"):
            found[name] = queue.Node(name=name, state=state.rstrip("*$~#!%@^-+"), why=why.strip())
    return list(found.values())


def _limits(text: str, owner: str) -> Iterator[queue.Limit]:
    for field in _FIELD.finditer(text):
        for item in field["value"].split(","):
            value = _LIMIT.match(item)
            if value is None or (value["resource"] is None and "TRES" in field["name"]):
                continue
            yield queue.Limit(
                owner=owner,
                name=field["name"],
                resource=value["resource"] or "",
                allowed=int(value["allowed"]),
                used=None if value["used"] is None else int(value["used"]),
            )


def _resources(raw: str) -> Iterator[tuple[str, int]]:
    for item in raw.split(","):
        name, _, amount = item.partition("=")
        count = _memory(amount) if name == "mem" else fields.parse_count(amount)
        if name and count is not None:
            yield name, count


def _memory(raw: str) -> int | None:
    """Read `2000M`, `1.5G` or a plain number of MiB."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([KMGT]?)", raw.strip(), re.ASCII)
    if found is None or len(found[1]) > 15:
        return None
    return int(float(found[1]) * 1024.0 ** ("KMGT".index(found[2] or "M") - 1))


def _reason(raw: str) -> str:
    """Return it as squeue prints it: scontrol has `_` for blanks (24.11)."""
    words, nodes, names = raw.partition("Nodes:")
    return words.replace("_", " ") + nodes + names


def _chosen(raw: str) -> str | None:
    text = fields.parse_text(raw)
    return None if text in (None, "ALL") else text
