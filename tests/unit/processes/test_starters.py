"""Modules that start processes."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path

#: Only these start processes.
STARTERS = {"processes", "local"}

#: Ways to start a process without `subprocess`, which an import contract covers.
CALLS = {"fork", "forkpty", "popen", "posix_spawn", "posix_spawnp", "startfile", "system"}
PREFIXES = ("exec", "spawn")


def starts_process(name: str) -> bool:
    return name in CALLS or name.startswith(PREFIXES)


def test_processes_are_started_in_few_places(parsed_modules: Mapping[str, ast.Module]) -> None:
    calls = set()
    for path, module in parsed_modules.items():
        parts = Path(path).with_suffix("").parts
        if parts[0] == "orchestrator" and parts[1] in STARTERS:
            continue
        for node in ast.walk(module):
            match node:
                case ast.Attribute(value=ast.Name(id="os"), attr=name) if starts_process(name):
                    calls.add(f"{path}:{node.lineno}: os.{name}")
                case ast.ImportFrom(module="os", names=names):
                    calls |= {
                        f"{path}:{node.lineno}: os.{alias.name}"
                        for alias in names
                        if starts_process(alias.name)
                    }
    assert calls == set()
