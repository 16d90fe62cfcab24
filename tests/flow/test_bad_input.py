"""Bad input gets one clear error with the right exit code, and changes nothing."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import time

import pytest

from db import upgrades

GOOD = '[job]\nname = "demo"\n[launch]\nlauncher = "python"\nscript = "train.py"\n'
#: The end of each refusal of a spec.
NOTHING = "; nothing was submitted.\n"


@pytest.fixture
def unchanged(cli, fake_slurm):
    """Afterwards there is no row and no run folder, and sbatch was never called."""
    yield
    assert cli.rows() == []
    assert cli.run_folders() == []
    assert fake_slurm.calls("sbatch") == []


def test_all_problems_of_a_spec_at_once(cli, unchanged):
    spec = cli.spec(
        '[job]\nname = "demo"\ntime_limt = "10"\n'
        '[resources]\nnodes = -2\ngpus_per_node = "four"\n'
        '[container]\nruntime = "apptainer"\nimage = "/no/such.sif"\n'
        '[launch]\nscript = "train.py"\n'
    )
    for command in ("submit", "render"):
        done = cli(command, spec)
        assert (done.code, done.out) == (3, "")
        assert done.err == (
            f'Error: {spec}:3: job.time_limt: unknown key. Did you mean "time_limit"?\n'
            '    3 | time_limt = "10"\n'
            f"{spec}:5: resources.nodes: must be >= 1 (got -2)\n"
            "    5 | nodes = -2\n"
            f'{spec}:6: resources.gpus_per_node: must be an integer (got "four")\n'
            '    6 | gpus_per_node = "four"\n'
            f"{spec}:9: container.image: no such image: /no/such.sif\n"
            '    9 | image = "/no/such.sif"\n'
            f"4 problems{NOTHING}"
        )


def test_files_that_are_no_specs(cli, unchanged):
    (cli.folder / "latin.toml").write_bytes(b'[job]\nname = "\xe9"\n')
    cli.spec("[job\n", "broken.toml")
    (cli.folder / "folder.toml").mkdir()
    for name, message in {
        "none.toml": "none.toml: cannot be read: No such file or directory\n",
        "folder.toml": "folder.toml: cannot be read: not a regular file but a folder\n",
        "latin.toml": "latin.toml: not UTF-8 text (line 2)\n",
        "broken.toml": "broken.toml:1: not TOML: Expected ']' at the end of a table declaration\n"
        "    1 | [job\n",
    }.items():
        done = cli("submit", name)
        assert (done.code, done.out) == (3, "")
        assert done.err == f"Error: {message}1 problem{NOTHING}"


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (
            ("a.toml", "b.toml"),
            "at most one script or spec is allowed, got a.toml b.toml; write a program and its "
            "arguments after `--`",
        ),
        (("a.toml", "--"), "no program after `--`"),
        (("none.py",), "none.py: no such script in {folder}"),
        (("trian.py",), "trian.py: no such script in {folder}. Did you mean train.py?"),
        (("folder.py",), "folder.py is a folder, not a script"),
        (
            ("train.py", "--chdir", "folder.py"),
            "train.py: no such script in {folder}/folder.py, the folder of the job",
        ),
        (
            ("program", "--", "a b"),
            "program is a program, neither a script nor a spec: "
            "orchestrator submit -- ./program 'a b'",
        ),
        (
            ("train.py", "--lr", "1"),
            "No such option: --lr. Options of train.py follow `--`: train.py -- --lr",
        ),
        (
            (),
            "name a script or a spec: orchestrator submit train.py, orchestrator submit job.toml",
        ),
        (
            ("--save-spec", "job.yaml", "--", "true"),
            "--save-spec: name a file that ends in .toml (got job.yaml)",
        ),
        (
            ("--save-spec", "a\nb.toml", "--", "true"),
            "--save-spec: a\\nb.toml: no control character is allowed in its name",
        ),
        (
            ("--nodes", "two", "--", "x"),
            "Invalid value for '--nodes': 'two' is not a valid integer.",
        ),
    ],
)
def test_usage(cli, unchanged, argv, message):
    (cli.folder / "folder.py").mkdir()
    (cli.folder / "train.py").touch()
    (cli.folder / "program").touch(0o755)
    done = cli("submit", *argv)
    assert (done.code, done.out) == (2, "")
    message = message.format(folder=cli.folder)
    assert done.err == (
        "Usage: orchestrator submit [OPTIONS] [SCRIPT | SPEC] [-- COMMAND...]\n"
        "Try 'orchestrator submit --help' for help.\n"
        f"\nError: {message}\n"
    )


def test_a_script_beside_the_spec_but_not_in_the_jobs_folder(cli, unchanged):
    elsewhere = cli.folder / "elsewhere"
    elsewhere.mkdir()
    (cli.folder / "own.py").write_text("print('step 1 loss 2.5')\n")
    cli.spec('[launch]\nscript = "own.py"\n', "own.toml")
    done = cli("submit", "../own.toml", cwd=elsewhere)
    assert (done.code, done.out) == (3, "")
    assert done.err == (
        f"Error: ../own.toml:2: launch.script: own.py is not in {elsewhere}, where the job starts, "
        f"but beside the spec: cd .. first, or add --chdir ..\n"
        '    2 | script = "own.py"\n'
        f"1 problem{NOTHING}"
    )
    assert cli("render", "../own.toml", "--chdir", "..", cwd=elsewhere).code == 0


def test_the_command_line_is_checked_like_a_file(cli, unchanged):
    done = cli("submit", "--nodes", "-1", "--name", "a\udcff", "--set", "nodes", "--", "x.py")
    assert (done.code, done.out) == (3, "")
    assert done.err == (
        'Error: --set: write KEY=VALUE, such as resources.nodes=2 (got "nodes")\n'
        "--name: job.name: contains a byte that is not UTF-8, which is not allowed\n"
        "--nodes: resources.nodes: must be >= 1 (got -1)\n"
        f"3 problems{NOTHING}"
    )


def test_a_template_with_an_undefined_variable(cli, unchanged):
    template = cli.home / "templates" / "job.sbatch.j2"
    template.parent.mkdir()
    template.write_text(
        '{% extends "orchestrator/job.sbatch.j2" %}\n'
        "{% block environment %}\necho {{ no_such_name }}\n{% endblock %}\n"
    )
    done = cli("submit", cli.spec(GOOD), ORCHESTRATOR_TEMPLATES_DIR=str(template.parent))
    assert (done.code, done.out) == (3, "")
    assert done.err == (
        f"Error: {template}:3: 'no_such_name' is undefined. "
        "docs/howto/templates.md lists what a template may use.\n"
    )


def test_a_job_that_does_not_exist(cli, unchanged):
    for command, reference in (
        ("status", "7"),
        ("show", "@99999999999999999999999"),
        ("cancel", "no-such-name"),
    ):
        done = cli(command, reference)
        assert (done.code, done.out) == (4, "")
        assert done.err == (
            f"Error: job '{reference}' not found: `orchestrator status --all` lists all jobs\n"
        )


@pytest.mark.parametrize("argv", [("show", "\udc80"), ("wait", "--name", "\udc80")])
def test_an_argument_that_is_not_utf8(cli, unchanged, argv):
    done = cli(*argv)
    assert (done.code, done.out) == (2, "")
    assert done.err == "Error: '\\udc80' contains a byte that is not UTF-8\n"


def test_a_dotted_key_of_60_kb(cli, unchanged):
    spec = cli.spec("[job]\nname" + ".a" * 30_000 + " = 1\n")
    begun = time.monotonic()
    done = cli("submit", spec)
    assert time.monotonic() - begun < 30.0
    assert (done.code, done.out) == (3, "")
    # The line is shown, cut to 500 characters.
    shown = "    2 | " + ("name" + ".a" * 250)[:497] + "..."
    assert done.err == (
        f"Error: {spec}:2: a dotted key has more than 16 parts\n{shown}\n1 problem{NOTHING}"
    )


def test_an_integer_of_5000_digits(cli, unchanged):
    spec = cli.spec(f"[resources]\nnodes = {'9' * 5000}\n")
    done = cli("submit", spec)
    assert (done.code, done.out) == (3, "")
    shown = "    2 | " + ("nodes = " + "9" * 500)[:497] + "..."
    assert done.err == (
        f"Error: {spec}:2: resources.nodes: an integer must lie between -2^63 and 2^63 - 1\n"
        f"{shown}\n1 problem{NOTHING}"
    )


def test_figures_that_nothing_measures(cli):
    (cli.folder / "x.csv").write_text("gpus,throughput\n1,1e154\n2,1e308\n")
    done = cli("sweep", "report", "--from", "x.csv")
    assert (done.code, done.out) == (3, "")
    assert done.err == (
        "Error: x.csv:2: throughput: '1e154' is outside 1e-30 to 1e+30\n"
        "x.csv:3: throughput: '1e308' is outside 1e-30 to 1e+30\n"
        "2 problems; nothing was reported.\n"
    )


@pytest.mark.parametrize(
    "zone", ["a/" * 500 + "a", "../../etc/passwd", "/dev/zero", "Europe", "\x1b[31m"]
)
def test_invalid_time_zones(cli, unchanged, zone):
    spec = cli.spec(GOOD)
    done = cli("schedule", "add", "x", "--cron", "@daily", "--tz", zone, spec)
    assert (done.code, done.out) == (2, "")
    assert done.err == (
        f"Error: unknown time zone {zone[:64]!a}: write an IANA name such as Europe/Oslo or UTC\n"
    )


@pytest.mark.parametrize("columns", ["9" * 5000, "\u00b2", "-1", "x"])
def test_a_width_that_is_no_number(cli, columns):
    done = cli("status", "--format", "table", COLUMNS=columns)
    assert (done.code, done.err) == (0, "")


# --- text that would be more than text if it were not quoted ---

CANARY = "CANARY"
TEXTS = {
    "space": "x --partition=evil",
    "semicolon": f"x;touch {CANARY}",
    "substitution": f"$(touch {CANARY})",
    "backticks": f"`touch {CANARY}`",
    "apostrophe": f"a' ; touch {CANARY}; '",
    "quote": f'a" ; touch {CANARY}; "',
    "hash": "a#b #SBATCH --nodes=9",
    "braces": "{{ 7 * 7 }}${HOME}",
    "unicode": "naïve 日本語 🚀",
}
CONTROL = {
    "newline": "a\n#SBATCH --partition=evil\ntouch CANARY\n",
    "return": "a\r#SBATCH --partition=evil",
    "escape": "a\x1b[2Jb",
    "NUL": "a\x00b",
    "line separator": "a\u2028#SBATCH --partition=evil",
}
#: Values with a format: Slurm's names, sizes and lists.
FORMED = {
    "job": "name partition account qos reservation constraint time_limit mail_type mail_user "
    "dependency nodelist exclude",
    "resources": "mem tmp gres",
}
#: What takes any text.
FREE = {
    "job": "comment chdir output error",
    "environment": "venv secrets_file",
    "container": "image",
    "launch": "script",
}


def quoted(text):
    """Write a string as TOML does, less the escapes that JSON alone has."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def refused_keys(err):
    lines = [line for line in err.splitlines() if not line.startswith("    ")]
    return {line.split(": ")[1] for line in lines[:-1]}


@pytest.mark.parametrize("name", [*TEXTS, *CONTROL])
def test_hostile_text_is_refused_where_values_have_a_form(cli, unchanged, name):
    text = TEXTS.get(name) or CONTROL[name]
    tables = {table: dict.fromkeys(keys.split(), text) for table, keys in FORMED.items()}
    expected = {f"{table}.{key}" for table, keys in tables.items() for key in keys}
    tables.setdefault("launch", {}).update(script="train.py")
    if name in CONTROL:
        for table, keys in FREE.items():
            tables.setdefault(table, {}).update(dict.fromkeys(keys.split(), text))
            expected |= {f"{table}.{key}" for key in keys.split()}
        tables["container"]["runtime"] = "apptainer"
        tables["args"] = {"key": text}
        tables["sbatch"] = {"wckey": text}
        expected |= {"args.key", "sbatch.wckey"}
    lines = []
    for table, keys in tables.items():
        lines += [f"[{table}]", *(f"{key} = {quoted(value)}" for key, value in keys.items())]
    done = cli("submit", cli.spec("\n".join(lines)))
    assert (done.code, done.out) == (3, "")
    assert refused_keys(done.err.removeprefix("Error: ")) == expected
    assert done.err.replace("\n", "").isprintable()
    assert done.err.endswith(f"{len(expected)} problems{NOTHING}")


PROGRAM = """\
import json, os, sys
with open(sys.argv[-1], "w") as file:
    json.dump([sys.argv[:-1], os.environ["VARIABLE"], os.environ["SECRET_NAME"]], file)
"""
MODULE = '() {  printf "%s\\0" "$@" >> "$RECORDS/module"\n}'
APPTAINER = """\
#!/bin/bash
printf '%s\\0' "$@" > "$RECORDS/apptainer"
while [ "$1" != bash ]; do shift; done
exec "$@"
"""


@pytest.mark.parametrize(
    ("name", "container"),
    list(zip(TEXTS, itertools.cycle(["apptainer", "none"]), strict=False)),
)
def test_hostile_text_is_text_everywhere_else(cli, fake_slurm, tmp_path, name, container):
    """The script runs: nothing of the text does, and each program gets it as it is."""
    text = TEXTS[name]
    fake_slurm.run_jobs()
    records = tmp_path / "records"
    records.mkdir()
    commands = tmp_path / "commands"
    commands.mkdir()
    (commands / "apptainer").write_text(APPTAINER)
    (commands / "apptainer").chmod(0o755)
    folder = cli.folder / text
    (folder / "venv" / text / "bin").mkdir(parents=True)
    (folder / "venv" / text / "bin" / "activate").write_text("echo venv\n")
    (folder / text).mkdir()
    (folder / f"{text}.py").write_text(PROGRAM)
    (folder / f"{text}.sif").touch()
    (folder / "secrets").write_text(f"SECRET_NAME={text}\n")
    (folder / "secrets").chmod(0o600)
    spec = cli.spec(
        f"""\
[job]
name = "hostile"
comment = {quoted(text)}
chdir = {quoted(text)}
output = {quoted(f"{text}/%j-{text}.out")}
labels = [{quoted(f"key={text}")}]
[environment]
modules = [{quoted(text)}]
venv = {quoted(f"venv/{text}")}
secrets_file = "secrets"
variables = {{ VARIABLE = {quoted(text)} }}
[launch]
launcher = "python"
script = {quoted(f"{text}.py")}
[args]
one = {quoted(text)}
many = [{quoted(text)}, "--two", {quoted(str(records / "program"))}]
[sbatch]
wckey = {quoted(text)}
"""
        + (
            ""
            if container == "none"
            else f'[container]\nruntime = "apptainer"\nimage = {quoted(f"{text}.sif")}\n'
        )
    )
    done = cli(
        "submit",
        spec,
        "--wait",
        **{
            "BASH_FUNC_module%%": MODULE,
            "RECORDS": str(records),
            "PATH": f"{commands}{os.pathsep}{fake_slurm.environ['PATH']}",
        },
    )
    assert (done.code, done.out) == (0, "Submitted batch job 1 (@1, hostile)\n"), done.err
    assert list(tmp_path.rglob(CANARY)) == []
    job = fake_slurm.job(1)
    assert (job["partition"], job["nodes"], job["comment"]) == ("gpu", 1, text)
    assert job["workdir"] == str(folder)
    log = (folder / text / f"1-{text}.out").read_text().splitlines()
    assert log[1:] == ["venv"]
    words, variable, secret = json.loads((records / "program").read_text())
    assert words == [f"{text}.py", "--one", text, "--many", text, "--many", "--two", "--many"]
    assert (variable, secret) == (text, text)
    assert (records / "module").read_text().split("\0") == ["purge", "load", text, ""]
    if container == "apptainer":
        assert f"{text}.sif" in (records / "apptainer").read_text().split("\0")
    (item,) = cli("status", "--json").items
    assert item["labels"] == [f"key={text}"]
    assert item["stdout_path"] == str(folder / text / f"1-{text}.out")


# --- places that cannot be used ---


def test_a_database_from_a_newer_version(cli, fake_slurm):
    assert cli("db", "upgrade").code == 0
    connection = sqlite3.connect(cli.database)
    connection.execute("UPDATE alembic_version SET version_num = '9999'")
    connection.commit()
    connection.close()
    for argv in (("submit", cli.spec(GOOD)), ("status",), ("db", "upgrade")):
        done = cli(*argv)
        assert (done.code, done.out) == (6, "")
        assert done.err == (
            f"Error: {cli.database} was written by a newer version of orchestrator "
            f"(its schema is 9999, this version knows {upgrades.SHIPPED.head}). "
            "Use that version, or restore a backup made before the upgrade.\n"
        )
    assert fake_slurm.calls("sbatch") == []
    assert cli.run_folders() == []


def test_a_file_that_is_no_database(cli, unchanged):
    other = cli.home / "letter.txt"
    other.write_text("Dear Alice, " * 500)
    done = cli("submit", cli.spec(GOOD), ORCHESTRATOR_DATABASE=f"sqlite:///{other}")
    assert (done.code, done.out) == (1, "")
    assert done.err == (
        f"Error: {other} is not a database. Move it away, or set state_dir to another folder. "
        "If it was a database, its first page is damaged: `orchestrator db check` lists what is "
        "damaged; "
        "`orchestrator db restore BACKUP` replaces it with a backup (there is none beside it).\n"
    )


def without_rights():
    """Return what runs a command so that read-only folders are read-only for it."""
    if os.geteuid() != 0:
        return []
    if shutil.which("setpriv") is None:
        pytest.skip("root may write everywhere, and there is no setpriv to take that right away")
    return ["setpriv", "--bounding-set", "-dac_override"]


def test_read_only_folders(cli, unchanged):
    prefix = without_rights()
    spec = cli.spec(GOOD)
    cli.runs_dir.mkdir(mode=0o500)
    done = cli("submit", spec, prefix=prefix)
    assert (done.code, done.out) == (1, "")
    start = f"Error: cannot make the run folder {cli.runs_dir}/demo."
    assert done.err.startswith(start)
    assert done.err[len(start) + 12 :] == (
        ": Permission denied; nothing was submitted. "
        "Set runs_dir to a folder that you can write and that compute nodes see.\n"
    )
    cli.needs_file()
    locked = cli.home / "locked"
    locked.mkdir(mode=0o500)
    done = cli("submit", spec, prefix=prefix, ORCHESTRATOR_STATE_DIR=str(locked))
    assert (done.code, done.out) == (1, "")
    assert done.err == (
        f"Error: {locked}/orchestrator.db.lock cannot be used (Permission denied). "
        "Make it writable, or set state_dir to another folder.\n"
    )


def test_a_file_in_the_place_of_a_folder(cli, unchanged):
    (cli.home / "file").touch()
    runs = cli("submit", cli.spec(GOOD), ORCHESTRATOR_RUNS_DIR=str(cli.home / "file"))
    assert (runs.code, runs.out) == (1, "")
    assert runs.err.startswith(f"Error: cannot make the run folder {cli.home}/file/demo.")
    cli.needs_file()
    state = cli("submit", cli.spec(GOOD), ORCHESTRATOR_STATE_DIR=str(cli.home / "file"))
    assert (state.code, state.out) == (1, "")
    assert state.err == (
        f"Error: The folder {cli.home}/file cannot be created (Not a directory). "
        "Create it, or set state_dir.\n"
    )


FULL_DISK = """\
mount -t tmpfs -o size=512k,mode=700 full "$1" || exit 99
shift
"$@" db upgrade || exit 98
dd if=/dev/zero of="$FULL/ballast" bs=1k 2>/dev/null
"$@" submit "$SPEC"
code=$?
ls "$FULL"
rm "$FULL/ballast"
"$@" status --all
exit "$code"
"""


@pytest.mark.parametrize("setting", ["ORCHESTRATOR_RUNS_DIR", "ORCHESTRATOR_STATE_DIR"])
def test_a_full_disk(cli, fake_slurm, setting):
    """On a small tmpfs in a mount namespace of its own, which ends with the shell."""
    if setting == "ORCHESTRATOR_STATE_DIR":
        cli.needs_file()
    full = cli.home / "full"
    full.mkdir()
    mount = ["unshare", "--mount", "sh", "-c", FULL_DISK, "sh", str(full)]
    probe = ["unshare", "--mount", "mount", "-t", "tmpfs", "none", str(full)]
    if subprocess.run(probe, capture_output=True, check=False).returncode:
        pytest.skip("a full disk needs a small tmpfs, and only root may mount one")
    done = cli.run(
        [*mount, sys.executable, "-m", "orchestrator"],
        **{setting: str(full), "FULL": str(full), "SPEC": str(cli.spec(GOOD))},
    )
    listed, _, status = done.out.partition("job_id\t")
    assert done.code == 1
    assert "No space left on device" in done.err
    assert "Traceback" not in done.err
    assert status.count("\n") == 1
    assert "demo." not in listed
    assert cli.run_folders() == []
    assert fake_slurm.calls("sbatch") == []


READING = """\
mount -t tmpfs -o size=1m,mode=700 full "$1" || exit 99
shift
"$@" submit "$SPEC" || exit 98
case $HOW in
  full) dd if=/dev/zero of="$FULL/ballast" bs=1k 2>/dev/null ;;
  ro) mount -o remount,ro "$FULL" || exit 97 ;;
esac
for words in "status" "status --no-refresh" "show demo --json" "metrics demo" \
  "wait demo --timeout 0" "logs demo" "refresh" "cancel demo"; do
  "$@" $words >>"$HOME/out"
  echo "$words: $?"
done
"""


@pytest.mark.parametrize("how", ["full", "ro"])
def test_read_commands_work_on_a_full_disk(cli, fake_slurm, how):
    """Also the database file alone: it is not open, and SQLite's other files do not exist."""
    cli.needs_file()
    full = cli.home / "full"
    full.mkdir()
    probe = ["unshare", "--mount", "mount", "-t", "tmpfs", "none", str(full)]
    if subprocess.run(probe, capture_output=True, check=False).returncode:
        pytest.skip("a full disk needs a small tmpfs, and only root may mount one")
    (cli.folder / "train.py").touch()
    shell = ["unshare", "--mount", "sh", "-c", READING, "sh", str(full)]
    done = cli.run(
        [*shell, sys.executable, "-m", "orchestrator"],
        ORCHESTRATOR_STATE_DIR=str(full),
        TMPDIR=str(cli.home),
        FULL=str(full),
        HOW=how,
        SPEC=str(cli.spec(GOOD)),
    )
    _, *codes = done.out.splitlines()
    assert codes == [
        "status: 0",
        "status --no-refresh: 0",
        "show demo --json: 0",
        "metrics demo: 0",
        "wait demo --timeout 0: 124",
        "logs demo: 0",
        "refresh: 1",
        "cancel demo: 1",
    ], done.err
    # What fills the disk may be the job itself.
    assert len(fake_slurm.calls("scancel")) == 1
    assert "Cancelling, but the request cannot be stored: " in done.err
    printed = (cli.home / "out").read_text()
    assert printed.count("1\tdemo\tPENDING") == 2
    assert '"state": "PENDING"' in printed
    why = {"full": "No space left on device: ", "ro": f"{full}/orchestrator.db"}[how]
    assert done.err.count(f"Not refreshed: {why}") == 3
    assert "Traceback" not in done.err
    assert list(cli.home.glob("orchestrator-*")) in ([], [cli.runs_dir])


def test_a_folder_that_was_removed(cli):
    gone = cli.folder / "gone"
    gone.mkdir()
    done = cli("status", prefix=["sh", "-c", 'rmdir "$PWD" && exec "$@"', "sh"], cwd=gone)
    assert (done.code, done.out) == (1, "")
    assert done.err == (
        "Error: the current folder cannot be used (No such file or directory); cd to another one\n"
    )
