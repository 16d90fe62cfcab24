"""What a look at the logs asks of the database, however many jobs there are."""

from __future__ import annotations

import datetime
import time
from pathlib import Path

import pytest
import sqlalchemy as sa

from orchestrator import config, jobs, slurm, specs
from orchestrator.controller import context as contexts
from orchestrator.controller import ingest, stores

NOW = datetime.datetime(2026, 11, 21, 8, 0, tzinfo=datetime.UTC)


@pytest.fixture
def context(tmp_path: Path) -> contexts.Context:
    configuration = config.load({"HOME": str(tmp_path)}, tmp_path)
    return contexts.Context(
        configuration=configuration,
        store=stores.Store(tmp_path / "x.db"),
        client=lambda: slurm.Client(environ={}),
        environ={},
        folder=tmp_path,
        say=lambda text: None,
        sleep=time.sleep,
    )


def add(context: contexts.Context, number: int) -> jobs.Job:
    token = f"abcd{number:08}"
    folder = context.folder / token
    folder.mkdir()
    line = f"Epoch Throughput: {number}.5 images/second\n"
    (folder / "log").write_text("### orchestrator\n" + line)
    spec = jobs.JobSpec(name="demo", metrics=jobs.Metrics(patterns=("olivia",)))
    record = jobs.Submission(
        token=token,
        cluster="lab",
        scheduler="slurm",
        name="demo",
        script="x" * 100_000,
        spec=specs.to_json(spec),
        run_dir=str(folder),
        provenance="{}",
        created_at=NOW,
    )
    # Of a job by hand every line counts, with no banner above.
    by_hand = {"tracked_name": "demo", "job_id": str(number), "stdout_path": str(folder / "log")}
    with context.store.writing() as work:
        return work.add_submission(record, state=jobs.JobState.RUNNING, **by_hand)[0]


def test_one_question_for_all_jobs_and_no_script(context: contexts.Context) -> None:
    asked: list[str] = []

    def listen(connection: object, cursor: object, statement: str, *rest: object) -> None:
        asked.append(statement)

    counts = []
    first, *others = [add(context, number) for number in range(1, 31)]
    assert ingest.ingest(context, [first, *others]) == 30
    sa.event.listen(sa.Engine, "before_cursor_execute", listen)
    try:
        for wanted in ([first], [first, *others]):
            asked.clear()
            assert ingest.ingest(context, wanted) == 0
            counts.append(len(asked))
            assert "script" not in " ".join(asked)
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", listen)
        context.store.close()
    assert counts[0] == counts[1] > 0
