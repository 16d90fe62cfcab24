"""An unexpected exception: one line, exit code 70, and a traceback in a private file."""

from __future__ import annotations

import re
import stat
import sys

PROGRAM = """\
import sys
from orchestrator import cli
def invoke(ctx):
    raise ZeroDivisionError("one\\x1b[31m\\ntwo")
cli.cli.invoke = invoke
sys.argv = ["orchestrator", "status"]
cli.main()
"""


def fail(cli, **environ):
    return cli.run([sys.executable, "-c", PROGRAM], **environ)


def test_one_line_and_a_file(cli):
    done = fail(cli)
    assert (done.code, done.out) == (70, "")
    match = re.fullmatch(
        r"Error: ZeroDivisionError: one\\x1b\[31m\\ntwo\. "
        r"This is a bug in orchestrator; its traceback is in (\S+)\n",
        done.err,
    )
    assert match, done.err
    (path,) = (cli.state_dir / "tracebacks").iterdir()
    assert match[1] == str(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert path.read_text().startswith("Traceback (most recent call last):\n")


def test_ten_are_kept(cli):
    folder = cli.state_dir / "tracebacks"
    folder.mkdir(parents=True, mode=0o700)
    for number in range(15):
        (folder / f"20260101T0000{number:02}-1.txt").touch()
    fail(cli)
    kept = sorted(path.name for path in folder.iterdir())
    assert len(kept) == 10
    assert kept[0] == "20260101T000006-1.txt"


def test_shown_on_request(cli):
    done = fail(cli, ORCHESTRATOR_TRACEBACK="1")
    assert done.code == 70
    assert done.err.startswith("Traceback (most recent call last):\n")
    assert done.err.endswith(
        "\nError: ZeroDivisionError: one\\x1b[31m\\ntwo. This is a bug in orchestrator.\n"
    )
    assert not (cli.state_dir / "tracebacks").exists()


def test_where_no_file_can_be_written(cli):
    cli.state_dir.parent.mkdir(parents=True)
    cli.state_dir.touch()
    done = fail(cli)
    assert (done.code, done.err) == (
        70,
        "Error: ZeroDivisionError: one\\x1b[31m\\ntwo. This is a bug in orchestrator; "
        "ORCHESTRATOR_TRACEBACK=1 shows the traceback.\n",
    )
