"""The Python API: submit jobs and sweeps, and follow them. `import orchestrator as orc` offers it.

Modules are imported when a name is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orchestrator.api.functions import job, jobs, render, submit, sweep
    from orchestrator.api.job_handle import Job
    from orchestrator.api.records import Records
    from orchestrator.api.sessions import Session
    from orchestrator.api.sweep_handle import Sweep

__all__ = ["Job", "Records", "Session", "Sweep", "job", "jobs", "render", "submit", "sweep"]

_MODULES = {
    "Job": "job_handle",
    "Records": "records",
    "Session": "sessions",
    "Sweep": "sweep_handle",
    **dict.fromkeys(("job", "jobs", "render", "submit", "sweep"), "functions"),
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
