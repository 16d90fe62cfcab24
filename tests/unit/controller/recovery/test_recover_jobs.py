"""Retries on this machine: each is decided and done once, even if the controller is killed."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from db import unit_of_work
from orchestrator import errors, jobs, specs
from orchestrator.controller.actions import cancel, confirmed, wait
from orchestrator.controller.metrics import ingest
from orchestrator.controller.recovery import chains, continuation, recover_jobs
from orchestrator.controller.refresh import refresh
from orchestrator.controller.session import clusters, contexts, stores
from orchestrator.controller.submission import intents, sbatch_call, submit
from orchestrator.local.machine import Machine
from orchestrator.rendering import batch_options
from tests import builders

NOW = datetime.datetime(2026, 11, 22, 3, 0, tzinfo=datetime.UTC)
SPEC = jobs.JobSpec(
    name="x",
    requeue=False,
    time_limit="10",
    launch=jobs.Launch(launcher="python", command="true"),
    retry=jobs.Retry(max_retries=2, backoff_seconds=0),
)


class Killed(BaseException):
    """SIGKILL as a test can have it: nothing catches it."""


@pytest.fixture
def context(tmp_path: Path, database_url: str) -> Iterator[contexts.Context]:
    with stores.Store(database_url) as store:
        yield builders.make_context(
            tmp_path,
            store,
            environ={"PATH": "/usr/bin:/bin", "LANG": "of the controller"},
            now=NOW,
            is_local=True,
        )


def failed(
    context: contexts.Context, cause: str, runs: str = "runs", **changes: object
) -> jobs.Job:
    """A job under [retry] that has failed on this machine."""
    folder = context.folder / runs
    spec = dataclasses.replace(SPEC, **changes)  # type: ignore[arg-type]
    provenance = {
        "folder": str(context.folder),
        "spec": "x.toml",
        "template": "job.sbatch.j2",
        "template_sha256": "0123456789ab",
    }
    there = dataclasses.replace(context, environ={"LANG": "of the submission"})
    intent = intents.Intent(
        spec=spec,
        script="#!/bin/bash\n",
        provenance=json.dumps(provenance),
        cluster=clusters.machine_cluster(),
        runs_dir=folder,
    )
    job = intents.store(there, intent).job
    with context.store.writing() as work:
        seen = {
            "state": jobs.JobState.FAILED,
            "job_id": "local-1",
            "cause": cause,
            "settled": True,
            "started_at": NOW - datetime.timedelta(minutes=5),
            "ended_at": NOW,
        }
        work.jobs.change(job.row, seen)
        stored_job = work.jobs.get(job.row)
    assert stored_job is not None
    return stored_job


def all_jobs(context: contexts.Context) -> list[jobs.Job]:
    with context.store.reading() as work:
        return sorted(work.jobs.find(jobs.JobQuery(limit=None)), key=lambda job: job.row)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[jobs.Job]:
    """The jobs that were sent, each with what it was sent with; nothing runs."""
    result: list[jobs.Job] = []

    def send(context: Any, stored: intents.Stored, **changes: Any) -> jobs.Job:
        assert context.environ["LANG"] == "of the submission"
        result.append(stored.job)
        return stored.job

    monkeypatch.setattr(submit, "send", send)
    return result


def test_one_continuation_job_if_a_pass_is_killed_anywhere(
    context: contexts.Context, sent: list[jobs.Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    job = failed(context, "node_fail")
    checkpoints = Path(job.run_dir) / "checkpoints"
    checkpoints.mkdir()

    def killed(*rest: object, **fields: object) -> None:
        raise Killed

    # After the decision, after the claim, and after the new job is stored.
    places = [(continuation, "continue_job"), (intents, "store"), (submit, "send")]
    for module, name in places:
        with monkeypatch.context() as patch:
            patch.setattr(module, name, killed)
            with pytest.raises(Killed):
                recover_jobs.step(context)
    assert recover_jobs.step(context) == []
    first, second = all_jobs(context)
    assert (first.recovers, second.recovers, second.continues) == (None, True, first.row)
    assert second.state is jobs.JobState.SUBMITTING and sent == []
    # It finds the checkpoints of the first, which can start no more.
    assert (Path(second.run_dir) / "checkpoints").resolve() == checkpoints
    assert (Path(first.run_dir) / "attempt.0.1").exists()
    with context.store.writing() as work:
        lost = {"state": jobs.JobState.NOT_SUBMITTED, "settled": True, "cause": "not_submitted"}
        work.jobs.change(second.row, lost)
    assert recover_jobs.step(context) == ["@2 was submitted"]
    assert [job.row for job in sent] == [second.row] and len(all_jobs(context)) == 2
    chain = chains.chain_of(context, second)
    assert [(link.job.row, link.decision is not None) for link in chain] == [
        (1, True),
        (2, False),
    ]


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_wait_ends_with_the_chain_that_another_process_continues(
    context: contexts.Context,
    sent: list[jobs.Job],
    monkeypatch: pytest.MonkeyPatch,
    database_url: str,
) -> None:
    reading, looks = stores.Store.reading, 0

    @contextlib.contextmanager
    def counted(store: stores.Store) -> Iterator[unit_of_work.UnitOfWork]:
        nonlocal looks
        with reading(store) as work:
            yield work
        looks += 1
        if looks == moment:
            with monkeypatch.context() as patch:
                patch.setattr(stores.Store, "reading", reading)
                # With its own connection, like another process.
                with stores.Store(database_url) as store:
                    recover_jobs.step(dataclasses.replace(context, store=store))

    def ends(seconds: float) -> None:
        with context.store.writing() as work:
            for job in sent:
                over = {"state": jobs.JobState.COMPLETED, "settled": True, "recovers": None}
                work.jobs.change(job.row, over)

    # Another controller acts: `wait` only reads.
    monkeypatch.setattr(wait, "_recover", lambda *rest: None)
    monkeypatch.setattr(stores.Store, "reading", counted)
    for moment in range(1, 13):
        sent.clear()
        first, looks = failed(context, "node_fail"), 0
        (last,) = wait.wait(builders.with_clock(context, sleep=ends), [first.row])
        assert looks >= moment, "it looks so often"
        assert (last.continues, last.state) == (first.row, jobs.JobState.COMPLETED), moment


def test_manual_actions_take_precedence(context: contexts.Context, sent: list[jobs.Job]) -> None:
    waits = dataclasses.replace(SPEC.retry, backoff_seconds=60)
    job = failed(context, "node_fail", retry=waits)
    (message,) = recover_jobs.step(context)
    assert message.startswith(
        "local-1 node_fail: a continuation job is submitted in 00:01:00 (1 of"
    )
    (outcome,) = cancel.cancel(context, all_jobs(context))
    assert (outcome.already, outcome.withdrawn) == (True, True)
    later = builders.with_clock(context, now=NOW + datetime.timedelta(hours=1))
    assert recover_jobs.step(later) == [] and len(all_jobs(context)) == 1
    (link,) = chains.chain_of(context, job)
    assert link.decision.state == "refused"


def test_no_retry_without_rules(context: contexts.Context, sent: list[jobs.Job]) -> None:
    job = failed(context, "node_fail", retry=jobs.Retry())
    assert job.recovers is None
    assert recover_jobs.step(context) == [] and len(all_jobs(context)) == 1


def test_changed_job_is_rendered_again(context: contexts.Context, sent: list[jobs.Job]) -> None:
    rules = dataclasses.replace(SPEC.retry, changes={"oom_host": {"resources.mem": "x2"}})
    resources = jobs.Resources(mem="2G")
    failed(context, "oom_host", retry=rules, resources=resources, dependency="afterok:local-9")
    assert len(recover_jobs.step(context)) == 2
    (new,) = sent
    with context.store.reading() as work:
        stored = work.jobs.submission_of(new.row)
    assert "#SBATCH --mem=4G\n" in stored.script and "dependency" not in stored.script
    assert specs.from_json(stored.spec).retry == rules


def test_continuation_of_a_batch_file_has_no_dependency(
    context: contexts.Context, sent: list[jobs.Job]
) -> None:
    launch = jobs.Launch(batch_file="x.sbatch")
    for dependency in ("afterok:local-9", None):
        sbatch = {"mem": "2G"} | ({"dependency": dependency} if dependency else {})
        failed(context, "node_fail", launch=launch, dependency="afterok:local-9", sbatch=sbatch)
    recover_jobs.step(context)
    for new in sent:
        with context.store.reading() as work:
            spec = specs.from_json(work.jobs.submission_of(new.row).spec)
        assert spec.dependency is None
        assert sbatch_call.batch_file_options(spec) == ["--mem=2G", "--dependency="]
        script = "#!/bin/bash\n#SBATCH --dependency=afterok:local-9\n"
        assert not batch_options.with_directives(spec, script).dependency
    assert [job.continues for job in sent] == [1, 2]


@pytest.mark.parametrize("state", [jobs.JobState.PENDING, jobs.JobState.COMPLETED])
def test_all_requeues_with_one_refresh(
    context: contexts.Context,
    sent: list[jobs.Job],
    monkeypatch: pytest.MonkeyPatch,
    state: jobs.JobState,
) -> None:
    looks: list[int] = []

    def look(context: contexts.Context, expected: list[jobs.Job]) -> list[jobs.Job]:
        looks.append(len(expected))
        with context.store.writing() as work:
            # By a pass that was killed before it could store that.
            again = {"state": state, "attempt": 1, "settled": False}
            work.jobs.change(2, {**again, "missing_since": None, "observed_at": NOW})
        return confirmed.stored(context, expected)

    def asked(machine: object, action: str, job_ids: list[str]) -> dict[str, str]:
        looks.append(-len(job_ids))
        return {"local-3": "no"}

    monkeypatch.setattr(confirmed, "refreshed", look)
    monkeypatch.setattr(refresh, "refresh_one", lambda *rest, **more: None)
    monkeypatch.setattr(Machine, "change", asked)
    for row in (1, 2, 3):
        failed(context, "node_fail", requeue=True)
        with context.store.writing() as work:
            work.jobs.change(row, {"job_id": f"local-{row}"})
    reported = recover_jobs.step(context)[3:]
    assert reported == ["local-1 was requeued", "@4 (@4) continues local-3"]
    assert looks == [3, -2] and [job.continues for job in sent] == [3]
    assert recover_jobs.step(context) == []
    with context.store.reading() as work:
        events = [item for row in (1, 2, 3, 4) for item in work.events.of_job(row)]
    automatic = {
        (event.kind, event.detail, event.source) for event in events if event.kind != "retry"
    }
    assert automatic == {
        ("submit", "intent stored", "user"),
        ("submit", "intent stored", "rules"),
        ("ask", "requeue requested", "rules"),
        ("ask", "requeue was refused: no", "rules"),
    }


@pytest.mark.parametrize("when", ["while it is asked", "after"])
def test_cancel_during_a_requeue(
    context: contexts.Context, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    ended: list[str] = []
    seen = failed(context, "node_fail", requeue=True)

    def requeue_job(machine: object, action: str, job_ids: list[str]) -> dict[str, str]:
        if when == "while it is asked":
            (outcome,) = cancel.cancel(context, [seen])
            assert outcome.withdrawn
        return {}

    def look(context: contexts.Context, **fields: object) -> None:
        with context.store.writing() as work:
            state = jobs.JobState.CANCELLED if ended else jobs.JobState.PENDING
            again = {"state": state, "attempt": 1, "settled": bool(ended)}
            work.jobs.change(seen.row, {**again, "missing_since": None, "observed_at": NOW})

    def looked(context: contexts.Context, expected: list[jobs.Job]) -> list[jobs.Job]:
        return confirmed.stored(context, expected)

    monkeypatch.setattr(refresh, "refresh_one", look)
    monkeypatch.setattr(refresh, "refresh", look)
    monkeypatch.setattr(confirmed, "refreshed", looked)
    monkeypatch.setattr(Machine, "change", requeue_job)
    monkeypatch.setattr(Machine, "cancel", lambda machine, job_id, name: ended.append(job_id))
    done = recover_jobs.step(context)[1:]
    if when == "after":
        assert done == ["local-1 was requeued"] and ended == []
        # As somebody saw it before.
        (outcome,) = cancel.cancel(context, [seen])
        assert (outcome.already, outcome.job.ended, outcome.withdrawn) == (False, True, False)
    else:
        assert done == ["local-1 was cancelled again"]
    assert ended == ["local-1"] and recover_jobs.step(context) == []


def test_decisions_of_another_host_do_not_block(
    context: contexts.Context, sent: list[jobs.Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recover_jobs, "JOBS_PER_PASS", 1)
    away, mine = failed(context, "node_fail"), failed(context, "node_fail")
    continue_job = continuation.continue_job

    def here(context: contexts.Context, job: jobs.Job, one: Any) -> jobs.Job | None:
        return None if job.row == away.row else continue_job(context, job, one)

    monkeypatch.setattr(continuation, "continue_job", here)
    for _ in range(2):
        recover_jobs.step(context)
    assert [job.continues for job in sent] == [mine.row]


@pytest.mark.parametrize(
    ("failure", "sentence", "state"),
    [
        (
            errors.TemplateError("no"),
            "is not continued: its script cannot be rendered: no",
            "refused",
        ),
        (errors.ConfigurationError([]), ": 0 problems; nothing was done.", "planned"),
        (submit.OvertakenError("no"), ": no", "planned"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_a_failing_continuation_does_not_block_the_others(
    context: contexts.Context,
    sent: list[jobs.Job],
    monkeypatch: pytest.MonkeyPatch,
    failure: Exception,
    sentence: str,
    state: str,
) -> None:
    monkeypatch.setattr(recover_jobs, "JOBS_PER_PASS", 1)
    broken, sound = failed(context, "node_fail"), failed(context, "node_fail")
    with context.store.writing() as work:
        work.jobs.change(sound.row, {"job_id": "local-2"})
    continue_job = continuation.continue_job

    def fail(context: contexts.Context, job: jobs.Job, planned: Any) -> jobs.Job | None:
        if job.row == broken.row:
            raise failure
        return continue_job(context, job, planned)

    monkeypatch.setattr(continuation, "continue_job", fail)
    sentences = [sentence for _ in range(2) for sentence in recover_jobs.step(context)]
    assert f"local-1{' ' * (state == 'refused')}{sentence}" in sentences
    assert [job.continues for job in sent] == [sound.row]
    with context.store.reading() as work:
        (decision,) = work.recovery.of_jobs([broken.row])
    assert decision.state == state


@pytest.mark.parametrize("failure", [errors.FencedError(), errors.DatabaseLockedError()])
def test_a_pass_ends_without_lease_or_database(
    context: contexts.Context, monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    def fail(*arguments: object) -> None:
        raise failure

    failed(context, "node_fail")
    monkeypatch.setattr(continuation, "continue_job", fail)
    with pytest.raises(type(failure)):
        recover_jobs.step(context)


def test_a_failing_decision_does_not_block_the_others(
    context: contexts.Context, sent: list[jobs.Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object, **options: object) -> None:
        raise errors.ConfigurationError([])

    monkeypatch.setattr(ingest, "ingest", fail)
    failed(context, "time_limit")
    sound = failed(context, "node_fail")
    sentences = recover_jobs.step(context)
    assert sentences[0] == "local-1: 0 problems; nothing was done."
    assert [job.continues for job in sent] == [sound.row]


def test_invisible_folders_do_not_block(
    context: contexts.Context, sent: list[jobs.Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recover_jobs, "JOBS_PER_PASS", 1)
    failed(context, "node_fail", runs="scratch")
    mine = failed(context, "node_fail")
    (context.folder / "scratch").rename(context.folder / "elsewhere")
    recover_jobs.step(context)
    assert [job.continues for job in sent] == [mine.row]


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_invisible_folders_are_recorded_together(
    context: contexts.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        failed(context, "node_fail", runs="scratch")
    (context.folder / "scratch").rename(context.folder / "elsewhere")
    calls: list[str] = []
    for name in ("reading", "writing"):
        transaction = getattr(stores.Store, name)

        def counted(
            store: stores.Store, *args: Any, name: str = name, transaction: Any = transaction
        ) -> Any:
            calls.append(name)
            return transaction(store, *args)

        monkeypatch.setattr(stores.Store, name, counted)
    assert len(recover_jobs.step(context)) == 3
    assert calls.count("writing") == 1
    assert recover_jobs.step(context) == []
    assert calls.count("writing") == 1


def test_a_cancelled_job_is_refused_although_a_folder_is_not_visible(
    context: contexts.Context, sent: list[jobs.Job]
) -> None:
    there = dataclasses.replace(context, folder=context.folder / "calling")
    there.folder.mkdir()
    rules = jobs.Retry(max_retries=2, backoff_seconds=60)
    job = failed(there, "peer_lost", runs=str(context.folder / "scratch"), retry=rules)
    recover_jobs.step(context)
    with context.store.writing() as work:
        event = jobs.JobEvent(at=NOW, kind="cancel", attempt=job.attempt, source="user", detail="")
        work.events.add(job.row, event)
    there.folder.rename(context.folder / "elsewhere")
    later = builders.with_clock(context, now=NOW + datetime.timedelta(hours=1))
    refused = ["local-1 is not continued: its cancellation was requested"]
    assert recover_jobs.step(later) == refused and sent == []


@pytest.mark.parametrize("gone", ["scratch", "calling"])
@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_invisible_folder_counts_as_lost_after_two_days(
    context: contexts.Context, sent: list[jobs.Job], gone: str
) -> None:
    there = dataclasses.replace(context, folder=context.folder / "calling")
    there.folder.mkdir()
    job = failed(there, "node_fail", runs=str(context.folder / "scratch"))
    (context.folder / gone).rename(context.folder / "elsewhere")
    host = socket.gethostname()
    why = f"the submission folder {there.folder} is not visible on {host}"
    if gone == "scratch":
        why = f"the run folder {job.run_dir} is not visible on {host}"
    assert recover_jobs.step(context)[-1] == f"local-1: {why}; the decision is postponed"
    assert recover_jobs.step(context) == []
    later = builders.with_clock(context, now=NOW + datetime.timedelta(hours=48))
    recover_jobs.step(later)
    assert recover_jobs.step(later) == [] == sent
    (now,) = all_jobs(context)
    with context.store.reading() as work:
        newest = work.events.of_job(now.row)[-1]
        (decided,) = work.recovery.of_jobs([now.row])
    assert now.is_over and (newest.kind, newest.source) == ("retry", "rules")
    assert newest.detail == decided.detail
    message = f"{why} for 48 h"
    assert newest.detail == (f"{message}; no retry" if gone == "scratch" else message)


def test_no_requeue_without_the_lease(
    context: contexts.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost() -> None:
        raise errors.FencedError("another acts")

    def reported(*rest: object) -> dict[str, str]:
        pytest.fail("Slurm was asked")

    job = failed(context, "node_fail")
    monkeypatch.setattr(Machine, "change", reported)
    action = confirmed.Action(
        name="requeue",
        objection=lambda job: "",
        is_done=lambda before, now: True,
    )
    with pytest.raises(errors.FencedError):
        confirmed.ask(
            dataclasses.replace(context, guard=contexts.Guard(confirm_lease=lost)), [job], action
        )


@pytest.mark.parametrize("is_stored", [True, False])
def test_run_folder_stays_if_the_commit_is_uncertain(
    context: contexts.Context, monkeypatch: pytest.MonkeyPatch, is_stored: bool
) -> None:
    writing = stores.Store.writing

    @contextlib.contextmanager
    def lost(store: stores.Store, *, durable: bool = False) -> Iterator[unit_of_work.UnitOfWork]:
        with writing(store, durable=durable) as work:
            yield work
            if durable and not is_stored:
                raise errors.DatabaseError("cannot be reached")
        if durable:
            raise errors.DatabaseError("cannot be reached")

    monkeypatch.setattr(stores.Store, "writing", lost)
    with pytest.raises(errors.DatabaseError):
        failed(context, "node_fail")
    assert len(list((context.folder / "runs").iterdir())) == len(all_jobs(context)) == is_stored
