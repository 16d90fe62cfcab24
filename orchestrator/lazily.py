"""Packages whose modules are loaded when a name of them is first used.

`orchestrator status` needs few of them, and each command is a new process: what it imports is most
of what its user waits for. The form is PEP 562's; type checkers read the imports that stand under
TYPE_CHECKING.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence


def names_of(package: str, modules: Mapping[str, Sequence[str]]) -> Callable[[str], object]:
    """Return `__getattr__` of `package`, whose names lie in its `modules`, by module.

    It raises AttributeError for any other name.
    """
    where = {name: module for module, names in modules.items() for name in names}

    def find(name: str) -> object:
        if name not in where:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found: object = getattr(importlib.import_module(f"{package}.{where[name]}"), name)
        setattr(sys.modules[package], name, found)
        return found

    return find
