"""The record of nodes, and jobs that are submitted without the nodes that failed."""

from __future__ import annotations

import json
from pathlib import Path

from tests.flow import command_line
from tests.flow.conftest import FakeSlurm

LIMIT = (
    "sbatch: error: QOSMaxSubmitJobPerUserLimit\nsbatch: error: Batch job submission failed: "
    "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)\n"
)
SPEC = """\
[job]
name = "demo"
time_limit = "10"
[launch]
command = "true"
"""


def test_a_node_that_failed_twice_is_excluded(
    cli: command_line.CommandLine, fake_slurm: FakeSlurm
) -> None:
    spec = cli.spec(SPEC)

    def fail_on_n1() -> str:
        done = cli("submit", spec, "--parsable")
        assert done.code == 0, done
        number = done.out.strip()
        fake_slurm.set_state(number, "RUNNING")
        fake_slurm.set_state(number, "NODE_FAIL")
        assert cli("refresh").code == 0
        return number

    fail_on_n1()
    # Nobody asked for it yet.
    assert not fake_slurm.calls("sinfo")
    (node,) = cli("nodes", "--json").items
    assert (node["node"], node["failures"], node["exclude"]) == ("n1", {"node_fail": 1}, False)
    assert 0.99 < node["score"] <= 1
    second = fail_on_n1()
    header, line = cli("nodes").out.splitlines()
    assert header.split("\t")[:4] == ["cluster", "node", "score", "failures"]
    assert line.split("\t")[:4] == ["fake", "n1", "2.00", "2 node_fail"]
    assert line.split("\t")[-2:] == ["yes", ""]
    assert (
        "avoid n1: --exclude n1 (orchestrator nodes; n1: 2 node_fail)" in cli("explain", second).out
    )
    assert cli("nodes", "--since", "now-1hours").out.splitlines() == [header, line]
    # Suggested is not done.
    assert "--exclude" not in fake_slurm.job(second)["submit_line"]

    (cli.home / ".config/orchestrator").mkdir(parents=True)
    (cli.home / ".config/orchestrator/config.toml").write_text('[nodes]\nexclude = "auto"\n')
    why = 'n1 is excluded (nodes.exclude = "auto"): 2 node_fail\n'
    assert cli("render", spec).err == f"On sbatch's command line: --exclude=n1\n{why}"
    planned = "Exclude n1 (nodes.exclude): 2 node_fail"
    assert planned in cli("plan", "submit", spec).out
    assert planned not in cli("plan", "submit", spec, "--nodelist", "n1").out
    # The mark is that of the submission, whatever is counted.
    (node,) = cli("nodes", "--since", "2100-01-01", "--json").items
    assert (node["node"], node["failures"], node["exclude"]) == ("n1", {}, True)
    assert node["score"] > 1.9
    done = cli("submit", spec, "--exclude", "n77,n2", "--parsable")
    assert done.err == why + "n77 is not excluded: Slurm has no such node\n"
    third = done.out.strip()
    assert "--exclude=n2,n1 " in fake_slurm.job(third)["submit_line"]
    assert len(fake_slurm.calls("sinfo")) == 1
    events = cli("show", third, "--json").items[0]["events"]
    assert [event["detail"] for event in events if event["kind"] == "exclude"] == [
        'n1 is excluded (nodes.exclude = "auto"): 2 node_fail; '
        "n77 is not excluded: Slurm has no such node"
    ]
    # Who asks for it by name gets it.
    asked = cli("submit", spec, "--nodelist", "n1", "--parsable").out.strip()
    assert "--exclude" not in fake_slurm.job(asked)["submit_line"]

    # No other node fits the job.
    refused = "Batch job submission failed: Requested node configuration is not available"
    fake_slurm.fail("sbatch", stderr=f"sbatch: error: {refused}\n")
    assert "on n1 in partition" in cli("submit", spec, "--test-only").out
    fake_slurm.fail("sbatch", stderr=f"sbatch: error: {refused}\n")
    done = cli("submit", spec, "--exclude", "n2", "--parsable")
    assert done.err == why + "n1 is not excluded: Slurm has no other nodes for this job\n"
    assert "--exclude" not in fake_slurm.job(done.out.strip())["submit_line"]

    # A deferred job has one entry in its history, however often it is tried.
    fake_slurm.fail("sbatch", stderr=LIMIT, times=2)
    assert cli("submit", spec, "--queue").out.startswith("@6 deferred: ")
    assert "@6 deferred: " in cli("resubmit", "@6", "--queue").out
    events = cli("show", "@6", "--json").items[0]["events"]
    assert [event["kind"] for event in events].count("exclude") == 1

    # What a batch script excludes remains.
    script = cli.folder / "run.sbatch"
    script.write_text("#!/bin/bash\n#SBATCH -x n3 -t 10\n#SBATCH --exclude=n[2-3]\ntrue\n")
    number = cli("submit", script, "--parsable").out.strip()
    assert "--exclude=n[2-3],n1 " in fake_slurm.job(number)["submit_line"]

    # A retried job is not requeued, because Slurm may start it on the same node.
    retried = cli.spec(SPEC + "[retry]\nmax_retries = 2\n", "retried.toml")
    number = cli("submit", retried, "--nodelist", "n1", "--parsable").out.strip()
    fake_slurm.set_state(number, "RUNNING")
    # Without a refresh: the first one after the end explains it.
    (job,) = cli("show", number, "--json", "--no-refresh").items
    Path(job["stdout_path"]).write_text("OSError: [Errno 5] Input/output error\n")
    fake_slurm.set_state(number, "FAILED", exit="1:0")
    assert cli("refresh").code == 0
    assert "a continuation job is submitted without n1" in cli("tick").err


def test_stragglers_of_two_jobs_exclude_their_node(
    cli: command_line.CommandLine, fake_slurm: FakeSlurm
) -> None:
    spec = cli.spec(SPEC + "[resources]\nnodes = 2\ngpus_per_node = 1\n")
    for number in ("1", "2"):
        assert cli("submit", spec, "--parsable").out == f"{number}\n"
        fake_slurm.set_state(number, "RUNNING")
        (job,) = cli("show", number, "--json", "--no-refresh").items
        # As the trainer writes them.
        lines = [
            {"name": "compute_time", "value": seconds, "unit": "seconds", "rank": rank}
            for _ in range(3)
            for rank, seconds in enumerate((0.2, 0.5))
        ]
        text = "".join(json.dumps({**line, "world_size": 2}) + "\n" for line in lines)
        Path(job["run_dir"], "metrics.jsonl").write_text(text)
    assert cli("refresh").code == 0
    (job,) = cli("show", "2", "--json", "--no-refresh").items
    assert [alert["detail"] for alert in job["alerts"]] == [
        "rank 1 on n2, GPU 0, takes 2.5 times as long as others"
        " (compute_time 0.5 seconds, others 0.2)"
    ]
    (node,) = cli("nodes", "--json").items
    assert (node["node"], node["slow_runs"], node["exclude"]) == ("n2", 2, True)
