"""Submit specs from a Python program: one context for all submissions."""

import os
import pathlib
import sys

from orchestrator import config, jobs, specs
from orchestrator.controller.session import contexts, stores
from orchestrator.controller.submission import job_scripts, submit
from orchestrator.slurm import variables
from orchestrator.slurm.client import Client


def open_context() -> contexts.Context:
    """Return the context for all submissions of this process."""
    folder = pathlib.Path.cwd()
    configuration = config.load(os.environ, folder, {})
    return contexts.Context(
        configuration=configuration,
        store=stores.Store(configuration.database),
        slurm_client=lambda: Client(environ=variables.for_queries(os.environ)),
        environ=os.environ,
        folder=folder,
        reporter=contexts.Reporter(write=lambda level, text: print(text, file=sys.stderr)),
    )


def submit_spec(context: contexts.Context, path: str) -> jobs.Job:
    """Read a spec and submit it, like `orchestrator submit PATH`."""
    spec = specs.load(pathlib.Path(path), environ=os.environ)
    return submit.submit(context, job_scripts.Request(spec=spec, source=path, argv=sys.argv))
