"""Output: only the output functions write to stdout and stderr."""

from __future__ import annotations

import ast
import io
import sys
from collections.abc import Mapping

import click
import pytest

from orchestrator.cli.output import terminal

#: Where bytes, or escape sequences of our own, are written to stdout.
UNESCAPED = {
    "cli/output/terminal.py",
    # the encoding of the streams
    "cli/__init__.py",
    # styles of a table, whose cells are escaped
    "cli/output/__init__.py",
    # logs: byte for byte in a pipe, by tailing.for_terminal() on a terminal
    "cli/logs.py",
    # textual draws on stderr; tests/unit/top/test_app.py has hostile text
    "cli/top.py",
    # what a command on another host prints, which is escaped there
    "cli/remote/on_host.py",
}
DOORS = {"unescaped", "bytes_stream", "buffer", "__stdout__", "__stderr__"}


def test_few_modules_write_unescaped(parsed_modules: Mapping[str, ast.Module]) -> None:
    unescaped = set()
    for path, module in parsed_modules.items():
        for node in ast.walk(module):
            match node:
                case ast.Attribute(attr=name) if name in DOORS:
                    unescaped.add(path.removeprefix("orchestrator/"))
                case ast.Call(
                    func=ast.Attribute(value=ast.Name(id="os"), attr="write"),
                    args=[ast.Constant(value=1 | 2), *_],
                ):
                    unescaped.add(path.removeprefix("orchestrator/"))
                case ast.Constant(value="/dev/tty" | "/dev/stdout" | "/dev/stderr"):
                    unescaped.add(path.removeprefix("orchestrator/"))
    assert unescaped <= UNESCAPED, "print through click.echo() or output.note()"


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("name", ["stdout", "stderr"])
def test_streams_escape_what_is_written(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    behind = Terminal()
    # To be put back in the end.
    monkeypatch.setattr(sys, "stdout", sys.stdout)
    monkeypatch.setattr(sys, "stderr", sys.stderr)
    monkeypatch.setattr(sys, name, behind)
    terminal.escape_streams()
    terminal.escape_streams()
    stream = getattr(sys, name)
    click.echo("echo \x1b[2J", err=name == "stderr")
    click.secho("secho \x9b", err=name == "stderr", fg="red")
    print("print \x1b]0;t\x07", file=stream)
    stream.writelines(["lines \u202e", "\tand\n"])
    click.UsageError("no \x1b[2J").show()
    expected = [
        r"echo \x1b[2J",
        r"\x1b[31msecho \x9b\x1b[0m",
        r"print \x1b]0;t\x07",
        "lines \\u202e\tand",
        *([r"Error: no \x1b[2J"] if name == "stderr" else []),
    ]
    assert behind.getvalue().splitlines() == expected


@pytest.mark.parametrize(("kind", "shown"), [(Terminal, r"\x1b[2J"), (io.StringIO, "\x1b[2J")])
def test_a_script_is_escaped_only_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, kind: type[io.StringIO], shown: str
) -> None:
    behind = kind()
    monkeypatch.setattr(sys, "stderr", sys.stderr)
    monkeypatch.setattr(sys, "stdout", behind)
    terminal.escape_streams()
    terminal.print_exactly("\x1b[2J\n")
    assert behind.getvalue() == f"{shown}\n"
