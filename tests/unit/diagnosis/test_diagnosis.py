"""Which jobs wait until somebody releases them."""

import dataclasses
import datetime

import pytest

from orchestrator import diagnosis, jobs
from orchestrator.diagnosis import waiting
from orchestrator.jobs import JobState


def job_of(state, **fields):
    return jobs.Job(
        row=1,
        token="abcd12345678",
        cluster="lab",
        scheduler="slurm",
        name="demo",
        state=state,
        run_dir="/r",
        created_at=datetime.datetime.now(datetime.UTC),
        **fields,
    )


def ended(state, code, exit_signal):
    return job_of(state, exit_code=code, exit_signal=exit_signal)


@pytest.mark.parametrize(
    ("state", "reason", "held"),
    [
        (JobState.PENDING, "JobHeldUser", True),
        (JobState.PENDING, "JobHeldAdmin", True),
        (JobState.PENDING, "JobHoldMaxRequeue", True),
        (JobState.PENDING, "BeginTime,JobHeldUser", True),
        (JobState.PENDING, "job requeued in held state", True),
        (JobState.PENDING, "launch failed requeued held", True),
        (JobState.REQUEUE_HOLD, None, True),
        (JobState.SPECIAL_EXIT, "job requeued in held state", True),
        (JobState.PENDING, "Priority", False),
        (JobState.PENDING, None, False),
        # Measured: on its way there.
        (JobState.COMPLETING, "job requeued in held state", False),
        # squeue shows it of a running job after `scontrol hold`.
        (JobState.RUNNING, "JobHeldUser", False),
    ],
)
def test_held(state, reason, held):
    job = job_of(state, reason=reason)
    assert diagnosis.is_held(job) is held
    if held and state is JobState.PENDING and "," not in str(reason):
        assert waiting.waiting(str(reason))[0] is diagnosis.Waiting.PERSON


@pytest.mark.parametrize(
    ("state", "code", "exit_signal", "told"),
    [
        (JobState.COMPLETED, 0, 0, ""),
        (JobState.FAILED, 3, 0, ""),
        (
            JobState.FAILED,
            0,
            53,
            "its log or its working folder could not be opened on the node, so there is no log",
        ),
        (JobState.FAILED, 0, 9, "the script was ended by SIGKILL"),
        (JobState.FAILED, 137, 0, "128 and 9: the program was ended by SIGKILL"),
        (JobState.OUT_OF_MEMORY, 137, 0, "128 and 9: the program was ended by SIGKILL"),
        (JobState.FAILED, 127, 0, "the program was not found"),
        (JobState.FAILED, 73, 0, "its run folder is not seen from the compute node"),
        (JobState.FAILED, 255, 0, ""),
        (JobState.CANCELLED, 0, 15, ""),
        (JobState.TIMEOUT, 0, 0, ""),
        (JobState.FAILED, None, None, ""),
    ],
)
def test_what_an_exit_code_says(state, code, exit_signal, told):
    assert diagnosis.explain_exit(ended(state, code, exit_signal)) == told


def test_a_code_that_sacct_alone_tells_may_lack_128():
    told = (
        "or 137, which sacct writes as 9 up to Slurm 25.05: then the program was ended by SIGKILL"
    )
    tracked = dataclasses.replace(ended(JobState.FAILED, 9, 0), tracked_name="by-hand")
    assert diagnosis.explain_exit(tracked) == told
    assert diagnosis.explain_exit(ended(JobState.FAILED, 9, 0)) == ""


# The classes of Slurm's reasons, one of each family and every odd one.
@pytest.mark.parametrize(
    ("kind", "reasons"),
    [
        (
            diagnosis.Waiting.WILL_START,
            "None Priority Resources BeginTime Dependency Prolog Cleaning Licenses Reservation "
            "SchedDefer BurstBufferResources BurstBufferStageIn FedJobLock MpiPortsBusy "
            "NvidiaImexChannels MaxPoweredUpNodes Constraints SomethingNew "
            "NonZeroExitCode RaisedSignal:9(Killed) TimeLimit OutOfMemory",
        ),
        (
            diagnosis.Waiting.LIMIT,
            "JobArrayTaskLimit QOSMaxJobsPerUserLimit QOSMaxCpuPerUserLimit QOSMaxNodePerUserLimit "
            "QOSMaxGRESPerUser QOSMaxMemoryPerUser QOSGrpCpuLimit QOSGrpMemLimit QOSGrpNodeLimit "
            "QOSGrpJobsLimit QOSGrpGRES AssocGrpCpuLimit AssocGrpMemLimit AssocGrpGRES "
            "AssocMaxJobsLimit MaxGRESPerAccount AssocGrpCPUMinutesLimit AssocGrpGRESMinutes "
            "AssocGrpBillingMinutes QOSGrpCPUMinutesLimit AssocGrpWallLimit QOSGrpWallLimit "
            "QOSUsageThreshold AssocGrpCPURunMinutesLimit QOSGrpCPURunMinutesLimit",
        ),
        (
            diagnosis.Waiting.PERSON,
            "JobHeldUser JobHeldAdmin JobHoldMaxRequeue ReservationDeleted PartitionDown "
            "PartitionInactive NodeDown FrontEndDown ReqNodeNotAvail SystemFailure "
            "BurstBufferOperation",
        ),
        (
            diagnosis.Waiting.NEVER,
            "DependencyNeverSatisfied BadConstraints PartitionNodeLimit PartitionTimeLimit "
            "PartitionConfig MaxMemPerLimit QOSMaxCpuPerJobLimit QOSMaxGRESPerJob "
            "QOSMaxWallDurationPerJobLimit QOSMaxCpuPerNode QOSMinCpuNotSatisfied QOSMinGRES "
            "AssocMaxCpuPerJobLimit AssocMaxWallDurationPerJobLimit AssocMaxCPUMinutesPerJobLimit "
            "AssocMaxCpuMinutesPerJobLimit InvalidAccount InvalidQOS AccountNotAllowed "
            "QOSNotAllowed DeadLine",
        ),
    ],
)
def test_every_pending_reason_has_its_class(kind, reasons):
    assert {reason: waiting.waiting(reason)[0] for reason in reasons.split()} == dict.fromkeys(
        reasons.split(), kind
    )


def test_every_cause_says_what_it_is_and_what_helps():
    for cause in diagnosis.Cause:
        kind = diagnosis.kind_of(cause)
        assert kind.title and kind.cures
        assert kind.title == kind.title.strip(" .")
