"""Held jobs, exit codes, and the meaning of Slurm's pending reasons."""

import dataclasses
import datetime
import re

import pytest

from orchestrator.diagnosis import (
    causes,
    exit_codes,
    explanations,
    final_states,
    log_rules,
)
from orchestrator.diagnosis.pending import facts as pending_facts
from orchestrator.diagnosis.pending import reasons as pending_reasons
from orchestrator.diagnosis.pending.reasons import Prospect
from orchestrator.jobs import JobState
from tests import builders


def job_of(state, **fields):
    return builders.make_job(state=state, created_at=datetime.datetime.now(datetime.UTC), **fields)


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
        # Measured: before it is held.
        (JobState.COMPLETING, "job requeued in held state", False),
        # squeue shows it of a running job after `scontrol hold`.
        (JobState.RUNNING, "JobHeldUser", False),
    ],
)
def test_held(state, reason, held):
    job = job_of(state, reason=reason)
    assert pending_reasons.is_held(job) is held
    if held and state is JobState.PENDING and "," not in str(reason):
        assert pending_reasons.meaning(str(reason)).prospect is Prospect.ACTION


@pytest.mark.parametrize(
    ("state", "code", "exit_signal", "sentence"),
    [
        (JobState.COMPLETED, 0, 0, ""),
        (JobState.FAILED, 3, 0, ""),
        (
            JobState.FAILED,
            0,
            53,
            "Slurm could not open the log or the working directory, so there is no log",
        ),
        (JobState.FAILED, 0, 9, "SIGKILL ended the batch script"),
        (JobState.FAILED, 137, 0, "SIGKILL ended the program: 137 = 128 + 9"),
        (JobState.OUT_OF_MEMORY, 137, 0, "SIGKILL ended the program: 137 = 128 + 9"),
        (JobState.FAILED, 127, 0, "the program was not found"),
        (JobState.FAILED, 73, 0, "the compute node cannot see the run folder"),
        (JobState.FAILED, 255, 0, ""),
        (JobState.CANCELLED, 0, 15, ""),
        (JobState.TIMEOUT, 0, 0, ""),
        (JobState.FAILED, None, None, ""),
    ],
)
def test_exit_codes(state, code, exit_signal, sentence):
    known = exit_codes.meaning(ended(state, code, exit_signal))
    assert (known[1] if known else "") == sentence


def test_exit_code_of_sacct_may_lack_128():
    sentence = "SIGKILL may have ended the program: sacct up to Slurm 25.05 reports 137 as 9"
    tracked = dataclasses.replace(ended(JobState.FAILED, 9, 0), tracked_name="by-hand")
    assert exit_codes.meaning(tracked) == ("nonzero_exit", sentence)
    assert exit_codes.meaning(ended(JobState.FAILED, 9, 0)) is None


# The classes of Slurm's reasons, one of each family and every odd one.
@pytest.mark.parametrize(
    ("kind", "reasons"),
    [
        (
            Prospect.WILL_START,
            "None Priority Resources BeginTime Dependency Prolog Cleaning Licenses Reservation "
            "SchedDefer BurstBufferResources BurstBufferStageIn FedJobLock MpiPortsBusy "
            "NvidiaImexChannels MaxPoweredUpNodes Constraints SomethingNew "
            "NonZeroExitCode RaisedSignal:9(Killed) TimeLimit OutOfMemory",
        ),
        (
            Prospect.LIMIT,
            "JobArrayTaskLimit QOSMaxJobsPerUserLimit QOSMaxCpuPerUserLimit QOSMaxNodePerUserLimit "
            "QOSMaxGRESPerUser QOSMaxMemoryPerUser QOSGrpCpuLimit QOSGrpMemLimit QOSGrpNodeLimit "
            "QOSGrpJobsLimit QOSGrpGRES AssocGrpCpuLimit AssocGrpMemLimit AssocGrpGRES "
            "AssocMaxJobsLimit MaxGRESPerAccount AssocGrpCPUMinutesLimit AssocGrpGRESMinutes "
            "AssocGrpBillingMinutes QOSGrpCPUMinutesLimit AssocGrpWallLimit QOSGrpWallLimit "
            "QOSUsageThreshold AssocGrpCPURunMinutesLimit QOSGrpCPURunMinutesLimit",
        ),
        (
            Prospect.ACTION,
            "JobHeldUser JobHeldAdmin JobHoldMaxRequeue ReservationDeleted PartitionDown "
            "PartitionInactive NodeDown FrontEndDown ReqNodeNotAvail SystemFailure "
            "BurstBufferOperation",
        ),
        (
            Prospect.NEVER,
            "DependencyNeverSatisfied BadConstraints PartitionNodeLimit PartitionTimeLimit "
            "PartitionConfig MaxMemPerLimit QOSMaxCpuPerJobLimit QOSMaxGRESPerJob "
            "QOSMaxWallDurationPerJobLimit QOSMaxCpuPerNode QOSMinCpuNotSatisfied QOSMinGRES "
            "AssocMaxCpuPerJobLimit AssocMaxWallDurationPerJobLimit AssocMaxCPUMinutesPerJobLimit "
            "AssocMaxCpuMinutesPerJobLimit InvalidAccount InvalidQOS AccountNotAllowed "
            "QOSNotAllowed DeadLine",
        ),
    ],
)
def test_prospect_of_every_reason(kind, reasons):
    assert {
        reason: pending_reasons.meaning(reason).prospect for reason in reasons.split()
    } == dict.fromkeys(reasons.split(), kind)


def test_every_cause_has_a_title_and_fixes():
    for kind in causes.known().values():
        assert kind.title and kind.cures
        assert kind.title == kind.title.strip(" .")
        assert kind.acts in ("user", "site", "nobody")
        assert kind.retry in ("yes", "maybe", "changed", "no")


def test_every_cause_in_the_code_is_known():
    words = {
        *(reason.cause for reason in pending_reasons.known().values()),
        *(cause for cause, _ in exit_codes._SCRIPT_CODES.values()),
        *exit_codes.CRASH_CAUSES.values(),
        *final_states._REJECTIONS,
        *explanations._STATE_LEVELS,
    }
    assert words - {None} <= set(causes.known())
    for rule, _ in log_rules.load_shipped().rules:
        assert list(log_rules._errors(rule)) == [], rule


def test_metric_names_are_known():
    names = {field.name for field in dataclasses.fields(pending_facts.PendingRequest)}
    names |= {f"partition_{field.name}" for field in dataclasses.fields(pending_facts.Partition)}
    names |= {"begins_at", "unavailable_nodes", "ahead", "time_limit", "max_time", "too_much"}
    for reason in pending_reasons.known().values():
        assert {*re.findall(r"{(.*?)}", reason.numbers)} <= names
