"""Builders for tests of the controller: contexts and submissions.

    with stores.Store(database_url) as store:
        context = builders.make_context(tmp_path, store, now=NOW, is_local=True)

Every test file uses these instead of building a Context or a Submission itself.
"""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from orchestrator import config, errors, jobs, patterns, specs
from orchestrator.controller.session import contexts, stores
from orchestrator.slurm.client import Client
from orchestrator.toml import documents

#: drops all messages
SILENT: Final = contexts.Reporter(write=lambda level, text: None)
#: fails the test at the first message
NO_MESSAGES: Final = contexts.Reporter(write=lambda level, text: pytest.fail(text))


def make_context(
    folder: Path,
    store: stores.Store,
    *,
    environ: Mapping[str, str] | None = None,
    now: datetime.datetime | Callable[[], datetime.datetime] | None = None,
    **changes: Any,
) -> contexts.Context:
    """Return a context without Slurm whose home and working folder are `folder`.

    environ: of the command and of the configuration. now: the time, or what returns it; None: the
    real time. changes: other fields of the Context.
    """
    environ = environ or {}
    client = changes.pop("slurm", None) or Client(environ={})
    fields: dict[str, Any] = {
        "slurm_client": lambda: client,
        "configuration": config.load({"HOME": str(folder), **environ}, folder),
        "environ": environ,
        "reporter": SILENT,
    }
    context = contexts.Context(store=store, folder=folder, **{**fields, **changes})
    return context if now is None else with_clock(context, now=now)


def with_clock(
    context: contexts.Context,
    *,
    now: datetime.datetime | Callable[[], datetime.datetime] | None = None,
    **changes: Any,
) -> contexts.Context:
    """Return the context with another time, or other parts of its clock."""
    if isinstance(now, datetime.datetime):
        moment = now
        changes["now"] = lambda: moment
    elif now is not None:
        changes["now"] = now
    return dataclasses.replace(context, clock=dataclasses.replace(context.clock, **changes))


def messages_to(messages: list[str]) -> contexts.Reporter:
    """Return a reporter that appends each message to a list."""
    return contexts.Reporter(write=lambda level, text: messages.append(text))


def make_job(**fields: Any) -> jobs.Job:
    """Return a running job `demo` with the ID 7."""
    known: dict[str, Any] = {
        "row": 1,
        "token": "abcd00000001",
        "cluster": "lab",
        "scheduler": "slurm",
        "name": "demo",
        "state": jobs.JobState.RUNNING,
        "run_dir": "/r",
        "created_at": datetime.datetime(2026, 11, 21, 8, 0, tzinfo=datetime.UTC),
        "job_id": "7",
    }
    return jobs.Job(**{**known, **fields})


def make_submission(number: int, now: datetime.datetime, **changes: Any) -> jobs.Submission:
    """Return a submission of a job "demo" to a cluster "lab", with the token `abcd0000000N`."""
    fields: dict[str, Any] = {
        "token": f"abcd{number:08}",
        "cluster": "lab",
        "scheduler": "slurm",
        "name": "demo",
        "script": "#!/bin/bash\n",
        "spec": specs.to_json(jobs.JobSpec(name=changes.get("name", "demo"))),
        "run_dir": f"/runs/demo.abcd{number:08}",
        "provenance": "{}",
        "created_at": now,
    }
    return jobs.Submission(**{**fields, **changes})


def load_patterns(text: str, source: str) -> tuple[patterns.Pattern, ...]:
    """Return the patterns of a TOML text; raises ConfigurationError with all its problems."""
    document, problems = documents.parse(text, source)
    loaded, pattern_problems = patterns.check(document.data, origin=source)
    problems += [document.problem(path, message) for path, message in pattern_problems]
    if problems:
        raise errors.ConfigurationError(problems)
    return loaded
