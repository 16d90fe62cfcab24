"""Modules that a command imports."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.flow import command_line
from tests.flow.conftest import FakeSlurm


def run_python(program: str) -> str:
    """Return what the program prints."""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_help_loads_click_alone() -> None:
    program = """
import json, sys
from orchestrator import cli
cli.cli(["--help"], standalone_mode=False)
print(json.dumps(sorted({name.split(".")[0] for name in sys.modules})))
"""
    loaded = set(json.loads(run_python(program).splitlines()[-1]))
    assert "click" in loaded
    assert not loaded & {"alembic", "jinja2", "pydantic", "rich", "sqlalchemy", "submitit", "torch"}


def test_no_module_loads_numpy_or_torch(checkout: Path) -> None:
    modules = sorted(
        ".".join(path.relative_to(checkout).with_suffix("").parts).removesuffix(".__init__")
        for package in ("orchestrator", "db")
        for path in checkout.glob(f"{package}/**/*.py")
        if "migrations" not in path.parts and path.name != "__main__.py"
    )
    run_python(f"""
import importlib, sys
for name in {modules!r}:
    importlib.import_module(name)
assert not {{"matplotlib", "numpy", "torch", "trainers"}} & set(sys.modules)
""")


#: Runs a command, and prints the number of our modules that it has loaded.
COUNT_MODULES = """
import sys
sys.argv[0] = "orchestrator"
from orchestrator import __main__
try:
    __main__.main()
finally:
    ours = [name for name in sys.modules if name.split(".")[0] in ("orchestrator", "db")]
    print([name for name in ours if "code" in name.split(".")], file=sys.stderr)
    print("modules:", len(ours), file=sys.stderr)
"""


def test_submit_loads_at_most_100_of_our_modules(tmp_path: Path) -> None:
    # To measure by hand: python -m pytest tests/flow/test_imports.py -k submit
    folder = tmp_path / "fake-slurm"
    folder.mkdir()
    cli = command_line.CommandLine(tmp_path, FakeSlurm(folder).environ, tmp_path / "pycache")
    # With its own bytecode folder, the command would compile all libraries first.
    del cli.environ["PYTHONPYCACHEPREFIX"]
    (cli.folder / "train.py").touch()
    spec = cli.spec('[job]\nname = "demo"\ntime_limit = "10"\n[launch]\nscript = "train.py"\n')
    # The first submission queries facts about the cluster, which are stored for a day.
    for expected in ("Submitted batch job 1 (@1, demo)\n", "Submitted batch job 2 (@2, demo)\n"):
        done = cli.run([sys.executable, "-c", COUNT_MODULES, "submit", str(spec)])
        assert (done.code, done.out) == (0, expected)
    # Snapshots are loaded only if one is taken.
    assert done.err.splitlines()[-2] == "[]"
    assert int(done.err.rpartition("modules: ")[2]) <= 100


def test_a_call_with_a_host_loads_no_database(tmp_path: Path) -> None:
    folder = tmp_path / "fake-slurm"
    folder.mkdir()
    cli = command_line.CommandLine(tmp_path, FakeSlurm(folder).environ, tmp_path / "pycache")
    del cli.environ["PYTHONPYCACHEPREFIX"]
    (tmp_path / "ssh").write_text("#!/bin/sh\nexit 255\n")
    (tmp_path / "ssh").chmod(0o755)
    cli.environ["PATH"] = f"{tmp_path}:{cli.environ['PATH']}"
    program = COUNT_MODULES.replace(
        "    print([name",
        "    print({'sqlalchemy', 'jinja2'} & set(sys.modules), file=sys.stderr)\n    print([name",
    )
    done = cli.run([sys.executable, "-c", program, "--host", "mill", "status"])
    assert done.code == 255
    assert done.err.splitlines()[-3] == "set()"
    assert int(done.err.rpartition("modules: ")[2]) <= 60
