"""Facts about pending jobs: output of Slurm 22.05, 24.11 and 26.05 from the test cluster."""

from __future__ import annotations

import datetime

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.diagnosis.pending import facts as pending_facts
from orchestrator.slurm import scontrol, sinfo, squeue
from tests.unit.slurm import conftest

#: The start and the keys that are read, of 24.11.
JOB = (
    "JobId=3 JobName=c UserId=alice(2001) Priority=1 Nice=0 Account=proj QOS=small "
    "JobState=PENDING Reason=QOSMaxCpuPerJobLimit Dependency=(null) Requeue=1 Restarts=0 "
    "TimeLimit=00:05:00 TimeMin=N/A SubmitTime=1795299186 EligibleTime=1795299186 "
    "StartTime=1795302787 EndTime=Unknown Deadline=N/A Partition=gpu ReqNodeList=(null) "
    "NodeList= NumNodes=1-1 NumCPUs=4 ReqTRES=cpu=4,mem=2000M,node=1,billing=4,gres/gpu=8 "
    "AllocTRES=(null) MinMemoryNode=3G Features=(null) Licenses=(null)\n"
)
PARTITION = (
    "PartitionName=short AllowGroups=ALL AllowAccounts=ALL AllowQos=normal,small Default=NO "
    "QoS=N/A MaxNodes=UNLIMITED MaxTime=00:01:00 MinNodes=0 Nodes=n[1-4] State=DOWN "
    "TotalCPUs=32 TotalNodes=4 DefMemPerNode=UNLIMITED MaxMemPerNode=UNLIMITED\n"
)
RESERVATION = (
    "ReservationName=later StartTime=1795302786 EndTime=1795303386 Duration=00:10:00 Nodes=n1 "
    "NodeCnt=1 Users=alice Groups=(null) State=INACTIVE\n"
)
ORDER = "6|1|Priority\n4|1|Reservation\n2|1|Resources\n9|5|None\n5|0|JobHeldUser\n3|1|\n"


def at(epoch: int) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(epoch, datetime.UTC)


def test_a_request() -> None:
    assert scontrol.parse_request(scontrol.parse_record(JOB)) == pending_facts.PendingRequest(
        reason="QOSMaxCpuPerJobLimit",
        partition="gpu",
        account="proj",
        qos="small",
        nodes=1,
        time_limit_seconds=300,
        resources={"cpu": 4, "mem": 2000, "node": 1, "billing": 4, "gres/gpu": 8},
        memory_mib=3072,
        priority=1,
        eligible_at=at(1795299186),
        expected_start=at(1795302787),
    )
    # scontrol has `_` for the blanks of free text, and names of nodes may have their own.
    away = scontrol.parse_record("JobId=7 Reason=ReqNodeNotAvail,_UnavailableNodes:n_4 X=1")
    assert scontrol.parse_request(away).reason == "ReqNodeNotAvail, UnavailableNodes:n_4"


def test_a_partition_and_a_reservation() -> None:
    assert scontrol.parse_partition(PARTITION) == pending_facts.Partition(
        name="short",
        state="DOWN",
        nodes=4,
        cpus=32,
        max_time_seconds=60,
        allowed_qos="normal,small",
    )
    assert scontrol.parse_reservation(RESERVATION) == pending_facts.Reservation(
        state="INACTIVE",
        begins_at=at(1795302786),
        ends_at=at(1795303386),
    )
    assert scontrol.parse_partition("Partition x not found\n") is None
    assert scontrol.parse_reservation("Reservation x not found\n") is None


def test_limits(recorded: conftest.Recorded) -> None:
    text = recorded.text("limits.txt")
    result = scontrol.parse_limits(text, "alice(2001)", "proj")
    reported = [(item.owner, item.name, item.resource, item.allowed, item.used) for item in result]
    assert sorted(reported, key=str) == [
        ("QOS single", "GrpJobs", "", 1, 1),
        ("QOS single", "GrpTRESMins", "cpu", 1000, 0),
        ("QOS single", "MaxTRESPU", "cpu", 6, 2),
        ("QOS small", "MaxTRESPJ", "cpu", 2, None),
        ("QOS small", "MaxWallPJ", "", 10, None),
        ("account proj", "GrpTRES", "cpu", 20, 2),
        ("user alice", "MaxJobs", "", 5, 1),
    ]
    # What another user has used of the QOS is not ours.
    others = scontrol.parse_limits(text, "bob(2002)", "proj")
    assert "MaxTRESPU" not in {other.name for other in others}


def test_jobs_before_a_job() -> None:
    # 9 has a higher priority; 2 and 6 have the same: 2 is older. Those that wait for something
    # else are not before it.
    assert squeue.count_jobs_before(ORDER, "3", 1) == 2
    assert squeue.count_jobs_before(ORDER, "7", 1) == 3
    assert squeue.count_jobs_before("\nx\nslurm_load_jobs error|", "3", 1) == 0
    # Its own priority has grown since it was read.
    assert squeue.count_jobs_before("3|2|Priority\n", "3", 1) == 0


def test_unavailable_nodes() -> None:
    text = "n1\x1fidle\x1fnone\nn3\x1fdrained\x1fmaintenance\nn4\x1fdown*\x1fNot responding, ask\n"
    assert sinfo.parse_reasons(text * 2) == [
        "n3 is drained (maintenance)",
        "n4 is down (Not responding, ask)",
    ]


@given(st.text(alphabet="QOS=small(3) GrpJobs=1TRES{}cpu,N().\n", max_size=200))
def test_any_text_is_read(text: str) -> None:
    scontrol.parse_limits(text, "small(3)", "proj")
    scontrol.parse_request(scontrol.parse_record(text))
    scontrol.parse_partition(text)
    sinfo.parse_reasons(text)
