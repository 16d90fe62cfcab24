"""Run `orchestrator ARGV` and kill this process with SIGKILL at a named point of the submission.

    kill_at.py POINT DELAY_SECONDS ARGV...

Points, in the order in which a submission passes them:

    folder     the run folder is about to be made, nothing is stored
    rowless    the run folder is there, the intent is not
    started    sbatch waits for its script, and is not tied to this process yet
    waiting    DELAY_SECONDS after sbatch was started, ahead of its script
    intent     the intent is written and not committed
    committed  the intent is committed, sbatch waits for its script
    given      sbatch has its script, whose end is not told
    sbatch     sbatch runs: DELAY_SECONDS after it was given its script
    answered   sbatch has answered, nothing of it is stored
    storing    the job ID is written and not committed
"""

import os
import signal
import sys
import threading

from db.stores import attempts, jobs
from orchestrator import cli
from orchestrator.controller.submission import sbatch_outcomes, submitit
from orchestrator.slurm import process
from orchestrator.tracking import run_folder


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
    elif point == "started":
        process._ParentTie.bind = die
    elif point == "waiting":
        process.Held.__init__ = soon(process.Held.__init__, delay_seconds)
    elif point == "rowless":
        run_folder.create = after(run_folder.create)
    elif point == "intent":
        jobs.JobStore.add_submission = after(jobs.JobStore.add_submission)
    elif point == "committed":
        submitit.submit = die
    elif point == "given":
        process.Held._hand_over = after(process.Held._hand_over)
    elif point == "sbatch":
        process.Held.give = soon(process.Held.give, delay_seconds)
    elif point == "answered":
        submitit.submit = after(submitit.submit)
    elif point == "storing":
        sbatch_outcomes.store_job_id = storing(sbatch_outcomes.store_job_id)
    else:
        raise SystemExit(f"no point {point}")


def storing(function):
    def wrapped(*args, **kwargs):
        attempts.EventStore.add_many = die
        return function(*args, **kwargs)

    return wrapped


if __name__ == "__main__":
    arm(sys.argv[1], float(sys.argv[2]))
    sys.argv[1:3] = []
    cli.main()
