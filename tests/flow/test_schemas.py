"""The JSON of every command fits the schema that `orchestrator schema` prints for it."""

from __future__ import annotations

import json
import os
import pathlib

import jsonschema

from orchestrator.rows.contract import kinds

STUDY = """\
[job]
name = "study"
time_limit = "10"
[launch]
launcher = "python"
script = "train.py"
[args]
batch_size = 64
[sweep]
kind = "strong"
gpus = [1, 2]
gpus_per_node = 4
repeats = 2
"""
TRAIN = """\
import json, os, sys
gpus = int(os.environ.get("SLURM_GPUS_ON_NODE") or 1)
with open(os.environ["ORCHESTRATOR_METRICS_FILE"], "a") as file:
    for step in range(1, 7):
        for name, value in (("window_throughput", 1000.0 * gpus + step), ("val_accuracy", 0.5)):
            record = {"name": name, "value": value, "unit": "", "step": step, "epoch": 1}
            print(json.dumps({**record, "rank": 0, "world_size": gpus}), file=file)
print("step 10 loss 2.31")
if "--fail" in sys.argv:
    raise ValueError("no data")
"""
GRAPH = """\
[graph]
name = "nightly"
[graph.nodes.first]
spec = "job.toml"
"""
JOB = (
    '[job]\nname = "demo"\ntime_limit = "10"\n[launch]\nscript = "train.py"\nlauncher = "python"\n'
)


def test_all_kinds_fit_their_schemas(cli, fake_slurm):
    fake_slurm.run_jobs()
    (cli.folder / "train.py").write_text(TRAIN)
    (cli.folder / "orchestrator.toml").write_text("")
    study, job = cli.spec(STUDY, "study.toml"), cli.spec(JOB)
    graph = cli.spec(GRAPH, "graph.toml")
    log = cli.spec("step 10 loss 2.31\n", "train.log")
    seen: dict[str, list[str]] = {}
    schemas: dict[str, jsonschema.Draft202012Validator] = {}

    def check(*words: object, command: str, codes: tuple[int, ...] = (0,)) -> None:
        """Compare the JSON of a command with the schema that the program itself prints."""
        if command not in schemas:
            printed = json.loads(cli("schema", *command.split()).out)
            schemas[command] = jsonschema.Draft202012Validator(printed)
        done = cli(*command.split(), "--json", *words)
        assert done.code in codes, (command, done)
        envelope = json.loads(done.out)
        message = [error.message for error in schemas[command].iter_errors(envelope)]
        assert message == [], command
        assert envelope["items"], (command, done.err)
        seen.setdefault(envelope["kind"], []).append(command)

    check(study, "--dry-run", command="sweep submit")
    check(study, "--wait", command="sweep submit")
    check("submit", job, command="plan")
    check(job, "--wait", command="submit")
    check(job, "--wait", "--", "--fail", command="submit", codes=(1,))
    newest = cli("status", "-n", "1", "--json").items[0]["row"]
    passed, failed = f"@{newest - 1}", f"@{newest}"
    check(command="status")
    check(passed, command="wait")
    check(passed, command="show")
    check("study", command="show")
    check(passed, "--environment", command="show")
    check(failed, command="explain")
    check(passed, failed, command="diff", codes=(1,))
    check(passed, command="metrics")
    check(passed, "--stat", "all,p99.9", command="metrics")
    check(passed, failed, "--compare", command="metrics")
    check(passed, failed, "--compare", "--by", "step", command="metrics")
    check(passed, command="metrics reparse")
    check(passed, "--to", "tensorboard", command="metrics export")
    check(passed, "--grep", "loss", "-C", "1", command="logs")
    check(command="patterns list")
    check(log, command="patterns test")
    check("--by", "month", "--by", "label:team", command="usage")
    check("--disk", command="usage")
    check(command="sweep list")
    check("study", command="sweep status")
    check("study", "--points", command="sweep status")
    check("study", command="sweep results")
    check("study", command="sweep report")
    check("study", "--failed", command="sweep rerun")
    cli("baseline", "set", "before", "--sweep", "study")
    check(command="baseline show")
    check("before", command="baseline show")
    check("--sweep", "study", "--against", "before", command="baseline compare")
    check(graph, command="graph submit")
    check(command="graph list")
    check("nightly", command="graph status")
    check("nightly", job, "--cron", "@daily", command="schedule add")
    check("nightly", command="schedule run")
    check(command="schedule list")
    check("nightly", command="schedule show")
    check("nightly", command="schedule next")
    check("nightly", command="schedule history")
    for action in ("pause", "resume", "remove"):
        check("nightly", command=f"schedule {action}")
    check(failed, command="resubmit")
    fake_slurm.run_jobs(False)
    waiting = cli("submit", job, "--parsable").out.strip()
    for action in ("hold", "release", "requeue", "cancel"):
        check(waiting, command=action, codes=(0, 6))
    check("study", command="sweep cancel")
    check("nightly", command="graph cancel")
    cli("tick")
    check("--status", command="serve", codes=(0, 1))
    check(command="config show")
    check(command="config fabrics")
    check("olivia", command="config fabrics")
    check(command="doctor", codes=(0, 1))
    cli("trust", ".")
    check("--list", command="trust")
    check(command="schema")
    if not cli.url:
        cli("db", "backup")
        check(command="db restore")
    unseen = set(kinds.KINDS) - set(seen)
    # Tests of images, nodes, notices, damaged databases and clean-up have rows of these
    # (command_line.Done.items).
    assert unseen == {"host_jobs", "images", "nodes", "notices", "problems", "pruned"}, (
        os.linesep.join(map(str, seen.items()))
    )


def test_a_command_without_json_has_no_schema(cli):
    done = cli("schema", "render")
    assert (done.code, done.out) == (2, "")
    assert done.err.splitlines()[-1] == (
        "Error: render prints no JSON; `orchestrator schema` lists the commands that do"
    )
    done = cli("schema", "sweep", "nothing")
    assert done.code == 2
    assert done.err.splitlines()[-1] == (
        "Error: there is no command 'sweep nothing'; `orchestrator schema` lists them"
    )


def test_lines_of_logs_as_json(cli, fake_slurm):
    fake_slurm.run_jobs()
    (cli.folder / "train.py").write_text('print("a\\nloss 1\\nb\\nloss \\x1b[0m2\\rx")\n')
    assert cli("submit", cli.spec(JOB), "--wait").code == 0
    items = cli("logs", "demo", "--grep", "loss", "-C", "1", "--json").items
    path = cli("logs", "demo", "--path").out.strip()
    lines = [(item["line"], item["is_match"], item["text"]) for item in items]
    assert lines == [
        *((2, False, "a"), (3, True, "loss 1"), (4, False, "b")),
        (5, True, "loss \x1b[0m2"),
    ]
    assert {(item["job_id"], item["row"], item["path"]) for item in items} == {("1", 1, path)}
    done = cli("logs", "demo", "--grep", "nothing", "--json")
    assert (done.code, done.items) == (1, [])
    items = cli("logs", "demo", "--json").items
    assert [item["line"] for item in items] == [1, 2, 3, 4, 5]
    assert [item["text"] for item in items[1:]] == ["a", "loss 1", "b", "loss \x1b[0m2\rx"]
    assert {item["is_match"] for item in items} == {True}
    assert cli("logs", "demo", "--json", "-n", "2").items == items[-2:]
    pathlib.Path(path).unlink()
    done = cli("logs", "demo", "--json")
    assert (done.code, done.items, done.err) == (0, [], f"the log {path} was deleted\n")
    for option, reason in (
        ("--follow", "--follow prints lines as they arrive: remove --json and --format"),
        ("--path", "--json includes the path of each line: remove --path"),
    ):
        done = cli("logs", "demo", "--json", option)
        assert (done.code, done.err.splitlines()[-1]) == (2, f"Error: {reason}")
