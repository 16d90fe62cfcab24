"""What a person is told on stderr when something takes longer than a second."""

from __future__ import annotations

import contextlib
import dataclasses
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from orchestrator.slurm import process
from orchestrator.slurm.client import Client

#: From here on a person wonders whether anything happens.
FIRST_SECONDS = 1.0
#: sbatch tries for two minutes when slurmctld is away.
AGAIN_SECONDS = 30.0

Say = Callable[[str], None]


@contextlib.contextmanager
def waiting(doing: str, say: Say) -> Iterator[None]:
    """Say what is being done ("Asking Slurm (squeue)") while it takes long.

    By a signal, not by a thread: a process with threads should not fork, and sbatch is started in
    here. The timer is not inherited (man 2 setitimer).
    """
    begun = time.monotonic()

    def tell(*_: object) -> None:
        seconds = time.monotonic() - begun
        since = "" if seconds < AGAIN_SECONDS else f" {seconds:.0f} s"
        # An error here would end what is waited for: nobody may be reading stderr any more.
        with contextlib.suppress(OSError, RuntimeError):
            say(f"{doing} ...{since}")

    handler = signal.signal(signal.SIGALRM, tell)
    timer = signal.setitimer(signal.ITIMER_REAL, FIRST_SECONDS, AGAIN_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, *timer)
        signal.signal(signal.SIGALRM, handler)


def told(client: Client, say: Say) -> Client:
    """Return the client that says which of Slurm's commands it waits for."""
    run = client.run

    def told_run(
        argv: Sequence[str], timeout_seconds: float, environ: Mapping[str, str], /
    ) -> process.Result:
        with waiting(f"Asking Slurm ({argv[0]})", say):
            return run(argv, timeout_seconds, environ)

    return dataclasses.replace(client, run=told_run)
