"""`submit FILE.sbatch` on a real Slurm: the file behaves as with sbatch alone."""

from __future__ import annotations

import json

import pytest

from tests.cluster import site as sites

#: What a batch script can see of how it was started; the last lines are environment variables.
# What a command of it inherits, of signals too: bash's own mask is another while it forks, and
# bash holds the pipe of a pipeline while it starts one.
LOOK = r"""#!/bin/bash -u
#SBATCH --time=5 --nodes=2
#SBATCH --job-name=look
#SBATCH --output=look-%j.txt
printf '%s\n' "$(basename "$0")" "$#" "$@" "$PWD" "$(readlink /proc/$$/fd/0)" "$-" "$(umask)"
readlink /proc/$$/fd/* >descriptors
grep -v slurm_script descriptors | sort | uniq -c
[ "$(ps -o pgid= -p $$)" -eq $$ ] && echo leads its group
grep -E '^Sig(Blk|Ign)' /proc/self/status
wc -c <"$0"; sed -n 5p "$0" | head -c 20; echo
own='ID|SLUID|NAME|START_TIME|END_TIME'
env | grep -vE "^(ORCHESTRATOR_|_=|SHLVL=|SLURM_(JOB_?($own)|TASK_PID)=)" | sort
"""
#: Body -> content of the exit record.
ENDS = {
    "falls": ("#!/bin/bash\ntrue\n", 0),
    "exits": ("#!/bin/bash\nexit 3\n", 3),
    "errexit": ("#!/bin/bash\nset -e\nfalse\necho not here\n", 1),
    "unset": ('#!/bin/bash\nset -u\necho "$NO_SUCH_VARIABLE"\n', 1),
    "trapped": ("#!/bin/bash\ntrap 'echo bye >bye; exit 4' EXIT\nexit 2\n", 4),
    "exec": ("#!/bin/bash\nexec python3 -c 'raise SystemExit(5)'\n", 5),
    "killed": ("#!/bin/bash\nkill -9 $$\n", 137),
    "abort": ("#!/bin/bash\nkill -ABRT $$\n", 134),
    "python": ("#!/usr/bin/env python3\nimport sys\nsys.exit(6)\n", 6),
    "sh": ("#!/bin/sh\nset -eu\n[ 1 = 1 ]\nexit 7", 7),
    "group": ("#!/bin/bash\ntrap 'exit 8' TERM\nkill 0\nsleep 60\n", 8),
}


def _write(site: sites.Site, name: str, text: str) -> str:
    path = f"{site.home}/{name}.sbatch"
    site.lab.write(path, text)
    return path


def _record(site: sites.Site, reference: str, attempt: int = 0) -> dict[str, object]:
    folder = site.job(reference)["run_dir"]
    done = site.lab.run(["cat", f"{folder}/exit.0.{attempt}.json"], user="alice")
    return json.loads(done.stdout)


def test_batch_file_has_the_environment_of_sbatch(site: sites.Site) -> None:
    path = _write(site, "look", LOOK)
    arguments = ["a b", "--flag", "*"]
    plain = site.lab.run(
        ["sbatch", "--parsable", "--wait", "--open-mode=append", path, *arguments],
        env=site.environ,
        cwd=site.home,
    )
    ours = site.run("submit", "--parsable", path, "--", *arguments).stdout.strip()
    site.run("wait", ours)
    assert site.run("show", ours, "--script").stdout == site.run("render", path).stdout
    held = site.lab.run(["scontrol", "write", "batch_script", ours, "-"], user="alice").stdout
    assert held == site.run("render", path).stdout
    log = site.run("logs", ours).stdout.splitlines()
    assert site.run("logs", ours, "--path").stdout == f"{site.home}/look-{ours}.txt\n"
    seen = site.lab.run(["cat", f"look-{plain.stdout.strip()}.txt"], user="alice", cwd=site.home)
    number = plain.stdout.strip()
    text = seen.stdout.replace(f"look-{number}.txt", f"look-{ours}.txt")
    assert log[1:] == text.splitlines()
    assert "leads its group" in log


def test_each_outcome_is_reported_correctly(site: sites.Site) -> None:
    jobs = {name: site.submit(_write(site, name, text)) for name, (text, _) in ENDS.items()}
    site.run("wait", *jobs.values(), check=None)
    outcomes = {}
    for name, job_id in jobs.items():
        job, record = site.job(job_id), _record(site, job_id)
        state = "COMPLETED" if ENDS[name][1] == 0 else "FAILED"
        assert (job["state"], job["exit_code"], job["exit_signal"]) == (state, ENDS[name][1], 0)
        outcomes[name] = (record["rc"], record["outcome"], record["done"])
    assert outcomes == {name: (rc, "end", True) for name, (_, rc) in ENDS.items()}


#: Waits for signals in a way that lets bash run its traps at once.
WAITS = """#!/bin/bash
#SBATCH --time=1 --signal=B:USR1@10
trap 'echo got USR1' USR1
trap 'echo got USR2' USR2
{term}
echo ready
for i in $(seq 600); do sleep 0.2 & wait $!; done
"""


@pytest.mark.early
def test_signals_reach_only_the_batch_shell(site: sites.Site) -> None:
    text = WAITS.format(term="trap 'echo got TERM; exit 0' TERM")
    job_id = site.submit(_write(site, "waits", text))
    site.lab.wait_for(lambda: "ready" in site.run("logs", job_id).stdout, 120, "ready")
    site.lab.run(["scancel", "-b", "-s", "USR2", job_id], user="alice").check_returncode()
    # Slurm checks time limits every half minute, and sends USR1 at the last check before its time,
    # together with CONT.
    site.wait_state(job_id, "TIMEOUT", timeout_seconds=180)
    log = site.run("logs", job_id).stdout
    assert [log.count(f"got {name}") for name in ("USR1", "USR2", "TERM")] == [1, 1, 1]
    record = _record(site, job_id)
    # The file exited with 0; only Slurm knows that it ended the job.
    assert (record["rc"], record["done"]) == (0, False)


def test_scancel_ends_a_job_that_ignores_term(site: sites.Site) -> None:
    text = WAITS.format(term="trap '' TERM")
    job_id = site.submit(_write(site, "deaf", text))
    site.lab.wait_for(lambda: "ready" in site.run("logs", job_id).stdout, 120, "ready")
    site.run("cancel", job_id)
    assert site.job(job_id)["state"] == "CANCELLED"
    folder = site.job(job_id)["run_dir"]
    left = site.lab.run(["ls", folder], user="alice").stdout.split()
    assert not [name for name in left if name.startswith("exit.")]


def test_batch_file_requeues_itself_or_is_requeued(site: sites.Site) -> None:
    again = "#!/bin/bash\n#SBATCH --requeue\necho attempt $SLURM_RESTART_COUNT\n"
    again += '[ -n "$SLURM_RESTART_COUNT" ] || { scontrol requeue $SLURM_JOB_ID; sleep 60; }\n'
    job_id = site.submit(_write(site, "again", again))
    site.run("wait", job_id, timeout_seconds=240)
    job = site.job(job_id)
    assert (job["state"], job["attempt"], len(job["attempts"])) == ("COMPLETED", 1, 2)
    log = site.run("logs", job_id).stdout
    assert "attempt\n" in log and "attempt 1\n" in log
    assert log.count("=== orchestrator again job") == 2
    anew = site.run("resubmit", job_id, "--parsable").stdout.strip()
    site.run("wait", anew, timeout_seconds=240)
    assert site.run("show", anew, "--script").stdout == site.run("show", job_id, "--script").stdout


def test_the_command_line_wins_over_the_file(site: sites.Site) -> None:
    text = "#!/bin/bash\n#SBATCH -J filed -N 2 -t 7\n#SBATCH --output=fixed.txt -e fixed.err\n"
    text += 'echo "$SLURM_JOB_NUM_NODES $1"; echo oops >&2; echo "Throughput: 5.0 images/s"\n'
    path = _write(site, "over", text)
    done = site.run("submit", path, "--nodes", "1", "--name", "mine", "--label", "a=b", "--", "x")
    assert "fixed.txt must contain %j" in done.stderr and "fixed.err must contain %j" in done.stderr
    site.run("wait", "mine")
    job = site.job("mine")
    assert (job["name"], job["nodes"], job["time_limit_seconds"]) == ("mine", 1, 420)
    assert job["labels"] == ["a=b"]
    assert site.run("logs", "mine").stdout.splitlines()[1] == "1 x"
    assert site.run("logs", "mine", "--stderr").stdout.splitlines()[1:] == ["oops"]
    again = site.run("resubmit", "mine", "--parsable").stdout.strip()
    site.run("wait", again)
    assert site.run("logs", again).stdout.splitlines()[1] == "1 x"
    assert site.run("logs", again, "--stderr").stdout.splitlines()[1:] == ["oops"]


@pytest.mark.parametrize("option", ["--test-only", "--dry-run"])
def test_nothing_is_submitted(site: sites.Site, option: str) -> None:
    path = _write(site, "dry", "#!/bin/bash\n#SBATCH -t 5\ntrue\n")
    done = site.run("submit", path, option)
    assert done.stdout.startswith("#!/bin/bash\n" if option == "--dry-run" else "Slurm would start")
    assert site.items("status", "--all") == []
