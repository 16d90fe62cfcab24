"""Submissions of the Python API from several threads and forked processes, each exactly once."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.flow import api_workers, command_line
from tests.flow.conftest import FakeSlurm

SPEC = '[job]\nname = "demo"\ntime_limit = "10"\n[launch]\ncommand = "true"\n'
JOBS = 200


@pytest.mark.both_databases
def test_8_threads_and_4_forked_processes_submit_200_jobs_once(
    cli: command_line.CommandLine, fake_slurm: FakeSlurm
) -> None:
    cli.spec(SPEC)
    workers = api_workers.THREADS + api_workers.PROCESSES
    counts = [JOBS // workers + (number < JOBS % workers) for number in range(workers)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.flow.api_workers", *map(str, counts)],
        cwd=cli.folder,
        env=cli.environ,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    printed = dict(line.split() for line in done.stdout.splitlines())
    names = [f"thread{n}-{k}" for n in range(8) for k in range(counts[n])]
    names += [f"process{n}-{k}" for n in range(8, 12) for k in range(counts[n])]
    assert len(names) == JOBS and sorted(printed) == sorted(names)
    in_slurm = {job["name"].rpartition(".")[0]: str(job["job_id"]) for job in fake_slurm.jobs()}
    assert len(fake_slurm.jobs()) == JOBS and in_slurm == printed
    stored = cli("status", "--all", "--limit", str(2 * JOBS), "--no-refresh", "--json").items
    assert {row["name"]: row["job_id"] for row in stored} == printed and len(stored) == JOBS


FORKS = """
import os, sys, threading, time
import orchestrator as orc
thread = threading.Thread(target=orc.submit, args=["job.toml"])
thread.start()
while not os.path.exists(sys.argv[1]):
    time.sleep(0.01)
child = os.fork()
(job,) = orc.jobs(state='PENDING', refresh=False)
os.write(1, f"{job.id} {job.state}\\n".encode())
if not child:
    os._exit(0)
thread.join()
sys.exit(os.waitpid(child, 0)[1])
"""


def test_a_fork_waits_for_the_submission_of_another_thread(
    cli: command_line.CommandLine, fake_slurm: FakeSlurm
) -> None:
    cli.spec(SPEC)
    # Stores the facts about the cluster, so that sbatch is the first call of the program.
    assert cli("submit", "job.toml").code == 0
    fake_slurm.set_state(1, "COMPLETED")
    assert cli("status", "--refresh").code == 0
    calls = fake_slurm.folder / "calls"
    calls.unlink()
    fake_slurm.fail("sbatch", rc=0, delay_seconds=1, run_anyway=True, stdout="2\n")
    done = cli.run([sys.executable, "-c", FORKS, str(calls)])
    assert (done.code, done.err, done.out) == (0, "", "2 PENDING\n" * 2)
