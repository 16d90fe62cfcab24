"""Normal use of each command: the exact output."""

from __future__ import annotations

import datetime
import json
import os
import re
import signal
import threading

import pytest

from db import upgrades
from tests.flow import command_line

SPEC = """\
[job]
name = "demo"
time_limit = "10"
labels = ["team=vision"]
[resources]
nodes = 2
gpus_per_node = 4
[launch]
launcher = "python"
script = "train.py"
"""
TRAIN = """\
import json, os
print("Training started with 8 processes across 2 nodes.")
print("Epoch 1/2 completed in 2.500 seconds")
print("Epoch Throughput: 400.000 images/second")
print("Epoch 2/2 completed in 2.000 seconds")
print("Epoch Throughput: 500.000 images/second")
with open(os.environ["ORCHESTRATOR_METRICS_FILE"], "a") as file:
    print(json.dumps({"name": "loss", "value": 0.25, "step": 7, "time": 1750000000}), file=file)
"""
STATUS_HEAD = "job_id\tname\tstate\treason\telapsed\ttime_limit\tnodes\tgpus\tnode_list\trow\n"
TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+]00:00"


def ask(*words):
    """Match these lines; `...` matches anything."""
    return re.compile("".join(re.escape(word).replace(r"\.\.\.", r"[^\n]*") for word in words))


def test_a_job_from_submit_to_its_numbers(cli, fake_slurm):
    fake_slurm.run_jobs()
    (cli.folder / "train.py").write_text(TRAIN)
    spec = cli.spec(SPEC)

    done = cli("submit", spec, "--wait")
    assert (done.code, done.out) == (0, "Submitted batch job 1 (@1, demo)\n")
    *before, last = done.err.splitlines()
    assert re.fullmatch(r"\d\d:\d\d:\d\d 1 COMPLETED on n\[1-2\]", last)
    assert all(re.fullmatch(r"\d\d:\d\d:\d\d 1 (PENDING|RUNNING).*", line) for line in before)

    rendered = cli("render", spec)
    assert (rendered.code, rendered.err) == (0, "")
    assert rendered.out == cli("submit", spec, "--dry-run").out
    assert rendered.out == cli("show", "1", "--script").out
    assert rendered.out == (fake_slurm.folder / "script.1").read_text()
    (folder,) = cli.run_folders()
    assert rendered.out == (folder / "script.sbatch").read_text()

    log = cli("logs", "demo")
    assert (log.code, log.err) == (0, "")
    banner, *lines = log.out.splitlines()
    assert banner.startswith("=== orchestrator demo job 1 task 0 attempt 0 on n1 at ")
    assert lines[-1] == "Epoch Throughput: 500.000 images/second"
    assert cli("logs", "@1", "-n", "1").out == "Epoch Throughput: 500.000 images/second\n"
    assert cli("logs", "1", "--path").out == f"{folder}/1.out\n"

    assert cli("metrics", "1", "--name", "throughput").out == (
        "job_id\tname\tvalue\tunit\tepoch\tstep\ttime\tsource\n"
        "1\tthroughput\t400.0\timages/second\t1\t\t\tlog:olivia\n"
        "1\tthroughput\t500.0\timages/second\t2\t\t\tlog:olivia\n"
    )
    none = cli("metrics", "1", "--name", "nosuch")
    assert (none.code, none.out.count("\n")) == (0, 1)
    assert re.fullmatch(
        r"No metrics match. Names of these jobs' metrics: (\w+, )*throughput(, \w+)*\n", none.err
    )
    newest = cli("metrics", "1", "--last", "1", "--source", "jsonl", "--json").items
    assert [{**item, "row": None} for item in newest] == [
        {
            "row": None,
            "job_id": "1",
            "array_task_id": None,
            "attempt": 0,
            "name": "loss",
            "value": 0.25,
            "unit": "",
            "step": 7,
            "epoch": None,
            "rank": None,
            "world_size": None,
            "time": "2025-06-15T15:06:40+00:00",
            "source": "jsonl",
            "line": 1,
        }
    ]
    assert isinstance(newest[0]["row"], int)

    shown = cli("show", "1").out
    assert ask(
        "Job:         1 (@1)\n"
        "Name:        demo\n"
        "State:       COMPLETED\n"
        "Exit code:   0:0\n"
        "Cluster:     fake\n"
        "Partition:   gpu\n"
        "Account:     proj\n"
        "QOS:         normal\n"
        "Nodes:       2 (n[1-2])\n"
        "GPUs:        8\n"
        "Time:        00:00:0... of 00:10:00\n"
        "Submitted:   ...\n"
        "Started:     ...\n"
        "Ended:       ...\n"
        "Labels:      team=vision\n"
        f"Run folder:  {folder}\n"
        f"Log:         {folder}/1.out\n"
        f"Spec:        {spec}\n"
        f"Token:       {folder.name.rpartition('.')[2]}\n"
        "\n"
        "Efficiency:\n"
        "  Time           [                       0%] 00:00:0... of 00:10:00\n"
        "  CPU ... 00:00:01... (2 CPUs)\n"
        "  Memory         [||||                  20%] 100M of 500M per node\n"
        "  Unknown: GPU usage: no CSV of the trainer's monitor or of nvidia-smi found "
        "(spec key metrics.gpu_csv)\n"
        "\n"
        "History:\n"
        "  ...  user       intent stored\n"
        "  ...  sbatch     sbatch answered 1\n"
    ).match(shown), shown
    assert re.search(rf"^Ended:       {TIME}$", shown, re.MULTILINE)
    assert shown.splitlines()[-1].endswith("-> COMPLETED, exit code 0:0")
    assert json.loads(cli("show", "1", "--spec").out)["resources"]["gpus_per_node"] == 4
    # What a job used does not change once it is settled: sacct is not asked again.
    asked = fake_slurm.calls("sacct")
    (again,) = cli("show", "1", "--json").items
    assert again["efficiency"]["memory_peak_bytes"] == 100 << 20
    assert fake_slurm.calls("sacct") == asked
    (used,) = cli("usage", "--by", "label:team", "--json").items
    assert (used["label:team"], used["jobs"], used["unknown_cpus"]) == ("vision", 1, 0)


#: Design section 5: at least these, and of these types.
JOB_FIELDS = {
    "row": int,
    "job_id": str,
    "array_job_id": None,
    "array_task_id": None,
    "name": str,
    "cluster": str,
    "scheduler": str,
    "state": str,
    "raw_state": str,
    "reason": None,
    "cause": str,
    "exit_code": int,
    "exit_signal": int,
    "partition": str,
    "account": str,
    "qos": str,
    "nodes": int,
    "gpus": int,
    "node_list": str,
    "time_limit_seconds": int,
    "submitted_at": datetime.datetime,
    "started_at": datetime.datetime,
    "ended_at": datetime.datetime,
    "elapsed_seconds": int,
    "attempt": int,
    "restart_count": int,
    "sweep": None,
    "labels": list,
    "run_dir": str,
    "stdout_path": str,
    "stderr_path": None,
    "stale_since": None,
}


def test_status_narrows_and_prints_in_each_format(cli, fake_slurm):
    for name, label in (("alpha", "team=vision"), ("beta", "team=vision"), ("beta", "team=text")):
        options = ("--name", name, "--time-limit", "10", "--gpus-per-node", "4", "--label", label)
        submitted = cli("submit", *options, "--parsable", "--", "train.py")
        assert (submitted.code, submitted.err) == (0, "")
    assert submitted.out == "3\n"
    fake_slurm.set_state(1, "FAILED", exit="3:0", reason="NonZeroExitCode")
    fake_slurm.set_state(2, "RUNNING", partition="cpu")

    done = cli("status", "--refresh")
    assert (done.code, done.err) == (0, "")
    lines = {
        1: "1\talpha\tFAILED\t\t00:00:00\t00:10:00\t1\t4\tn1\t@1\n",
        2: "2\tbeta\tRUNNING\t\t00:00:00\t00:10:00\t1\t4\tn1\t@2\n",
        3: "3\tbeta\tPENDING\tPriority\t\t00:10:00\t1\t4\t\t@3\n",
    }

    def seen(*argv):
        narrowed = cli("status", "--no-refresh", *argv)
        assert (narrowed.code, narrowed.err) == (0, ""), narrowed
        head, *rows = narrowed.out.splitlines(keepends=True)
        assert head == STATUS_HEAD
        still = [re.sub(r"\t00:00:\d\d\t", "\t00:00:00\t", row) for row in rows]
        numbers = [int(row.split("\t")[0]) for row in rows]
        for number, row in zip(numbers, still, strict=True):
            assert re.sub("NonZeroExitCode", "", row) == lines[number]
        return numbers

    assert seen() == [3, 2, 1]
    assert seen("-t", "PD,F") == [3, 1]
    assert seen("-t", "submitting,Unknown") == []
    assert seen("-p", "cpu") == [2]
    assert seen("--name", "beta", "--label", "team=vision") == [2]
    assert seen("-S", "1h") == [3, 2, 1]
    assert seen("-S", "2050-01-01") == []
    assert seen("@2", "1", "alpha", "@3") == [2, 1, 3]
    short = cli("status", "--no-refresh", "--limit", "1", "--format", "csv")
    assert short.out == (
        "job_id,name,state,reason,elapsed,time_limit,nodes,gpus,node_list,row\n"
        "3,beta,PENDING,Priority,,00:10:00,1,4,,@3\n"
    )
    assert short.err == "Only the newest 1 are shown; --limit changes the number.\n"
    for form in ("csv", "json", "table"):
        whole = cli("status", "--no-refresh", "--limit", "3", "--format", form)
        assert (whole.err, "alpha" in whole.out) == ("", True), form
        part = cli("status", "--no-refresh", "--limit", "2", "--format", form)
        assert part.err == "Only the newest 2 are shown; --limit changes the number.\n", form
        assert "alpha" not in part.out

    items = cli("status", "--no-refresh", "--json").items
    jsonl = cli("status", "--no-refresh", "--format", "jsonl").out.splitlines()
    assert [json.loads(line)["row"] for line in jsonl] == [item["row"] for item in items]
    assert items[0]["reason"] == "Priority"
    ended = items[-1]
    assert {key: ended[key] for key in ("state", "exit_code", "gpus", "labels")} == {
        "state": "FAILED",
        "exit_code": 3,
        "gpus": 4,
        "labels": ["team=vision"],
    }
    for field, kind in JOB_FIELDS.items():
        value = ended[field]
        if kind is datetime.datetime:
            assert datetime.datetime.fromisoformat(value).tzinfo is not None, field
        else:
            assert value is None if kind is None else type(value) is kind, (field, value)

    two = cli("status", "beta")
    assert (two.code, two.out) == (6, "")
    assert two.err == "Error: 2 live jobs are named beta:\n  3  @3  PENDING\n  2  @2  RUNNING\n"
    table = cli("show", "2", "--format", "tsv").out
    assert table.splitlines()[1].split("\t")[:3] == ["2", "beta", "RUNNING"]


def test_a_job_that_fails_and_one_that_takes_too_long(cli, fake_slurm):
    fake_slurm.run_jobs()
    failing = cli("submit", "--name", "bad", "--wait", "--json", "--command", "exit 3")
    assert failing.code == 1
    assert [(item["state"], item["exit_code"]) for item in failing.items] == [("FAILED", 3)]
    # What `explain` prints, then the end.
    shown = cli("explain", "1").out
    assert shown.startswith("Job:       1 (@1) bad, FAILED\nCause: ")
    assert failing.err.endswith(f"{shown}Error: job 1 ended FAILED, exit code 3:0\n")
    assert cli("wait", "1").err.endswith("exit code 3:0; see `orchestrator explain 1`\n")
    fake_slurm.run_jobs(False)
    assert cli("submit", "--name", "slow", "--parsable", "--", "train.py").out == "2\n"
    late = cli("wait", "2", "--timeout", "0.2")
    assert (late.code, late.out) == (124, "")
    assert late.err.endswith("Error: 1 of 1 jobs have not ended after 0.2 s\n")
    fake_slurm.set_state(2, "COMPLETED")
    assert cli("wait", "2").code == 0
    both = cli("wait", "@1", "slow", "--format", "tsv")
    assert both.code == 1
    assert [line.split("\t")[2] for line in both.out.splitlines()] == [
        "state",
        "FAILED",
        "COMPLETED",
    ]
    assert both.err.endswith("Error: 1 of 2 jobs did not complete: 1 FAILED\n")


def test_cancel_checks_the_result_in_slurm(cli, fake_slurm):
    for name in ("a", "b", "b"):
        assert cli("submit", "--name", name, "--", "train.py").code == 0
    fake_slurm.fail("scancel", rc=0)
    asked = len(fake_slurm.calls("scontrol"))
    refused = cli("cancel", "1", "--timeout", "3")
    assert (refused.code, refused.out) == (5, "1 is PENDING\n")
    assert refused.err == (
        "Waiting until Slurm shows the end of 1 ...\n"
        "Error: Slurm accepted the request, but still shows 1; "
        "check with `orchestrator status 1`\n"
    )
    done = cli("cancel", "--name", "b")
    assert (done.code, sorted(done.out.splitlines())) == (0, ["2 is CANCELLED", "3 is CANCELLED"])
    assert fake_slurm.calls("scancel") == [["1"], ["3", "2"]]
    again = cli("cancel", "2")
    assert (again.code, again.out) == (0, "2 had already ended: CANCELLED\n")
    assert len(fake_slurm.calls("scancel")) == 2
    assert len(fake_slurm.calls("scontrol")) == asked, "squeue shows whose IDs they are"


def test_cancel_waits_for_a_process_that_asks_slurm(cli, fake_slurm):
    for name in ("a", "b"):
        assert cli("submit", "--name", name, "--", "train.py").code == 0
    before = len(fake_slurm.calls("scontrol"))
    fake_slurm.fail("squeue", delay_seconds=2.0, run_anyway=True)
    other = threading.Thread(target=lambda: cli("refresh"))
    other.start()
    cli.wait_until(lambda: fake_slurm.calls("squeue"), "the other process")
    assert cli("cancel", "1", "2").out == "1 is CANCELLED\n2 is CANCELLED\n"
    other.join()
    assert fake_slurm.calls("scancel") == [["1", "2"]]
    assert len(fake_slurm.calls("scontrol")) == before, "one squeue for all"


@pytest.mark.parametrize("is_cancelled", [True, False])
def test_a_job_that_has_just_failed_is_not_continued_after_cancel(cli, fake_slurm, is_cancelled):
    spec = cli.folder / "job.toml"
    spec.write_text('[job]\nname = "x"\n[launch]\ncommand = "true"\n[retry]\nmax_retries = 1\n')
    assert cli("submit", str(spec)).code == 0
    fake_slurm.set_state(1, "NODE_FAIL", exit="1:0")
    if is_cancelled:
        assert cli("cancel", "1").out == "1 is NODE_FAIL\n"
    cli("tick")
    (job,) = cli("show", "@1", "--json", "--no-refresh").items
    requeued = "node_fail: the job is requeued in 00:01:00 (1 of at most 1)"
    withdrawn = "node_fail: its cancellation was requested; no retry"
    assert job["events"][-1]["detail"] == (withdrawn if is_cancelled else requeued)
    assert fake_slurm.calls("scancel") == []


def test_many_jobs_are_cancelled_at_once(cli, fake_slurm):
    for name in ("a", "b", "c"):
        assert cli("submit", "--name", name, "--", "train.py").code == 0
    limit = (
        "sbatch: error: QOSMaxSubmitJobPerUserLimit\nsbatch: error: Batch job submission failed: "
    )
    limit += "Job violates accounting/QOS policy (job submit limit)\n"
    fake_slurm.fail("sbatch", stderr=limit)
    array = ("--name", "d", "--array-size", "2", "--", "train.py")
    assert cli("submit", "--queue", *array).code == 0
    lost = "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation\n"
    fake_slurm.fail("sbatch", stderr=lost)
    assert cli("submit", "--name", "e", "--", "train.py").code == 5
    # 1 is gone, and its ID is another job's.
    other = {"name": "stranger", "stdout": "/x/%j.out", "command": "/x/y", "comment": ""}
    fake_slurm.set_state(1, "PENDING", submit_line="sbatch y", **other)
    done = cli("cancel", "1", "@5", "2", "@6", "3", "--timeout", "1")
    assert fake_slurm.job(1)["state"] == "PENDING"
    assert [job["state"] for job in fake_slurm.jobs()[1:]] == ["CANCELLED"] * 2
    assert fake_slurm.calls("scancel") == [["2", "3"]]
    assert "2 is CANCELLED\n3 is CANCELLED\n" in done.out
    lines = [line for line in done.err.splitlines() if not line.startswith("Waiting")]
    assert lines[:2] == [
        "Error: @5 is a task of an array that is deferred as a whole: "
        "`orchestrator cancel d` cancels all its tasks",
        "@6 has no job ID yet (SUBMIT_UNKNOWN). `orchestrator status @6` looks for it in "
        "Slurm; repeat the command afterwards",
    ]
    # With nothing but those it is a conflict (6).
    done = cli("cancel", "@6", "2")
    assert (done.code, done.out) == (6, "2 had already ended: CANCELLED\n")


def test_a_log_is_followed_to_its_end(cli, fake_slurm):
    none = cli("submit", "--name", "late", "--", "train.py")
    assert none.code == 0
    early = cli("logs", "1")
    assert (early.code, early.out) == (0, "")
    (folder,) = cli.run_folders()
    assert early.err == f"no log yet: {folder}/1.out (PENDING)\n"
    fake_slurm.run_jobs()
    slowly = "echo one; until [ -e go ]; do sleep 0.1; done; echo two; echo three"
    assert cli("submit", "--name", "slow", "--command", slowly).code == 0
    process = cli.start("logs", "slow", "-f")
    assert process.stdout is not None
    assert process.stdout.readline().startswith("=== orchestrator slow job 2 ")
    assert process.stdout.readline() == "one\n"
    (cli.folder / "go").touch()
    done = command_line.finish(process)
    assert (done.code, done.out, done.err) == (0, "two\nthree\n", "")


def test_a_log_is_printed_unchanged(cli, fake_slurm):
    fake_slurm.run_jobs()
    command = r"printf 'bar\r\033[31mred \377\000\302\205\n\n\nno end'"
    assert cli("submit", "--name", "odd", "--command", command, "--wait").code == 0
    (folder,) = cli.run_folders()
    raw = (folder / "1.out").read_bytes()
    assert raw.endswith(b"bar\r\x1b[31mred \xff\0\xc2\x85\n\n\nno end")
    for argv in (["logs", "1"], ["logs", "1", "-f"]):
        process = cli.start(*argv)
        assert process.stdout is not None
        assert process.stdout.buffer.read() == raw
        assert command_line.finish(process).code == 0
    (folder / "1.out").unlink()
    gone = cli("logs", "1")
    assert (gone.code, gone.out) == (0, "")
    assert gone.err == f"the log {folder}/1.out was deleted\n"


def test_watched_status_reads_only_the_database(cli, fake_slurm):
    assert cli("submit", "--name", "demo", "--", "train.py").code == 0
    cli.environ["ORCHESTRATOR_SERVE_INTERVAL_SECONDS"] = "1"
    assert cli("status").code == 0
    before = len(fake_slurm.calls())
    process = cli.start("status", "--watch")
    assert process.stdout is not None and process.stderr is not None
    assert process.stdout.readline() == STATUS_HEAD
    assert "\tPENDING\t" in process.stdout.readline()
    fake_slurm.set_state(1, "RUNNING")
    message = process.stderr.readline()
    assert len(fake_slurm.calls()) == before
    expected = r"States are of (\S+)\. `status --watch --refresh` keeps them up to date\.\n"
    found = re.fullmatch(expected, message)
    assert found and datetime.datetime.fromisoformat(found[1])
    # What another process has stored is shown.
    assert cli("refresh").code == 0
    assert any("\tRUNNING\t" in line for line in iter(process.stdout.readline, ""))
    os.kill(process.pid, signal.SIGINT)
    done = command_line.finish(process)
    assert done.code == 130
    assert done.err.endswith("\nInterrupted.\n")
    assert fake_slurm.job(1)["state"] == "RUNNING"


def test_watch_with_refresh_queries_slurm_at_once_and_then_by_default(cli, fake_slurm):
    assert cli("submit", "--name", "demo", "--", "train.py").code == 0
    # Slurm was queried just now, and not again for an hour.
    cli.environ["ORCHESTRATOR_POLL_FLOOR_SECONDS"] = "3600"
    assert cli("status").code == 0
    before = len(fake_slurm.calls("squeue"))
    fake_slurm.set_state(1, "RUNNING")
    process = cli.start("status", "--watch", "--refresh")
    assert process.stdout is not None
    for _ in range(2):
        assert process.stdout.readline() == STATUS_HEAD
        assert "\tRUNNING\t" in process.stdout.readline()
    os.kill(process.pid, signal.SIGINT)
    command_line.finish(process)
    assert len(fake_slurm.calls("squeue")) == before + 1


def test_db_check_of_an_intact_database_prints_no_empty_table(cli):
    assert cli("db", "check", "--format", "table").out == ""
    assert cli("db", "check", "--json").items == []


def test_refresh_reports_its_changes(cli, fake_slurm):
    nothing = cli("refresh")
    assert (nothing.code, nothing.out) == (0, "")
    assert nothing.err == "0 jobs changed, 0 metrics read\n"
    assert fake_slurm.calls() == []
    assert cli("submit", "--name", "demo", "--", "train.py").code == 0
    fake_slurm.set_state(1, "COMPLETED")
    assert cli("refresh").err == "1 jobs changed, 0 metrics read\n"
    fake_slurm.hide_from_sacct(1)
    assert cli.rows("SELECT state, exit_code, settled FROM jobs") == [("COMPLETED", 0, 1)]


def test_the_configuration_and_its_origins(cli):
    project = cli.folder / "orchestrator.toml"
    project.write_text('[profiles.fake]\npartition = "gpu"\nbinds = ["/data", "/scratch"]\n')
    shown = cli("config", "show", "--origin", ORCHESTRATOR_ACCOUNT="proj").out
    lines = dict(line.split("\t", 1) for line in shown.splitlines())
    assert lines["key"] == "value\torigin"
    assert lines["runs_dir"] == f"{cli.runs_dir}\tdefault"
    assert lines["profile"] == "fake\tdefault"
    assert lines["profiles.fake.partition"] == f"gpu\t{project}:2"
    assert lines["profiles.fake.binds"] == f"/data,/scratch\t{project}:3"
    assert lines["profiles.fake.account"] == "proj\tORCHESTRATOR_ACCOUNT"
    items = cli("--runs-dir", "/elsewhere", "config", "show", "--json").items
    (runs_dir,) = [item for item in items if item["key"] == "runs_dir"]
    assert runs_dir == {"key": "runs_dir", "value": "/elsewhere", "origin": "--runs-dir"}


def test_the_database_is_found_checked_and_copied(cli, tmp_path):
    assert cli("db", "path").out == f"{cli.database}\n"
    assert not cli.database.exists()
    made = cli("db", "upgrade")
    assert (made.code, made.out) == (0, "")
    assert made.err == f"Upgraded {cli.database} from schema nothing to {upgrades.SHIPPED.head}.\n"
    assert (
        cli("db", "upgrade").err
        == f"{cli.database} is up to date (schema {upgrades.SHIPPED.head}).\n"
    )
    whole = cli("db", "check")
    assert (whole.code, whole.out, whole.err) == (0, "problem\n", "The database is intact.\n")
    copy = tmp_path / "copy.db"
    copied = cli("db", "backup", copy)
    assert (copied.code, copied.err) == (0, f"Copied to {copy}.\n")
    assert copy.stat().st_mode & 0o777 == 0o600
    again = cli("db", "backup", copy)
    assert (again.code, again.err) == (6, f"Error: {copy} exists; name a new file.\n")


def test_doctor_with_and_without_slurm(cli, fake_slurm):
    good = cli("doctor", "--json")
    outcomes = {item["check"]: item["outcome"] for item in good.items}
    assert outcomes.pop("container") in ("ok", "warning")
    assert outcomes == dict.fromkeys(
        (
            *("orchestrator", "slurm commands", "slurmctld", "accounting"),
            *("runs_dir", "state_dir", "database"),
        ),
        "ok",
    )
    assert good.code == 0
    alone = cli("doctor", PATH="/usr/bin:/bin", CUDA_VISIBLE_DEVICES="")
    assert (alone.code, alone.err) == (0, "")
    assert (
        "scheduler\twarning\tjobs run on this machine: 1 at a time, no GPU; "
        "not on PATH: sbatch, squeue, sacct, scontrol, scancel, srun\t"
        "for a cluster: work on a login node, or load the module that provides Slurm\n"
    ) in alone.out
    bad = cli("doctor", PATH="/usr/bin:/bin", ORCHESTRATOR_SCHEDULER="slurm")
    assert (bad.code, bad.err) == (1, "Error: 1 of 6 checks failed\n")
    assert (
        "slurm commands\tbad\tnot on PATH: sbatch, squeue, sacct, scontrol, scancel, srun\t"
        "work on a login node, or load the module that provides Slurm\n"
    ) in bad.out


def test_submit_asks_slurm_for_an_estimate(cli, fake_slurm):
    done = cli("submit", "--name", "demo", "--test-only", "--", "train.py")
    assert done.code == 0
    assert re.fullmatch(
        rf"Slurm would start the job at {TIME} on n1 in partition gpu\n", done.out
    ), done.out
    assert (cli.rows(), cli.run_folders(), fake_slurm.jobs()) == ([], [], [])


@pytest.mark.parametrize(
    "argv",
    [
        ["submit", "--name", "x", "--dry-run", "--json", "--", "x.py"],
        ["submit", "--name", "x", "--test-only", "--format", "csv", "--", "x.py"],
        ["submit", "--name", "x", "--parsable", "--json", "--", "x.py"],
        ["show", "1", "--script", "--json"],
        ["show", "1", "--diff", "--format", "tsv"],
    ],
)
def test_format_of_commands_without_rows_is_refused(cli, fake_slurm, argv):
    done = cli(*argv)
    assert (done.code, done.out, fake_slurm.jobs()) == (2, "", [])
    (option,) = {"--dry-run", "--test-only", "--parsable", "--script", "--diff"} & set(argv)
    message = f"Error: {option} prints plain text: remove --format or --json\n"
    assert done.err.endswith(message)


@pytest.mark.parametrize(
    ("argv", "kept_out"),
    [
        (["--help"], {"alembic", "jinja2", "rich", "sqlalchemy", "submitit", "torch"}),
        (["status"], {"alembic", "jinja2", "rich", "submitit", "torch"}),
        (
            ["render", "--name", "x", "--", "x.py"],
            {"alembic", "rich", "sqlalchemy", "submitit", "torch"},
        ),
    ],
    ids=["help", "status", "render"],
)
def test_commands_load_little(cli, argv, kept_out):
    assert cli("db", "upgrade").code == 0
    done = cli(*argv, PYTHONPROFILEIMPORTTIME="1")
    assert done.code == 0
    loaded = {line.rpartition("|")[2].strip().split(".")[0] for line in done.err.splitlines()}
    assert "click" in loaded
    assert loaded & kept_out == set()


def test_a_script_is_utf8_whatever_the_locale(cli):
    argv = ("render", "--name", "x", "--comment", "naïve 日本語", "--", "x.py")
    done = cli(*argv, PYTHONIOENCODING="ascii")
    assert (done.code, done.err) == (0, "")
    assert "#SBATCH --comment='naïve 日本語'\n" in done.out
