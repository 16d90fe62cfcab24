"""Submits jobs from threads and forked processes at once: python -m tests.flow.api_workers.

Prints a line `NAME JOB_ID` for each job.
"""

from __future__ import annotations

import os
import sys
import threading
import traceback

import orchestrator as orc

THREADS = 8
PROCESSES = 4


def submit(session: orc.Session | None, worker: str, count: int) -> None:
    """Submit jobs through this session, or through the functions of the package."""
    for number in range(count):
        name = f"{worker}-{number}"
        job = (
            orc.submit("job.toml", name=name)
            if session is None
            else session.submit("job.toml", name=name)
        )
        # One write each: lines of several processes are not mixed.
        os.write(1, f"{job.name} {job.id}\n".encode())


def main() -> int:
    """Start the workers and wait for them; return the number of processes that failed."""
    counts = [int(word) for word in sys.argv[1:]]
    assert len(counts) == THREADS + PROCESSES
    failures: list[BaseException] = []
    session = orc.Session()
    # The parent has an open connection before it forks.
    session.jobs()

    def work(number: int) -> None:
        try:
            # Half of the threads share one session, the others have their own.
            submit(session if number % 2 else None, f"thread{number}", counts[number])
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=[number]) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    children = []
    # While the threads submit.
    for number in range(THREADS, THREADS + PROCESSES):
        child = os.fork()
        if child:
            children.append(child)
            continue
        code = 1
        try:
            submit(session if number % 2 else None, f"process{number}", counts[number])
            code = 0
        except BaseException:
            traceback.print_exc()
        os._exit(code)
    for thread in threads:
        thread.join()
    for error in failures:
        traceback.print_exception(error)
    return len(failures) + sum(os.waitpid(child, 0)[1] != 0 for child in children)


if __name__ == "__main__":
    sys.exit(main())
