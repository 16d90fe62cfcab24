"""scontrol: settings, jobs, partitions and limits of slurmctld, and refusals of changes."""

from __future__ import annotations

import dataclasses
import datetime
import re
from collections.abc import Iterator, Mapping

from orchestrator import errors
from orchestrator.diagnosis.pending import facts as pending_facts
from orchestrator.slurm import failures, fields

#: First line of `scontrol show config`, followed by slurmctld's time (proc_req.c).
_CONFIG_HEADER = "Configuration data as of "
_SETTING = re.compile(r"([A-Za-z_]\w*(?:\[\d+\])?)\s*= ?(.*)", re.ASCII)
# `scontrol -o show` separates NAME=VALUE with spaces, and values may contain spaces. A name looks
# like "AllocNode:Sid", "MinMemoryNode", "TresPerNode".
_RECORD_FIELD = re.compile(r"(?:^|\s)([A-Z][A-Za-z_]*(?:[:/][A-Za-z]+)*)=")
#: List all nodes, one a line, also those in hidden partitions.
NODES_COMMAND = ("scontrol", "-a", "-o", "show", "node")
_REFUSED = re.compile(r"(?P<why>.+?) for job (?P<job>\d+(?:_\d+|_\[\d+\])?)", re.ASCII)
_REFUSED_TASK = re.compile(r"(?P<job>\d+_(?:\d+|\[\d+\])): (?P<why>.+)", re.ASCII)
_LIMIT_FIELD = re.compile(r"(?P<name>(?:Max|Grp|Min)\w*)=(?P<value>\S*)", re.ASCII)
_LIMIT = re.compile(r"(?:(?P<resource>[a-z][\w/:.-]*)=)?(?P<allowed>\d+)(?:\((?P<used>\d+)\S*)?")
#: The limits of one user or account in a QOS.
_OWNER_LIMITS = re.compile(r"(?P<owner>[^\s={}]+)=\{(?P<limits>[^}]*)\}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClusterConfig:
    """The settings of slurmctld that the orchestrator depends on."""

    cluster_name: str
    #: "24.11.5"
    slurm_version: str
    #: a client gives up on slurmctld after this time
    message_timeout_seconds: int
    #: squeue lists an ended job for this time
    min_job_age_seconds: int
    max_array_size: int
    #: whether there is an accounting database
    accounting: bool
    #: whether the accounting database records GPUs
    counts_gpus: bool
    #: by the clock of slurmctld's host
    answered_at: datetime.datetime | None
    #: short names of the hosts of slurmctld and its backups
    controller_hosts: tuple[str, ...]
    #: all settings by Slurm's names
    settings: Mapping[str, str]


def parse_config(text: str) -> ClusterConfig:
    """Parse `scontrol show config`; raises SlurmError without cluster name or version."""
    settings: dict[str, str] = {}
    as_of = ""
    for line in text.splitlines():
        if line.startswith(_CONFIG_HEADER):
            as_of = line.removeprefix(_CONFIG_HEADER)
        if match := _SETTING.fullmatch(line.strip()):
            # The cgroup settings come last and may repeat a name.
            settings.setdefault(match[1], match[2].strip())

    def number(name: str, default: int) -> int:
        """Parse `30 sec` or `1001`."""
        value = fields.parse_count((settings.get(name, "").split() or [""])[0])
        return default if value is None else value

    cluster = fields.parse_text(settings.get("ClusterName", ""))
    version = fields.parse_text(settings.get("SLURM_VERSION", ""))
    if cluster is None or version is None:
        raise errors.SlurmError(
            "the output of `scontrol show config` has no ClusterName or SLURM_VERSION. "
            "Run the command to see it."
        )
    storage = settings.get("AccountingStorageType", "")
    return ClusterConfig(
        cluster_name=cluster,
        slurm_version=version,
        # Defaults of man slurm.conf, for a site whose scontrol prints fewer settings.
        message_timeout_seconds=number("MessageTimeout", 10),
        min_job_age_seconds=number("MinJobAge", 300),
        max_array_size=number("MaxArraySize", 1001),
        # 22.05 prints accounting_storage/none, 24.11 and later (null).
        accounting=fields.parse_text(storage) is not None and not storage.endswith("/none"),
        counts_gpus="gres/gpu" in settings.get("AccountingStorageTRES", "").split(","),
        answered_at=fields.parse_time(as_of),
        controller_hosts=tuple(
            re.split(r"[.(]", value)[0]
            for name, value in settings.items()
            if name.startswith("SlurmctldHost[")
        ),
        settings=settings,
    )


def parse_record(line: str) -> dict[str, str]:
    """Parse one line of `scontrol -o show`: JobId, JobName, Restarts, StdOut, Command, ..."""
    _, *parts = _RECORD_FIELD.split(line)
    record: dict[str, str] = {}
    for name, value in zip(parts[::2], parts[1::2], strict=True):
        record.setdefault(name, value.strip())
    return record


def parse_refusals(stderr: str) -> dict[str, str]:
    """Return why jobs were refused, by job ID; jobs that are not named were accepted.

    22.05 to 26.05: `Job has already finished for job 7`, `7_1: Invalid job id specified`, which
    26.05 writes `7_[1]: Invalid job id specified`.
    """
    lines = map(failures.printable, stderr.splitlines())
    matches = (_REFUSED.fullmatch(line) or _REFUSED_TASK.fullmatch(line) for line in lines)
    return {re.sub(r"[\[\]]", "", match["job"]): match["why"] for match in matches if match}


def parse_request(job: Mapping[str, str]) -> pending_facts.PendingRequest:
    """Return what a pending job requests, from its `scontrol show job` record."""

    def text(name: str) -> str | None:
        return fields.parse_text(job.get(name, ""))

    # scontrol prints `_` for spaces in the reason, squeue does not (24.11).
    reason, nodes, names = job.get("Reason", "None").partition("Nodes:")
    return pending_facts.PendingRequest(
        reason=(reason.replace("_", " ") + nodes + names) or "None",
        partition=text("Partition"),
        account=text("Account"),
        qos=text("QOS"),
        nodes=fields.parse_count(job.get("NumNodes", "").partition("-")[0]),
        time_limit_seconds=fields.parse_duration_seconds(job.get("TimeLimit", "")),
        resources=dict(_resources(job.get("ReqTRES") or job.get("TRES") or "")),
        memory_mib=_memory_mib(job.get("MinMemoryNode", "")),
        features=text("Features"),
        node_list=text("ReqNodeList"),
        dependency=text("Dependency"),
        reservation=text("Reservation"),
        licenses=text("Licenses"),
        priority=fields.parse_amount(job.get("Priority", "")),
        eligible_at=fields.parse_time(job.get("EligibleTime", "")),
        deadline=fields.parse_time(job.get("Deadline", "")),
        expected_start=fields.parse_time(job.get("StartTime", "")),
    )


def parse_architectures(text: str) -> dict[str, list[str]]:
    """Return the architectures of the nodes of each partition, from `scontrol -o show node`.

    "" is that of nodes that did not register yet: Slurm prints no Arch for them.
    """
    found: dict[str, set[str]] = {}
    for line in text.splitlines():
        words = dict(word.partition("=")[::2] for word in line.split() if "=" in word)
        if "NodeName" in words:
            for partition in filter(None, words.get("Partitions", "").split(",")):
                found.setdefault(partition, set()).add(words.get("Arch", ""))
    return {partition: sorted(names) for partition, names in found.items()}


def parse_partition(text: str) -> pending_facts.Partition | None:
    """Parse `scontrol -o show partition`; None if it names none."""
    record = parse_record(text)
    name = fields.parse_text(record.get("PartitionName", ""))
    if name is None:
        return None
    return pending_facts.Partition(
        name=name,
        state=record.get("State", ""),
        nodes=fields.parse_count(record.get("TotalNodes", "")),
        cpus=fields.parse_count(record.get("TotalCPUs", "")),
        max_nodes=fields.parse_count(record.get("MaxNodes", "")),
        max_time_seconds=fields.parse_duration_seconds(record.get("MaxTime", "")),
        max_memory_mib=fields.parse_count(record.get("MaxMemPerNode", "")),
        accounts=_restriction(record.get("AllowAccounts", "")),
        allowed_qos=_restriction(record.get("AllowQos", "")),
        qos=fields.parse_text(record.get("QoS", "")),
    )


def parse_reservation(text: str) -> pending_facts.Reservation | None:
    """Parse `scontrol -o show reservation`; None if it names none."""
    record = parse_record(text)
    if fields.parse_text(record.get("ReservationName", "")) is None:
        return None
    return pending_facts.Reservation(
        state=record.get("State", ""),
        begins_at=fields.parse_time(record.get("StartTime", "")),
        ends_at=fields.parse_time(record.get("EndTime", "")),
    )


def parse_limits(text: str, user: str, account: str) -> list[pending_facts.Limit]:
    """Parse the limits that are set: `GrpJobs=1(0)`, `MaxTRESPJ=cpu=2,node=1`.

    The number in parentheses is the use. N and an empty value mean no limit. `user`: "alice(2001)".
    """
    # 22.05 prints the user ID alone.
    owners = {user, *re.split(r"[()]", user), account}
    limits: list[pending_facts.Limit] = []
    for line in text.splitlines():
        if qos := re.match(r"QOS=([^\s(]+)", line):
            own = [
                part["limits"] for part in _OWNER_LIMITS.finditer(line) if part["owner"] in owners
            ]
            for part in (_OWNER_LIMITS.sub(" ", line), *own):
                limits += _limits(part, f"QOS {qos[1]}")
        elif line.startswith("ClusterName="):
            record = parse_record(line)
            name = record.get("UserName", "")
            owner = f"user {name.partition('(')[0]}" if name else f"account {record.get('Account')}"
            if name in ("", user):
                limits += _limits(line, owner)
    return limits


def _limits(text: str, owner: str) -> Iterator[pending_facts.Limit]:
    for field in _LIMIT_FIELD.finditer(text):
        for item in field["value"].split(","):
            value = _LIMIT.match(item)
            if value is None or (value["resource"] is None and "TRES" in field["name"]):
                continue
            yield pending_facts.Limit(
                owner=owner,
                name=field["name"],
                resource=value["resource"] or "",
                allowed=int(value["allowed"]),
                used=None if value["used"] is None else int(value["used"]),
            )


def _resources(raw: str) -> Iterator[tuple[str, int]]:
    for name, amount in fields.parse_tres(raw).items():
        count = _memory_mib(amount) if name == "mem" else fields.parse_count(amount)
        if name and count is not None:
            yield name, count


def _memory_mib(raw: str) -> int | None:
    """Parse `2000M`, `1.5G` or a plain number of MiB."""
    text = raw.strip()
    amount = fields.parse_amount(f"{text}M" if text.isdecimal() else text)
    return None if amount is None else amount // 1024**2


def _restriction(raw: str) -> str | None:
    text = fields.parse_text(raw)
    return None if text == "ALL" else text
