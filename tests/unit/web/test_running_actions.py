"""Actions in progress: each begins once."""

from __future__ import annotations

import asyncio
from pathlib import Path

from orchestrator.controller.session import stores
from orchestrator.rows import action_reports
from orchestrator.web import running_actions
from tests import builders


def test_a_form_whose_result_is_forgotten_starts_nothing(tmp_path: Path, database_url: str) -> None:
    begun: list[int] = []

    def unexpected(error: BaseException) -> str:
        raise error

    async def act(number: int) -> running_actions.RunningAction | None:
        def work(_: object) -> running_actions.Result:
            begun.append(number)
            return running_actions.Result(report=action_reports.Report(lines=[]))

        back = ("/", "all jobs")
        run = known.start(str(number), work, title="Resubmit 1 job", targets="1", back=back)
        if run is not None:
            await run.ended.wait()
        return run

    async def act_often() -> None:
        async with known.running(asyncio.Event()):
            for number in range(300):
                assert await act(number) is not None
            assert known.get("0") is None and await act(0) is None
            assert await act(299) is known.get("299") is not None

    with stores.Store(database_url) as store:
        known = running_actions.RunningActions(builders.make_context(tmp_path, store), unexpected)
        asyncio.run(act_often())
    assert begun == list(range(300))
