"""Explanations of pending jobs, with the numbers."""

from __future__ import annotations

import datetime

import pytest

from orchestrator import jobs
from orchestrator.diagnosis import records
from orchestrator.diagnosis.pending import facts as pending_facts
from orchestrator.diagnosis.pending import jobs as pending_jobs
from orchestrator.diagnosis.pending.facts import Limit
from orchestrator.jobs import JobState
from tests.unit.diagnosis import test_final_states

NOW = test_final_states.BEGIN
LATER = NOW + datetime.timedelta(hours=1)
LATER_TEXT = LATER.astimezone().strftime("%Y-%m-%d %H:%M:%S")
SHORT = pending_facts.Partition(
    name="short", state="UP", nodes=4, cpus=32, max_nodes=2, max_time_seconds=60
)
NEVER, ACTION, WILL, LIMIT = "can never start", "needs action", "will start", "limit reached"


def waiting_job(reason: str, **fields: object) -> jobs.Job:
    job_id = fields.pop("job_id", "12")
    state = fields.pop("state", JobState.PENDING)
    return test_final_states.job_of(state, ran_seconds=None, reason=reason, job_id=job_id, **fields)  # type: ignore[arg-type]


def explained(reason: str, requested: dict[str, object], **known: object) -> tuple[str | None, str]:
    request = pending_facts.PendingRequest(reason=reason, **requested)  # type: ignore[arg-type]
    answers = pending_facts.PendingFacts(request=request, **known)  # type: ignore[arg-type]
    explanation = pending_jobs.explain(waiting_job(reason), answers, NOW)
    assert explanation.evidence[0].text == f"PENDING, reason {reason}"
    return explanation.cause, explanation.summary


@pytest.mark.parametrize(
    ("reason", "requested", "known", "cause", "label", "numbers"),
    [
        (
            *("PartitionTimeLimit", {"time_limit_seconds": 300}, {"partition": SHORT}),
            *("bad_resources", NEVER, "it requests 00:05:00, partition short allows 00:01:00"),
        ),
        (
            *("PartitionTimeLimit", {}, {"partition": SHORT}),
            *("bad_resources", NEVER, "no time limit, partition short allows 00:01:00"),
        ),
        (
            *("PartitionNodeLimit", {"nodes": 3}, {"partition": SHORT}),
            *("bad_resources", NEVER, "requests 3 nodes, partition short allows 2 per job"),
        ),
        (
            *("PartitionConfig", {"nodes": 1, "resources": {"cpu": 99}}, {"partition": SHORT}),
            *("bad_resources", NEVER, "it requests 99 CPUs, partition short has 32"),
        ),
        (
            *("DependencyNeverSatisfied", {"dependency": "afterok:7(failed)"}, {}),
            *("dependency", NEVER, "dependency afterok:7(failed)"),
        ),
        (
            "AccountNotAllowed",
            {"account": "proj"},
            {"partition": pending_facts.Partition(name="big", state="UP", accounts="physics")},
            *(
                "bad_account",
                NEVER,
                "big accepts physics, the account of the job is proj",
            ),
        ),
        (
            *("JobHeldAdmin", {}, {}),
            *("held", ACTION, "an administrator held it: ask the site's support"),
        ),
        (
            *("launch failed requeued held", {}, {}),
            *("launch_failed", ACTION, "it could not be started on its node and is held"),
        ),
        (
            *("ReqNodeNotAvail, UnavailableNodes:n4", {}),
            {"unavailable_nodes": ("n4 is down (Not responding)",)},
            *("unavailable", ACTION, "n4 is down (Not responding)"),
        ),
        (
            *("ReqNodeNotAvail, May be reserved for other job", {}, {}),
            *(None, WILL, "its nodes are reserved"),
        ),
        (
            "Reservation",
            {"reservation": "later"},
            {"reservation": pending_facts.Reservation(state="INACTIVE", begins_at=LATER)},
            *(None, WILL, f"reservation later begins at {LATER_TEXT}"),
        ),
        # scontrol did not show it.
        (*("Reservation", {"reservation": "gone"}, {}), *(None, WILL, "(reservation gone)")),
        (
            *("Priority", {"expected_start": LATER}, {"partition": SHORT, "before": 1}),
            *(None, WILL, "(1 job is ahead of it in partition short); Slurm expects it to start"),
        ),
        # An expected start in the past is not shown.
        (
            *("Resources", {"expected_start": NOW}, {"partition": SHORT, "before": 0}),
            *(None, WILL, "free (no jobs are ahead of it in partition short)"),
        ),
    ],
)
def test_reasons(
    reason: str,
    requested: dict[str, object],
    known: dict[str, object],
    cause: str | None,
    label: str,
    numbers: str,
) -> None:
    result, summary = explained(reason, requested, **known)
    assert result == cause
    assert summary.startswith(f"{label}: ") and numbers in summary


@pytest.mark.parametrize(
    ("reason", "limit", "never", "sentence"),
    [
        (
            *("QOSMaxCpuPerJobLimit", ("QOS small", "MaxTRESPJ", "cpu", 2, None)),
            *(True, "QOS small allows cpu=2 per job, it requests cpu=4"),
        ),
        (
            *("QOSMaxWallDurationPerJobLimit", ("QOS small", "MaxWallPJ", "", 10, None)),
            *(True, "QOS small allows 00:10:00 per job, it requests 01:00:00"),
        ),
        (
            *("QOSMaxGRESPerUser", ("QOS gpu", "MaxTRESPU", "gres/gpu", 8, 7)),
            *(False, "QOS gpu allows gres/gpu=8 per user at one time, 7 are used, it requests"),
        ),
        # The request alone exceeds the limit, so that the job would be pending for ever.
        (
            *("QOSMaxCpuPerUserLimit", ("QOS gpu", "MaxTRESPU", "cpu", 3, 0)),
            *(True, "QOS gpu allows cpu=3 per user at one time, 0 are used, it requests cpu=4"),
        ),
        (
            *("QOSGrpJobsLimit", ("QOS single", "GrpJobs", "", 1, 1)),
            *(False, "QOS single allows 1 job at one time, 1 is running"),
        ),
        (
            *("AssocMaxJobsLimit", ("user alice", "MaxJobs", "", 5, 5)),
            *(False, "user alice allows 5 jobs at one time, 5 are running"),
        ),
        (
            *("AssocGrpCpuLimit", ("account proj", "GrpTRES", "cpu", 20, 18)),
            *(False, "account proj allows cpu=20 at one time, 18 are used, it requests cpu=4"),
        ),
        (
            *("AssocGrpCPUMinutesLimit", ("account proj", "GrpTRESMins", "cpu", 6000, 6000)),
            *(False, "account proj has a budget of 100 hours of cpu, 100 hours are used"),
        ),
        (
            *("QOSMinGRES", ("QOS gpu", "MinTRESPJ", "gres/gpu", 4, None)),
            *(True, "QOS gpu requires gres/gpu=4 per job, it requests gres/gpu=2"),
        ),
        (
            *("QOSMaxMemoryPerNode", ("QOS gpu", "MaxTRESPN", "mem", 900, None)),
            *(True, "QOS gpu allows mem=900M per node, it requests mem=1000M"),
        ),
    ],
)
def test_limits(
    reason: str, limit: tuple[str, str, str, int, int | None], never: bool, sentence: str
) -> None:
    owner, name, resource, allowed, used = limit
    exceeded = Limit(owner=owner, name=name, resource=resource, allowed=allowed, used=used)
    # An unrelated limit.
    other = Limit(owner="QOS normal", name="GrpSubmitJobs", allowed=1, used=1)
    requested = {
        "time_limit_seconds": 3600,
        "nodes": 2,
        "resources": {"cpu": 4, "gres/gpu": 2, "mem": 2000},
    }
    cause, summary = explained(reason, requested, limits=(other, exceeded))
    assert sentence in summary
    assert cause == ("limit_reached" if never else None)
    assert summary.startswith(NEVER if never else LIMIT)


def test_without_an_answer_of_slurm() -> None:
    answers = pending_facts.PendingFacts(error="squeue could not reach slurmctld")
    explanation = pending_jobs.explain(waiting_job("BeginTime,JobHeldUser"), answers, NOW)
    assert (explanation.cause, explanation.cures) == (
        "held",
        ("release it: orchestrator release JOB",),
    )
    assert explanation.summary.startswith(ACTION)
    assert explanation.details["slurm_error"] == "squeue could not reach slurmctld"


def test_the_queue_of_this_machine_is_not_called_slurm() -> None:
    job = waiting_job("Priority", scheduler="local", job_id="local-7")
    request = pending_facts.PendingRequest(reason="Priority")
    explanation = pending_jobs.explain(job, pending_facts.PendingFacts(request=request), NOW)
    assert explanation.evidence[0].source is records.Source.OURS


def test_time_limit_can_be_changed_in_the_queue() -> None:
    request = pending_facts.PendingRequest(reason="PartitionTimeLimit", time_limit_seconds=300)
    answers = pending_facts.PendingFacts(request=request, partition=SHORT)
    explanation = pending_jobs.explain(waiting_job("PartitionTimeLimit"), answers, NOW)
    assert explanation.cures[0] == "scontrol update JobId=12 TimeLimit=00:01:00"


def test_jobs_that_are_not_in_slurm() -> None:
    waits = waiting_job(
        "waits for room: QOSMaxSubmitJobPerUserLimit",
        **{"job_id": None, "state": JobState.NOT_SUBMITTED, "resend_at": LATER},
    )
    unknown = waiting_job("", job_id=None, state=JobState.SUBMIT_UNKNOWN)
    assert pending_jobs.is_pending(waits) and pending_jobs.is_pending(unknown)
    explanation = pending_jobs.explain(waits, pending_facts.PendingFacts(), NOW)
    assert explanation.summary.startswith(
        "waits for room: QOSMaxSubmitJobPerUserLimit; the next command that contacts Slurm after "
        f"{LATER_TEXT}"
    )
    explanation = pending_jobs.explain(unknown, pending_facts.PendingFacts(), NOW)
    assert explanation.summary.startswith("it is unknown whether Slurm accepted the job")
    assert not pending_jobs.is_pending(
        test_final_states.job_of(JobState.NOT_SUBMITTED, ran_seconds=None)
    )
