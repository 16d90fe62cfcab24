"""Wait for jobs, with a progress bar."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence

from orchestrator import jobs
from orchestrator.api import progress as bars
from orchestrator.controller.actions import wait as waiting
from orchestrator.controller.session import contexts

#: Between two updates of the progress bar.
_TICK_SECONDS = 1.0


def wait(
    context: contexts.Context,
    rows: Sequence[int],
    timeout_seconds: float | None,
    *,
    progress: bool | None,
) -> list[jobs.Job]:
    """Return the jobs when all have ended, or as they are after the timeout."""
    bar = None if progress is False else bars.default_bar(is_asked_for=bool(progress))
    if bar is None:
        return waiting.wait(context, rows, timeout_seconds=timeout_seconds)
    shown: dict[int, jobs.Job] = {}

    def show() -> None:
        if shown:
            bar.show(bars.line(list(shown.values()), context.clock.now()))

    def report(changed: Sequence[jobs.Job]) -> None:
        for job in changed:
            # A continuation job takes the place of the one before.
            if job.continues in shown:
                del shown[job.continues]
            shown[job.row] = job
        show()

    def sleep(seconds: float) -> None:
        while seconds > 0:
            part = min(seconds, _TICK_SECONDS)
            context.clock.sleep(part)
            seconds -= part
            show()

    clock = dataclasses.replace(context.clock, sleep=sleep)
    with _closed(bar):
        return waiting.wait(
            dataclasses.replace(context, clock=clock),
            rows,
            timeout_seconds=timeout_seconds,
            changed=report,
        )


@contextlib.contextmanager
def _closed(bar: bars.Bar) -> Iterator[None]:
    try:
        yield
    finally:
        bar.close()
