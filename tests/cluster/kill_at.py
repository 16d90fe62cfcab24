"""Run `orchestrator ARGV` and kill this process with SIGKILL at a named point of the submission.

    kill_at.py POINT DELAY_SECONDS ARGV...

Points, in the order in which a submission passes them:

    folder     the run folder is about to be created, nothing is stored
    rowless    the run folder exists, the intent does not
    intent     the intent is written and not committed
    committed  the intent is committed, sbatch is not started
    started    sbatch is started, and not tied to this process yet
    sbatch     DELAY_SECONDS after sbatch was started
    answered   sbatch has answered, nothing of it is stored
    storing    the job ID is written and not committed
"""

import os
import signal
import sys
import threading

from db.stores import jobs
from orchestrator import cli
from orchestrator.controller.submission import sbatch_call, sbatch_outcomes
from orchestrator.files import run_folder
from orchestrator.processes import process


def die(*_: object, **__: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def after(function):
    def wrapped(*args, **kwargs):
        function(*args, **kwargs)
        die()

    return wrapped


def soon(function, delay_seconds):
    def wrapped(*args, **kwargs):
        threading.Timer(delay_seconds, die).start()
        return function(*args, **kwargs)

    return wrapped


def arm(point, delay_seconds):
    if point == "folder":
        run_folder.create = die
    elif point == "rowless":
        run_folder.create = after(run_folder.create)
    elif point == "intent":
        jobs.JobStore.add_submission = after(jobs.JobStore.add_submission)
    elif point == "committed":
        sbatch_call.call = die
    elif point == "started":
        process._ParentTie.bind = die
    elif point == "sbatch":
        sbatch_call.call = soon(sbatch_call.call, delay_seconds)
    elif point == "answered":
        sbatch_call.call = after(sbatch_call.call)
    elif point == "storing":
        sbatch_outcomes.store_job_id = storing(sbatch_outcomes.store_job_id)
    else:
        raise SystemExit(f"no point {point}")


def storing(function):
    def wrapped(*args, **kwargs):
        jobs.EventStore.add_many = die
        return function(*args, **kwargs)

    return wrapped


if __name__ == "__main__":
    arm(sys.argv[1], float(sys.argv[2]))
    sys.argv[1:3] = []
    cli.main()
