"""Slurm job orchestrator for multi-GPU PyTorch training: the control plane, and its Python API.

    import orchestrator as orc

    job = orc.submit("train.toml", set={"resources.nodes": 2})
    job.wait()

`orchestrator.api` has the functions and classes; they are imported when they are first used.
"""

from __future__ import annotations

# Without imports: a command loads this package before it can handle Ctrl-C.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from orchestrator import errors, jobs
    from orchestrator.api import Job, Records, Session, Sweep, job, render, submit, sweep

__version__ = "0.1.0"

__all__ = [
    *("Job", "Records", "Session", "Sweep"),
    *("errors", "job", "jobs", "render", "submit", "sweep"),
]


def list_jobs(*args: Any, **kwargs: Any) -> Any:
    """List jobs: what `orc.jobs(...)` calls, as the package orchestrator.jobs has that name too."""
    from orchestrator import api

    return api.jobs(*args, **kwargs)


def __getattr__(name: str) -> Any:
    # `from orchestrator import X` asks here first for each subpackage X that is not loaded.
    if name in ("errors", "jobs"):
        import importlib

        return importlib.import_module(f"{__name__}.{name}")
    if name in __all__:
        from orchestrator import api

        return getattr(api, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
