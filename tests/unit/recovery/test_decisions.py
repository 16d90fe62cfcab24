"""Recovery decisions from the cause, the rules and earlier decisions."""

from __future__ import annotations

import dataclasses
import datetime
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

from orchestrator import jobs, recovery
from orchestrator.diagnosis import causes
from orchestrator.jobs import retry
from orchestrator.recovery import Action, Decision
from orchestrator.slurm import fields
from orchestrator.specs import changes

NOW = datetime.datetime(2026, 11, 22, 3, 0, tzinfo=datetime.UTC)
SPEC = jobs.JobSpec(
    name="x",
    time_limit="1:00:00",
    launch=jobs.Launch(module="trainers.train"),
    resources=jobs.Resources(mem="3G", gpus_per_node=4),
    args={"batch_size": 256, "per_device_batch_size": 32},
)
RULES = jobs.Retry(max_retries=3)


def decide(
    cause: str, rules: jobs.Retry = RULES, history: list[Decision] | None = None, **facts: Any
) -> recovery.Decision:
    kind = causes.known()[cause]
    about = recovery.FailedJob(
        cause=cause,
        title=kind.title,
        maybe=kind.retry == "maybe",
        **{"spec": SPEC, **facts},
    )
    return recovery.decide(about, rules, history or [], NOW)


def past(cause: str, step: int | None = None) -> Decision:
    return Decision(action=Action.CONTINUE, cause=cause, rule="retry", detail="", step=step)


def test_retried_causes_match_the_diagnosis() -> None:
    words = {
        cause: kind.retry
        for cause, kind in causes.known().items()
        if cause not in ("not_submitted", "limit_reached", "unavailable")
    }
    again = {word for word, kind in words.items() if kind in ("yes", "maybe")}
    assert {*retry.RETRIED, *retry.ASKED_FOR} == again
    changed = {word for word, kind in words.items() if kind == "changed"}
    # What it depends on, and whether its nodes see a folder, nothing in the spec changes.
    assert {*retry.CHANGED, retry.CONTINUED} == changed - {"dependency", "run_folder"}


@pytest.mark.parametrize(
    ("cause", "facts", "history", "message"),
    [
        ("preempted", {}, [], "preempted: a continuation job is submitted (1 of at most 3)"),
        ("node_fail", {}, [], "node_fail: the job is requeued in 00:01:00 (1 of at most 3)"),
        (
            "node_fail",
            {"node_failures": {"n4": 2, "n1": 1}},
            [past("node_fail")],
            "node_fail: a continuation job is submitted without n4 in 00:02:00 (2 of at most 3)",
        ),
        (
            "time_limit",
            {"step": 120, "has_checkpoint": True},
            [past("time_limit", 60)],
            "time_limit: it reached step 120; a continuation job is submitted (2 of at most 20)",
        ),
        (
            "time_limit",
            {"step": 60, "has_checkpoint": True},
            [past("time_limit", 60)],
            "time_limit: it reached step 60, no further than the job before (60); no retry",
        ),
        (
            "time_limit",
            {},
            [],
            "time_limit: it left no checkpoint and logged no step, so a continuation job would "
            "start over; no retry",
        ),
        (
            "nccl_timeout",
            {},
            [past("nccl_timeout")] * 2,
            "nccl_timeout: the limit of retries after this cause is reached (2); no retry",
        ),
        (
            "preempted",
            {},
            [past("node_fail"), past("preempted"), past("preempted"), past("time_limit", 5)],
            "preempted: the limit of retries is reached (max_retries = 3); no retry",
        ),
        (
            "python_exception",
            {},
            [],
            "python_exception: the program raised an exception, and the same job would fail "
            "again; no retry",
        ),
        ("cancelled", {}, [], "cancelled: its cancellation was requested; no retry"),
        (
            "node_fail",
            {"cancelled": True},
            [],
            "node_fail: its cancellation was requested; no retry",
        ),
        (
            "oom_device",
            {},
            [],
            "oom_device: the same request would fail again, and retry.changes.oom_device does not "
            "change it; no retry",
        ),
        (
            "lost",
            {},
            [],
            "lost: the job may still be running without Slurm knowing, and retry.on does not list "
            "lost; no retry",
        ),
    ],
)
def test_decisions(
    cause: str, facts: dict[str, Any], history: list[Decision], message: str
) -> None:
    assert decide(cause, history=history, **facts).detail == message


def test_budget_and_selected_causes() -> None:
    spent = decide("preempted", dataclasses.replace(RULES, gpu_hours=10), gpu_hours=10.04)
    message = "10.0 of 10 GPU-hours are used (retry.gpu_hours); no retry"
    assert (spent.action, spent.rule, spent.detail) == (
        Action.NONE,
        "retry.gpu_hours",
        f"preempted: {message}",
    )
    chosen = dataclasses.replace(RULES, on=("node_fail",))
    assert decide("preempted", chosen).rule == "retry.on"
    assert decide("node_fail", chosen).action is Action.REQUEUE
    assert decide("node_fail", spec=dataclasses.replace(SPEC, requeue=False)).action == "continue"


def test_memory_and_batch_size_are_changed() -> None:
    rules = dataclasses.replace(
        RULES,
        changes={
            "oom_device": {"args.per_device_batch_size": "x0.5"},
            "oom_host": {"resources.mem": "x1.5"},
        },
    )
    device = decide("oom_device", rules)
    assert device.changes == {"args.per_device_batch_size": 16}
    after = recovery.changed(SPEC, device.changes)
    assert after.args == {"batch_size": 256, "per_device_batch_size": 16}
    assert decide("oom_host", rules).changes == {"resources.mem": "4608M"}
    least = dataclasses.replace(SPEC, args={"per_device_batch_size": 1})
    assert decide("oom_device", rules, spec=least).detail == (
        "oom_device: args.per_device_batch_size is 1 already; no retry"
    )


def test_requested_nodes_are_not_excluded() -> None:
    asked = dataclasses.replace(SPEC, nodelist="n4", exclude="n2")
    assert decide("node_fail", node_failures={"n4": 3}, spec=asked).changes == {}
    decision = decide("node_fail", node_failures={"n3": 3}, spec=asked)
    assert decision.changes == {"job.exclude": "n2,n3"}


def test_a_job_leaves_nodes_that_are_to_be_avoided() -> None:
    assert decide("node_fail").action is Action.REQUEUE
    decision = decide("node_fail", avoided_nodes=("n3",))
    assert (decision.action, decision.changes) == (Action.CONTINUE, {})
    assert decision.detail == (
        "node_fail: a continuation job is submitted without n3 in 00:01:00 (1 of at most 3)"
    )


@hypothesis.given(
    st.lists(st.sampled_from(["preempted", "node_fail", "io_error", "time_limit"]), max_size=60),
    st.integers(0, 5),
)
def test_every_chain_ends(causes: list[str], most: int) -> None:
    """There are never more starts than the limits allow."""
    history: list[Decision] = []
    rules = jobs.Retry(max_retries=most, limits={"time_limit": 4})
    for number, cause in enumerate(causes):
        made = decide(cause, rules, history, step=number, has_checkpoint=True)
        if made.action is Action.NONE:
            assert made.due_at is None
            continue
        assert made.due_at is not None and made.due_at <= NOW + datetime.timedelta(hours=1)
        history.append(made)
    starts = [entry.cause for entry in history]
    assert len(starts) - starts.count("time_limit") <= most
    assert starts.count("time_limit") <= 4 and starts.count("io_error") <= 2


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("job.name", "y", "job.name cannot be changed"),
        ("resources.memory", "x2", "resources.memory cannot be changed"),
        ("resources.nodes", "two", 'resources.nodes must be an integer (got "two")'),
        ("resources.tmp", "x2", "resources.tmp has no value that could be multiplied: set one"),
        ("job.time_limit", "1 hour", "job.time_limit must be minutes or a time such as"),
    ],
)
def test_values_that_cannot_be_changed(key: str, value: str, message: str) -> None:
    with pytest.raises(changes.CannotChangeError) as caught:
        changes.changed(SPEC, key, value)
    assert str(caught.value).startswith(message)


def test_changes_of_all_kinds() -> None:
    assert changes.changed(SPEC, "job.time_limit", "x2")[1] == "02:00:00"
    assert changes.changed(SPEC, "environment.variables.A", "1")[0].environment.variables == {
        "A": "1"
    }
    other, _ = changes.changed(SPEC, "resources.mem_per_gpu", "20G")
    assert (other.resources.mem, other.resources.mem_per_gpu) == (None, "20G")
    tasks = jobs.Array(tasks=({"lr": 0.1}, {"lr": 0.2}))
    array = dataclasses.replace(SPEC, array=tasks)
    own = changes.changed(array, "args.lr", "x0.5", task=1)[0].array
    assert own.tasks == ({"lr": 0.1}, {"lr": 0.1})


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("n4", "n4"),
        ("gpu[01-03,07],login1", "gpu01 gpu02 gpu03 gpu07 login1"),
        ("r[1-2]n[08-10]", "r1n08 r1n09 r1n10 r2n08 r2n09 r2n10"),
        ("", ""),
    ],
)
def test_hosts_of_a_list(text: str, hosts: str) -> None:
    assert fields.expand_hosts(text) == hosts.split()
