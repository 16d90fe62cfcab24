"""Records of the environment, from the run folders to the database."""

from __future__ import annotations

import dataclasses
import datetime
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator import environments, errors, jobs
from orchestrator.controller.environments import attempts
from orchestrator.controller.session import contexts, stores
from tests import builders

NOW = datetime.datetime(2026, 11, 21, 8, 0, tzinfo=datetime.UTC)
MINUTE = datetime.timedelta(minutes=1)
TEXT = "host\tn1\nkernel\t6.1\npython_version\t3.11.4\npackage\ttorch-2.6.0.dist-info\nend\tyes\n"


@pytest.fixture
def context(tmp_path: Path, database_url: str) -> Iterator[contexts.Context]:
    with stores.Store(database_url) as store:
        yield builders.make_context(tmp_path, store, now=NOW)


def add(context: contexts.Context, number: int, text: str | None = TEXT) -> jobs.Job:
    """Store a running job whose script has recorded its environment."""
    folder = context.folder / f"demo.{number}"
    folder.mkdir(mode=0o700)
    if text is not None:
        (folder / "environment.0.0").write_text(text)
    with context.store.writing() as work:
        (job,) = work.jobs.add_submission(
            builders.make_submission(number, NOW, run_dir=str(folder)),
            state=jobs.JobState.RUNNING,
            started_at=NOW,
        )
        running = jobs.Attempt(number=0, state=jobs.JobState.RUNNING, started_at=NOW)
        work.attempts.put([(job.row, running)])
    return job


def store(context: contexts.Context) -> int:
    with context.store.reading() as work:
        unread = work.environments.unread("lab", NOW, 100)
    return attempts.store(context, unread)


def test_a_complete_record_is_read_once(context: contexts.Context) -> None:
    job = add(context, 1)
    assert store(context) == 1
    (Path(job.run_dir) / "environment.0.0").unlink()
    assert store(context) == 0
    assert attempts.of_job(context, job) == [
        attempts.AttemptEnvironment(
            attempt=0,
            environment=environments.Environment(
                kernel="6.1", python_version="3.11.4", packages={"torch": "2.6.0"}
            ),
            placement=environments.Placement(host="n1"),
        )
    ]


@pytest.mark.parametrize("text", [None, "host\tn1\nkernel\t6.1\n"])
def test_an_incomplete_record_is_read_again_for_ten_minutes(
    context: contexts.Context, text: str | None
) -> None:
    job = add(context, 1, text)
    assert store(context) == 0
    later = builders.with_clock(context, now=NOW + 11 * MINUTE)
    assert store(later) == 1
    assert store(later) == 0
    (Path(job.run_dir) / "environment.0.0").unlink(missing_ok=True)
    kernels = [each.environment.kernel for each in attempts.of_job(context, job)]
    assert kernels == ([] if text is None else ["6.1"])


def test_until_it_is_stored_the_file_is_shown(context: contexts.Context) -> None:
    job = add(context, 1, "host\tn1\nkernel\t6.1\n")
    (known,) = attempts.of_job(context, job)
    assert (known.environment.kernel, known.environment.python) == ("6.1", "")


def test_variables_that_look_like_secrets_are_not_stored(context: contexts.Context) -> None:
    lines = (
        "variable\tNCCL_DEBUG=INFO\nvariable\tNCCL_AUTH_TOKEN=x\nvariable\tUCX_URL=https://a:b@c/\n"
    )
    job = add(context, 1, TEXT + lines)
    assert store(context) == 1
    (known,) = attempts.of_job(context, job)
    assert known.environment.variables == {"NCCL_DEBUG": "INFO"}


def test_a_file_that_is_none_is_no_record(context: contexts.Context) -> None:
    job = add(context, 1, None)
    os.mkfifo(Path(job.run_dir) / "environment.0.0")
    add(context, 2, "x" * (environments.LIMIT_BYTES + 1))
    add(context, 3)
    (context.folder / "demo.3").chmod(0o777)
    later = builders.with_clock(context, now=NOW + 11 * MINUTE)
    assert store(later) == 3
    assert attempts.of_job(context, job) == []


def test_a_full_disk_leaves_it_to_the_next_refresh(
    context: contexts.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(context, 1)
    with context.store.reading() as work:
        unread = work.environments.unread("lab", NOW, 100)

    def refuse(*arguments: object, **options: object) -> None:
        raise errors.DatabaseNotWritableError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(type(context.store), "writing", refuse)
        attempts.store(context, unread)
    assert store(context) == 1


def test_tasks_with_another_environment(context: contexts.Context) -> None:
    tasks = [add(context, 1), add(context, 2), add(context, 3, TEXT.replace("6.1", "6.2"))]
    tasks.append(add(context, 4, None))
    assert store(context) == 3
    assert [job.row for job in attempts.others(context, tasks)] == [tasks[2].row]
    nothing = dataclasses.replace(tasks[3])
    assert attempts.others(context, [nothing, tasks[0]]) == []
