"""Work beside the screen: a thread that nobody waits for when the program ends.

A thread that asks Slurm or reads a disk may take minutes; those of asyncio would keep `top` from
ending for so long.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
import threading
from collections.abc import Callable
from typing import TypeVar

_Result = TypeVar("_Result")
_Value = TypeVar("_Value")
#: of the threads
NAME = "top"


async def in_thread(work: Callable[[], _Result]) -> _Result:
    """Return what `work` returns, or raise what it raises."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[_Result] = loop.create_future()

    def run() -> None:
        try:
            result = work()
        except BaseException as error:
            _post(loop, future, future.set_exception, error)
        else:
            _post(loop, future, future.set_result, result)

    threading.Thread(target=run, daemon=True, name=NAME).start()
    return await future


def end_with_terminal(handle: int) -> None:
    """End the process when this terminal is gone, also if SIGHUP is ignored (`nohup`).

    textual would read the end of the file again and again. The database is safe against kills.
    """

    def run() -> None:
        # Without events: it returns when the terminal hangs up.
        terminal = select.poll()
        terminal.register(handle, 0)
        terminal.poll()
        os._exit(128 + signal.SIGHUP)

    threading.Thread(target=run, daemon=True).start()


def _post(
    loop: asyncio.AbstractEventLoop,
    future: asyncio.Future[_Result],
    finish: Callable[[_Value], None],
    value: _Value,
) -> None:
    def post() -> None:
        if not future.done():
            finish(value)

    # The loop is closed: the program ends.
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(post)
