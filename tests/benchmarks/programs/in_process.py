"""What a program of one's own does to submit a spec: one context for all its submissions."""

import functools
import os
import pathlib
import sys
import time

from orchestrator import config, jobs, specs
from orchestrator.controller.session import context as contexts
from orchestrator.controller.session import stores
from orchestrator.controller.submission import render, submit
from orchestrator.slurm import variables
from orchestrator.slurm.client import Client


def open_context() -> contexts.Context:
    """Return the context that all submissions of this process share."""
    folder = pathlib.Path.cwd()
    configuration = config.load(os.environ, folder, {})
    return contexts.Context(
        configuration=configuration,
        store=stores.Store(configuration.database),
        client=functools.cache(lambda: Client(environ=variables.for_queries(os.environ))),
        environ=os.environ,
        folder=folder,
        say=lambda message: print(message, file=sys.stderr),
        sleep=time.sleep,
    )


def submit_spec(context: contexts.Context, path: str) -> jobs.Job:
    """Read a spec and submit it, as `orchestrator submit PATH` does."""
    spec = specs.load(pathlib.Path(path), environ=os.environ)
    return submit.submit(context, render.Request(spec=spec, source=path, argv=sys.argv))
