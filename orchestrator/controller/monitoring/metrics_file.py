"""`metrics_file`: written after each controller pass, for node_exporter's textfile collector."""

from __future__ import annotations

import contextlib
import os

from orchestrator import errors, files
from orchestrator.controller.session import contexts


def write(context: contexts.Context) -> None:
    """Replace the file atomically, if the configuration names one; warn if that fails."""
    path = context.configuration.metrics_file
    if path is None:
        return
    from orchestrator.controller.monitoring import collecting

    try:
        content = collecting.text(context).encode()
        files.replace(path, content, mode=context.configuration.metrics_file_mode)
    except errors.OrchestratorError as error:
        context.reporter.warn(f"{path} was not written: {error}")
    except OSError as error:
        # That of a full disk names no file.
        context.reporter.warn(f"{path} cannot be written: {error.strerror}")


def remove(context: contexts.Context) -> None:
    """Remove the file when the controller is stopped: its values would be exported forever."""
    path = context.configuration.metrics_file
    if path is not None:
        with contextlib.suppress(OSError):
            os.unlink(path)
