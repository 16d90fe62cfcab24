"""Who may import whom (contracts in pyproject.toml), and what a command loads."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator import cli

#: Only these start processes.
STARTERS = {"slurm", "submission", "local", "provenance"}

#: What starting a process looks like without `subprocess`, which a contract watches.
CALLS = {"fork", "forkpty", "popen", "posix_spawn", "posix_spawnp", "startfile", "system"}
PREFIXES = ("exec", "spawn")


def starts_process(name: str) -> bool:
    return name in CALLS or name.startswith(PREFIXES)


def test_contracts_hold(checkout: Path) -> None:
    program = "import sys; from importlinter import cli; sys.exit(cli.lint_imports_command())"
    done = subprocess.run(
        [sys.executable, "-c", program, "--no-cache"],
        cwd=checkout,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 broken" in done.stdout


def test_processes_are_started_in_few_places(checkout: Path) -> None:
    found = set()
    for path in [*checkout.glob("orchestrator/**/*.py"), *checkout.glob("db/**/*.py")]:
        module = path.relative_to(checkout).with_suffix("").parts
        if module[0] == "orchestrator" and module[1] in STARTERS:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Attribute(value=ast.Name(id="os"), attr=name) if starts_process(name):
                    found.add(f"{path.relative_to(checkout)}:{node.lineno}: os.{name}")
                case ast.ImportFrom(module="os", names=names):
                    found |= {
                        f"{path.relative_to(checkout)}:{node.lineno}: os.{alias.name}"
                        for alias in names
                        if starts_process(alias.name)
                    }
    assert found == set()


def loaded_by(arguments: list[str]) -> set[str]:
    """Return the top-level names of all modules that a command line has loaded."""
    program = f"""
import json, sys
sys.argv = ["orchestrator", *{arguments!r}]
from orchestrator import cli
try:
    cli.main()
except SystemExit as exc:
    assert not exc.code, exc.code
finally:
    print(json.dumps(sorted({{name.split(".")[0] for name in sys.modules}})), file=sys.stderr)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stderr.splitlines()[-1]))


def test_help_loads_click_alone() -> None:
    heavy = {"alembic", "jinja2", "pydantic", "rich", "sqlalchemy", "submitit", "torch"}
    assert loaded_by(["--help"]) & heavy == set()


@pytest.mark.parametrize("command", list(cli.COMMANDS))
def test_no_command_loads_torch(command: str) -> None:
    assert loaded_by([command, "--help"]) & {"torch", "trainers", "numpy"} == set()


def test_nothing_of_ours_loads_torch(checkout: Path) -> None:
    modules = sorted(
        ".".join(path.relative_to(checkout).with_suffix("").parts).removesuffix(".__init__")
        for package in ("orchestrator", "db")
        for path in checkout.glob(f"{package}/**/*.py")
        if "migrations" not in path.parts and path.name != "__main__.py"
    )
    program = f"""
import importlib, sys
for name in {modules!r}:
    importlib.import_module(name)
assert not {{"torch", "trainers"}} & set(sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
