"""The launcher `auto` on a real cluster: what is typed runs as it is, or as ranks of torchrun."""

from __future__ import annotations

from tests.cluster import site as sites

RANKS = """\
import os
names = ("RANK", "WORLD_SIZE", "SRUN_CPUS_PER_TASK")
line = " ".join(["ranks", *(str(os.environ.get(name)) for name in names)])
# One write: with -u Python writes each part of a line for itself, and the ranks share the log.
os.write(1, f"{line}\\n".encode())
"""


def lines(site: sites.Site, *words: str) -> list[str]:
    """Submit, wait for a good end, and return what the ranks printed."""
    done = site.run("submit", "--time-limit=5", "--wait", *words)
    job_id = done.stdout.split()[3]
    log = site.run("logs", job_id).stdout.splitlines()
    return sorted(line for line in log if line.startswith("ranks "))


def test_a_program_runs_as_it_is_and_keeps_its_exit_code(site: sites.Site) -> None:
    done = site.run("submit", "--time-limit=1", "--wait", "--", "bash", "-c", "exit 4", check=1)
    (job,) = site.items("show", done.stdout.split()[3])
    assert (job["name"], job["state"], job["exit_code"]) == ("bash", "FAILED", 4)
    # As `explain` shows it, then the end.
    explained = site.run("explain", job["job_id"]).stdout
    assert done.stderr.endswith(
        f"{explained}Error: job {job['job_id']} ended FAILED, exit code 4:0\n"
    )


def test_a_missing_program_is_named(site: sites.Site) -> None:
    words = ("submit", "--time-limit=1", "--wait", "--", "no-such-program")
    done = site.run(*words, check=1)
    assert "no-such-program: command not found on n" in done.stderr
    assert done.stderr.endswith("ended FAILED, exit code 127:0\n")


def test_python_gets_torchrun_for_several_ranks(site: sites.Site) -> None:
    site.lab.write(f"{site.home}/ranks.py", RANKS)
    assert lines(site, "ranks.py") == ["ranks None None None"]
    assert lines(site, "--gpus-per-node=1", "--", "ranks.py") == ["ranks 0 1 None"]
    assert lines(site, "--nodes=2", "ranks.py") == ["ranks 0 2 None", "ranks 1 2 None"]
    # Two tasks of Slurm are two ranks in one task, which has the CPUs of both.
    tasks = ("--ntasks-per-node=2", "--cpus-per-task=1")
    assert lines(site, *tasks, "--", sites.PYTHON, "-u", "ranks.py") == [
        "ranks 0 2 2",
        "ranks 1 2 2",
    ]


def test_tasks_of_an_array_keep_their_exit_codes(site: sites.Site) -> None:
    line = "exit $SLURM_ARRAY_TASK_ID"
    words = ("--array-size=2", "--time-limit=1", "--wait", "--json", "--", "bash", "-c", line)
    done = site.run("submit", *words, check=1)
    assert '"exit_code": 1' in done.stdout and '"exit_code": 0' in done.stdout
    assert "Cause:" in done.stderr


def test_a_rank_of_srun_that_a_signal_ends_is_named(site: sites.Site) -> None:
    line = 'test "$SLURM_PROCID" = 0 && sleep 60; kill -TERM $$; sleep 60'
    words = ("--launcher=srun", "--ntasks=2", "--", "bash", "-c", line)
    done = site.run("submit", "--time-limit=2", "--wait", "--nodes=2", *words, check=1)
    assert "Cause:     killed: srun task 1 was ended by SIGTERM\n" in done.stderr
