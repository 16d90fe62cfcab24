"""Text written by others, in every field of every command: on a terminal, in a pipe, in files.

Others can write logs, Slurm's output, file names and arguments. Every text column of the database
is filled with the same, because a field may be printed where no test checks.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from orchestrator import cli as whole
from tests.flow import command_line, web_server
from tests.flow.conftest import FakeSlurm

#: Clear the screen, fill the clipboard, a link, a title, a device string: whole, and one inside
#: another, so that what is left when the inner one is removed is one too.
SEQUENCES = (
    "\x1b[2J\x1b[8m\x1b[38;5;199m\x1b]52;c;ZXZpbA==\x07\x1b]8;;http://evil/\x1b\\x\x1b]8;;\x1b\\"
    "\x1b]0;owned\x07\x1bP1$r\x1b\\\x1b[\x1b[38;5;199m2J\x1b]5\x1b[8m2;c;ZXZpbA==\x07\x1bc"
)
#: C1, DEL, a bell; then what reorders, hides and ends lines.
CHARACTERS = "\x9b31m\x9d0;t\x9c\x85\x7f\x07\b\b\u202e\u2066\u200b\u2028\u2029\ufeff\U000e0041"
MARKUP = "[red]x[/red][link=http://evil]l[/link]<b>&"
#: On one line, as in Slurm's output or in a log.
HOSTILE = f"EVIL{SEQUENCES}{CHARACTERS}{MARKUP}"
#: As a field of the database or a file's name.
WHOLE = f"{HOSTILE}\r over\n\tunder"

#: The styles of tables and heads of log lines, and nothing else.
STYLE = re.compile(r"\x1b\[(?:0|1|2|3[1-6]|90|1;31|1;35)m")
ACTING = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f"
    r"\ud800-\udfff\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)

#: Columns of the database that are read back, by name: their text is ours.
OURS = {
    "state",
    "kind",
    "token",
    "cluster",
    "scheduler",
    "key",
    "cron",
    "tz",
    "catchup",
    "overlap",
    "action",
    "shape",
    "identity",
    "device",
    "inode",
    "carry",
    "cause",
    "given_up",
    "verdict",
    "channel",
    "source_hash",
    "value",
    "version_num",
}
#: JSON: the texts in it are replaced where the whole may be any text.
JSON = {"labels", "alerts", "argv", "verdict_detail", "document", "placement"}
#: Read back as a whole: specs, environments, numbers that were measured.
DOCUMENTS = {
    *("spec", "settings", "changes", "provenance", "environment", "after", "measurements"),
    *("figures", "job_id", "raw_job_id", "array_job_id"),
}
#: table -> columns with names or paths that the test uses
KEPT = {
    "leases": {"name", "host", "boot_id"},
    "jobs": {"submitter_host", "submitter_boot_id", "stdout_path", "tracked_name"},
    "log_cursors": {"path"},
    "graph_nodes": {"name"},
}
TRAIN = f"""\
import json, os, sys
text = {HOSTILE!r}
for step in range(4):
    print(f"Epoch {{step}} {{text}} loss: 0.{{step}} step: {{step}}", flush=True)
with open(os.environ["ORCHESTRATOR_METRICS_FILE"], "a") as file:
    for step in range(4):
        record = {{"name": "window_throughput", "value": 100.0 + step, "step": step,
                  "unit": "samples/s", "rank": 0, "world_size": 1}}
        print(json.dumps(record), file=file)
        print(json.dumps({{**record, "name": "loss" + text, "unit": text}}), file=file)
sys.stdout.buffer.write(b"bytes \\x9b31m \\xff\\n")
sys.stdout.flush()
if os.environ.get("SLURM_ARRAY_TASK_ID") != "0":
    raise RuntimeError("CUDA out of memory" + text)
"""
JOB = """\
[job]
name = "{name}"
time_limit = "5"
[launch]
launcher = "python"
script = "train.py"
"""
SWEEP = JOB.format(name="study") + '[sweep]\nkind = "grid"\nrepeats = 2\naxes.args.size = [8]\n'
GRAPH = '[graph]\nname = "g"\n[graph.nodes.a]\nspec = "other.toml"\n'
CONFIG = """\
[notices.bad]
kind = "command"
command = ["/bin/sh", "-c", "cat {text} >&2; exit 1"]
"""

#: On a terminal the first is a table.
ROWS = [[], *(["--format", form] for form in ("tsv", "csv", "json", "jsonl"))]
#: For commands whose rows the same function prints as those of `status`, which has all formats.
HEAD = [[], ["--format", "json"]]

#: Commands that print what is stored: with these words, each with these formats.
SHOWN: dict[str, list[list[str]]] = {
    "status": [["status", "--no-refresh", *extra] for extra in ROWS]
    + [["status", "@1", "@2", "--no-refresh"], ["status", "-r", "--no-refresh"]],
    "show": [["show", f"@{row}", "--no-refresh", *extra] for row in (1, 2, 4) for extra in ROWS]
    + [["show", "@1", "--no-refresh", option] for option in ("--script", "--spec", "--diff")]
    + [["show", "@1", "--no-refresh", "--environment", *extra] for extra in ROWS]
    + [["show", "@1", "--no-refresh", "--code"]],
    "diff": [["diff", "@1", "@4", "--no-refresh", *extra] for extra in ROWS],
    "logs": [
        ["logs", "@1"],
        ["logs", "@1", "@2"],
        ["logs", "@1", "-f"],
        ["logs", "@1", "@2", "-f"],
        ["logs", "@1", "@4", "--path"],
        ["logs", "@1", "@2", "--grep", "EVIL", "-C", "1"],
        ["logs", "@1", "--grep", "EVIL", "--path"],
        ["logs", "@4"],
    ],
    "metrics": [["metrics", "@1", *extra] for extra in ROWS]
    + [["metrics", "@1", "--stat", "all", *extra] for extra in HEAD]
    + [["metrics", "@1", "@2", "--compare", *extra] for extra in HEAD],
    "metrics reparse": [["metrics", "reparse", "@1", *extra] for extra in HEAD],
    "metrics export": [
        ["metrics", "export", "@1", "--to", "tensorboard", "-o", "{home}/board", *extra]
        for extra in HEAD
    ]
    + [["metrics", "export", WHOLE, "--to", "mlflow", "--uri", WHOLE]],
    "patterns list": [["patterns", "list", *extra] for extra in ROWS],
    "patterns test": [["patterns", "test", "{log}", *extra] for extra in ROWS]
    + [["patterns", "test", "{strange}"]],
    "explain": [["explain", "@1", "@2", "--no-refresh", *extra] for extra in ROWS]
    + [["explain", "--log", "{log}", *extra] for extra in ROWS],
    "trust": [["trust", "--list", *extra] for extra in HEAD] + [["trust", "EVIL\udc9b31m"]],
    "db restore": [["db", "restore", *extra] for extra in HEAD]
    + [["db", "restore", "EVIL\udc9b31m"]],
    "image list": [["image", "list", *extra] for extra in HEAD],
    "nodes": [["nodes", "--all", *extra] for extra in ROWS],
    "usage": [["usage", "--by", "name", *extra] for extra in HEAD]
    + [["usage", "--disk", *extra] for extra in HEAD],
    "prune": [["prune", "--rows", "--older-than", "0s", *extra] for extra in HEAD],
    "sweep list": [["sweep", "list", *extra] for extra in HEAD],
    "sweep status": [["sweep", "status", "@1", "--no-refresh", *extra] for extra in HEAD]
    + [["sweep", "status", "@1", "--no-refresh", "--points", *extra] for extra in HEAD],
    "sweep results": [
        ["sweep", "results", "@1", "--no-refresh", *extra]
        for extra in [*ROWS, ["--format", "markdown"], ["--each", "--plot", "{home}/x.svg"]]
    ],
    "sweep report": [
        ["sweep", "report", "@1", "--no-refresh", "--title", WHOLE, *extra]
        for extra in [*ROWS, ["--format", "markdown"], ["--format", "latex"]]
    ]
    + [["sweep", "report", "@1", "--no-refresh", "--title", WHOLE, "--to", "{home}/report"]],
    "schedule list": [["schedule", "list", *extra] for extra in HEAD],
    "schedule show": [["schedule", "show", WHOLE + "1", *extra] for extra in HEAD],
    "schedule next": [["schedule", "next", WHOLE + "1", *extra] for extra in HEAD],
    "schedule history": [["schedule", "history", WHOLE + "1", *extra] for extra in HEAD],
    "graph list": [["graph", "list", *extra] for extra in HEAD],
    "graph status": [["graph", "status", "@1", "--no-refresh", *extra] for extra in HEAD],
    "baseline show": [["baseline", "show", *extra] for extra in HEAD]
    + [["baseline", "show", WHOLE + "1", *extra] for extra in HEAD],
    "baseline compare": [
        ["baseline", "compare", "--sweep", "@1", "--no-refresh", "--against", WHOLE + "1", *extra]
        for extra in HEAD
    ],
    "notices list": [["notices", "list", *extra] for extra in HEAD],
    "serve": [["serve", "--status", *extra] for extra in HEAD],
    # Its pages: test_no_page_contains_markup_of_others.
    "top": [["top", WHOLE]],
    "web": [["web", "--socket", "/dev/null/EVIL"]],
    "web export": [["web", "export", "{home}/EVIL", "@1"], ["web", "export", "{home}/x", WHOLE]],
    "config fabrics": [["config", "fabrics"], ["config", "fabrics", WHOLE]],
    "config show": [["config", "show", "--origin", *extra] for extra in HEAD],
    "db check": [["db", "check", *extra] for extra in HEAD],
    "db path": [["db", "path"]],
    "completion": [["completion", "bash"]],
    "render": [["render", "{spec}"]],
    "sweep render": [
        ["sweep", "render", "{sweep}"],
        ["sweep", "render", "{sweep}", "--point", "1"],
    ],
}
#: Commands that do something, and what goes wrong: last, in this order.
DONE: dict[str, list[list[str]]] = {
    "agent": [["agent", WHOLE]],
    "apply": [["apply", WHOLE]],
    "connect": [["connect", WHOLE]],
    "mcp": [["mcp", WHOLE]],
    "plan": [["plan", WHOLE], ["plan", "submit", "{spec}", "--set", f"job.name={WHOLE}"]],
    "schema": [["schema", WHOLE]],
    "setup": [["setup", WHOLE]],
    "doctor": [["doctor", *extra] for extra in HEAD],
    "config init": [["config", "init", "--print"]],
    "notices retry": [["notices", "retry"]],
    "notices test": [["notices", "test", "bad"], ["notices", "test", WHOLE]],
    "tick": [["tick"]],
    "refresh": [["refresh"]],
    "wait": [["wait", "@1", *extra] for extra in HEAD],
    "hold": [["hold", "@4"], ["hold", WHOLE]],
    "release": [["release", "@4"]],
    "requeue": [["requeue", "@1"]],
    "cancel": [["cancel", "@4"], ["cancel", "--name", WHOLE]],
    "track": [["track", "999"], ["track", WHOLE], ["track", "1", "--name", WHOLE]],
    "submit": [
        ["submit", "{spec}", "--dry-run"],
        ["submit", "{spec}", "--test-only"],
        ["submit", "{spec}"],
        ["submit", "{spec}", "--set", f"job.name={WHOLE}"],
        ["submit", "--like", "@1", WHOLE],
        ["submit", "--like", "@1", "--", WHOLE],
        ["submit", "{spec}", f"--{WHOLE}"],
        ["submit", f"{WHOLE}.toml"],
        ["submit", "{wrong}"],
    ],
    "image build": [["image", "build", f"{WHOLE}.def"]],
    "image remove": [["image", "remove", WHOLE]],
    "checkout": [["checkout", "@1", "{home}/again"]],
    "resubmit": [["resubmit", "@1"], ["resubmit", "@2", "--fresh"]],
    "sweep submit": [["sweep", "submit", "{sweep}", "--dry-run"], ["sweep", "submit", WHOLE]],
    "sweep resume": [["sweep", "resume", "@1"]],
    "sweep rerun": [["sweep", "rerun", "@1", "--failed"]],
    "sweep add": [["sweep", "add", "@1", "{sweep}", "--dry-run"]],
    "sweep cancel": [["sweep", "cancel", "@1"]],
    "schedule add": [["schedule", "add", WHOLE, "--cron", WHOLE, "{spec}"]],
    "schedule run": [["schedule", "run", WHOLE + "1"]],
    "schedule pause": [["schedule", "pause", WHOLE + "1"]],
    "schedule resume": [["schedule", "resume", WHOLE + "1"]],
    "schedule remove": [["schedule", "remove", WHOLE + "1"]],
    "schedule install": [["schedule", "install", "--cron"]],
    "graph submit": [["graph", "submit", "{graph}"], ["graph", "submit", WHOLE]],
    "graph cancel": [["graph", "cancel", "@1"]],
    "baseline set": [["baseline", "set", WHOLE, "--sweep", "@1"]],
    "db upgrade": [["db", "upgrade"]],
    "db backup": [["db", "backup", "{home}/" + WHOLE.replace("/", "|")]],
    "db copy": [["db", "copy", "--to", "sqlite:///{home}/copy.db"]],
    "": [
        [WHOLE],
        ["status", "-t", WHOLE],
        ["status", f"--{WHOLE}"],
        ["show", WHOLE],
        # Bytes that are not UTF-8.
        ["submit", "EVIL\udc9b31m.toml"],
        ["sweep", "report", "--from", "EVIL\udc9b31m.csv"],
    ],
}
#: Output that is written unchanged to a pipe: bytes of a log, or text for programs.
EXACT = {"logs", "render", "sweep render", "completion", "schedule install"}
#: Commands that must have shown the text: else the test has seen nothing of them.
SEEN = {
    *(
        "status",
        "show",
        "diff",
        "checkout",
        "logs",
        "metrics",
        "patterns test",
        "explain",
        "sweep list",
    ),
    *(
        "sweep status",
        "sweep results",
        "sweep report",
        "schedule list",
        "schedule show",
        "schedule history",
    ),
    *("graph list", "graph status", "baseline show", "baseline compare", "notices list", "serve"),
    *("notices test", "hold", "cancel", "track", "submit", "resubmit", "sweep submit", "usage"),
    *("schedule pause", "graph submit", "tick", "doctor", ""),
}


def commands(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield the names of all commands."""
    if not isinstance(command, click.Group) or command.invoke_without_command:
        yield " ".join(path)
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            result = command.get_command(context, name)
            assert result is not None
            yield from commands(result, (*path, name))


def test_every_command_is_tried() -> None:
    assert sorted(commands(whole.cli)) == sorted(({*SHOWN} | {*DONE}) - {""})


def _hostile(value: object) -> object:
    """Return JSON with each text in it made hostile."""
    if isinstance(value, str):
        return f"k={WHOLE}" if "=" in value else WHOLE
    if isinstance(value, list):
        return [_hostile(item) for item in value] or [f"k={WHOLE}"]
    if isinstance(value, dict):
        return {key: _hostile(item) for key, item in value.items()}
    return value


def poison(database: Path) -> None:
    """Put hostile text into every column that can hold some."""
    with contextlib.closing(sqlite3.connect(database)) as connection, connection:
        names = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        for (table,) in names:
            for _, column, kind, *_ in connection.execute(f"PRAGMA table_info({table})").fetchall():
                if kind != "TEXT" or column in OURS | DOCUMENTS | KEPT.get(table, set()):
                    continue
                if column in JSON:
                    for row, text in connection.execute(
                        f"SELECT rowid, {column} FROM {table} WHERE {column} IS NOT NULL"
                    ).fetchall():
                        text = json.dumps(_hostile(json.loads(text)))
                        connection.execute(
                            f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (text, row)
                        )
                    continue
                # The number keeps names apart where they must differ.
                connection.execute(f"UPDATE {table} SET {column} = ? || rowid", (WHOLE,))
        for row, text in connection.execute("SELECT rowid, provenance FROM submissions").fetchall():
            stored = json.loads(text) | {"git_diff": WHOLE, "git_commit": WHOLE, "spec": WHOLE}
            stored["git_dirty"] = True
            connection.execute(
                "UPDATE submissions SET provenance = ? WHERE rowid = ?", (json.dumps(stored), row)
            )
        # Of a job of which nothing is to be read.
        connection.execute("UPDATE jobs SET stdout_path = ? WHERE row = 4", (WHOLE,))


@pytest.fixture
def world(cli: command_line.CommandLine, fake_slurm: FakeSlurm) -> dict[str, str]:
    """Jobs, a sweep, a schedule, a graph, a baseline and notices, all with hostile text."""
    cli.needs_file()
    folder = cli.home / ".config" / "orchestrator"
    folder.mkdir(parents=True)
    text = cli.folder / "text"
    text.write_text(HOSTILE)
    (folder / "config.toml").write_text(CONFIG.format(text=text))
    (cli.folder / "train.py").write_text(TRAIN)
    spec = cli.spec(JOB.format(name="one"))
    sweep = cli.spec(SWEEP, "sweep.toml")
    other = JOB.format(name="other").replace('script = "train.py"', 'command = "true"')
    cli.spec(other, "other.toml")
    wrong = cli.spec(JOB.format(name="x"), f"{WHOLE.replace('/', '|')}.toml")
    wrong.write_text(f'[job]\nname = "x"\n"{HOSTILE}" = 1\n'.replace("\\", ""), errors="replace")
    graph = cli.spec(GRAPH, "graph.toml")
    log = cli.folder / f"log{WHOLE.replace('/', '|')}"
    log.write_bytes(
        f"Epoch 1 {HOSTILE} loss: 0.5\nTraceback (most recent call last):\n"
        f'  File "{HOSTILE}.py", line 1, in <module>\n    {HOSTILE}\n'
        f"RuntimeError: CUDA out of memory. {HOSTILE}\n".encode()
        + b"raw \x9b31m loss: 1.5\n"
    )
    strange = cli.folder / "strange"
    strange.write_text(f"{HOSTILE} loss~~1.5~~2.5\n")
    fake_slurm.run_jobs()
    assert cli("tick").code == 0, "the first pass sends no notifications"
    # Row 1; rows 2 and 3; row 4.
    assert cli("submit", spec, "--wait").code == 1
    assert cli("sweep", "submit", sweep, "--yes", "--wait").code == 1
    fake_slurm.run_jobs(False)
    assert cli("submit", spec).code == 0
    waiting = fake_slurm.jobs()[-1]["job_id"]
    fake_slurm.set_state(waiting, "PENDING", reason=HOSTILE)
    fake_slurm.set_state(1, "FAILED", exit="1:0", reason=HOSTILE, node_list=HOSTILE)
    assert cli("graph", "submit", graph).code == 0
    assert cli("baseline", "set", "base", "--sweep", "study").code == 0
    assert cli("schedule", "add", "s", "--cron", "@yearly", "--tz", "UTC", spec).code == 0
    assert cli("schedule", "run", "s").code == 0
    cli("refresh")
    assert "not sent" in cli("tick").err
    for row in ("@1", "@2"):
        assert cli("metrics", row).code == 0
    poison(cli.database)
    health = cli.state_dir / "controller.json"
    newest = json.loads(health.read_text()) | {"steps": {"notices": WHOLE}, "host": WHOLE}
    health.write_text(json.dumps(newest | {"failing_since": newest["last_pass_at"]}))
    words = {
        "waiting": waiting,
        "log": log,
        "strange": strange,
        "spec": spec,
        "sweep": sweep,
        "graph": graph,
    }
    return {**{key: str(path) for key, path in words.items()}, "wrong": str(wrong)}


def misfit(data: bytes, *, is_terminal: bool, is_log: bool = False) -> str:
    """Return what acts on a terminal in what was written; "" where nothing does."""
    text = data.decode("utf-8", "surrogateescape")
    if is_terminal:
        # A terminal writes each line end so; a progress bar of a log goes back over its own line.
        text = STYLE.sub("", text).replace("\r\n", "\n")
        text = text.replace("\r", "") if is_log else text
    match = ACTING.search(text)
    return repr(text[max(0, match.start() - 60) : match.end() + 20]) if match else ""


def test_no_command_prints_control_characters(
    cli: command_line.CommandLine, fake_slurm: FakeSlurm, world: dict[str, str]
) -> None:
    world["home"] = str(cli.home)
    kept = cli.home / "kept.db"
    shutil.copyfile(cli.database, kept)
    problems = []
    seen = set()

    def tried(name: str, argv: list[str]) -> None:
        argv = [word.format(**world) if word.startswith("{") else word for word in argv]
        argv = [word.format(**world) if word.startswith("sqlite:") else word for word in argv]
        code, out, err = cli.on_terminal(*argv, COLUMNS="300")
        for data in (out, err):
            if result := misfit(data, is_terminal=True, is_log=name == "logs"):
                problems.append(f"terminal: {name} {argv[:4]!a} ({code}): {result}")
            if b"EVIL" in data:
                seen.add(name)
        if b"Traceback (most recent" in err:
            problems.append(f"traceback: {name} {argv[:4]!a}: {err.decode()[-600:]}")
        if "--format" in argv and "csv" not in argv:
            return
        piped = cli(*argv)
        for data in (piped.out, piped.err):
            is_exact = name in EXACT or argv[-1] in ("--dry-run", "--script", "--diff")
            if data is piped.out and is_exact:
                continue
            if result := misfit(data.encode("utf-8", "surrogateescape"), is_terminal=False):
                problems.append(f"pipe: {name} {argv[:4]!a}: {result}")

    for name, calls in SHOWN.items():
        for argv in calls:
            tried(name, argv)
    for name, calls in DONE.items():
        shutil.copyfile(kept, cli.database)
        for argv in calls:
            if name == "tick":
                # Its users see the message.
                fake_slurm.set_state(world["waiting"], "FAILED", exit="1:0", reason=HOSTILE)
            fake_slurm.fail("scancel", stderr=f"scancel: error: {HOSTILE}", times=1)
            fake_slurm.fail("sbatch", stderr=f"sbatch: error: {HOSTILE}", times=1)
            fake_slurm.configure(SLURM_VERSION=f"24.11.5{HOSTILE}", JobRequeue=HOSTILE)
            tried(name, argv)
            fake_slurm.heal()
    assert not problems, f"{len(problems)} problems:\n" + "\n".join(problems[:40])
    assert seen >= SEEN, sorted(SEEN - seen)


MARKUP_OF_OTHERS = re.compile(r".{60}(?:<b>[&<\"]|\[link=http://evil\]l<).{9}")
#: Pages of the web server, and whether they show the text.
PAGES = {
    **dict.fromkeys(("/?age=all", "/?age=all&fold=0", "/jobs/1", "/jobs/2", "/jobs/4"), True),
    **dict.fromkeys(("/jobs/1?fragment=1", "/jobs/2/log", "/jobs/2/log?find=EVIL"), True),
    **dict.fromkeys(("/compare?job=2&job=3", "/sweeps", "/sweeps/1", "/graphs", "/graphs/1"), True),
    **dict.fromkeys(("/schedules", "/schedules/1", "/nodes?age=365d", "/controller"), True),
    **dict.fromkeys(("/baselines",), True),
    **dict.fromkeys(("/actions/cancel?job=1&job=2", "/sweeps/1/rerun?point=1"), True),
    "/curves?job=2&name=loss": True,
    "/jobs/2/log?find=EVIL%1b%5b%3cb%3e%22%27": False,
    "/?q=%3Cb%3E%22%27%1b%202J&label=%3Cb%3E&sweep=%22%3E%3Cb%3E": True,
}


def test_no_page_contains_markup_of_others(
    cli: command_line.CommandLine, world: dict[str, str], tmp_path: Path
) -> None:
    path = tmp_path / "run" / "web.sock"
    with web_server.started(cli, "--socket", path, "--allow-actions") as server:
        problems = []
        for url, shows_text in PAGES.items():
            answer = server.get(url)
            data = answer.text.encode()
            if answer.status != 200:
                problems.append(f"{url}: {answer.status} {answer.text[-300:]}")
            if result := misfit(data, is_terminal=False):
                problems.append(f"{url}: {result}")
            if markup := MARKUP_OF_OTHERS.search(answer.text):
                problems.append(f"{url}: markup {markup[0]!a}")
            if shows_text and "EVIL" not in answer.text and "&lt;b&gt;" not in answer.text:
                problems.append(f"{url}: does not show the text")
        exported = cli("web", "export", cli.home / "pages", "@1", "@2", "@3", "@4", "--sweep", "@1")
        assert exported.code == 0, exported.err
        for file in (cli.home / "pages").rglob("*.html"):
            if result := misfit(file.read_bytes(), is_terminal=False):
                problems.append(f"{file.name}: {result}")
            if markup := MARKUP_OF_OTHERS.search(file.read_text()):
                problems.append(f"{file.name}: markup {markup[0]!a}")
        curves = server.get("/curves.json?job=2&job=3&job=1")
        if result := misfit(curves.text.encode(), is_terminal=False):
            problems.append(f"curves: {result}")
        assert not problems, "\n".join(problems)
