"""sbatch that waits for its script, and the wrappers of sites around it."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator import config, jobs
from orchestrator.controller.session import context as contexts
from orchestrator.controller.session import stores
from orchestrator.controller.submission import ahead, submit
from orchestrator.slurm import sbatch
from orchestrator.slurm.client import Client
from orchestrator.tracking import run_folder

SCRIPT = "#!/bin/bash\ntrue\n"
SPEC = jobs.JobSpec(name="x", launch=jobs.Launch(launcher="python", command="true"))
#: As sbatch: the last argument is the script's path.
SBATCH = """
for script; do :; done
text=$(cat "$script") || exit 1
[ -n "$text" ] || { echo "sbatch: error: Batch script is empty!" >&2; exit 1; }
echo "$text" >>"$JOURNAL"
echo 7
"""


class Site:
    """A run folder and an sbatch."""

    def __init__(self, folder: Path, wrapper: str) -> None:
        binaries = folder / "bin"
        binaries.mkdir()
        for name, text in (("sbatch", wrapper or SBATCH), ("real", SBATCH)):
            (binaries / name).write_text(f"#!/bin/bash\n{text}")
            (binaries / name).chmod(0o755)
        self.journal = folder / "journal"
        path = f"{binaries}:{os.environ['PATH']}"
        self.environ = {"PATH": path, "HOME": str(folder), "JOURNAL": str(self.journal)}
        self.context = contexts.Context(
            configuration=config.load(self.environ, folder),
            store=stores.Store(folder / "state.db"),
            client=lambda: Client(environ={}),
            environ=self.environ,
            folder=folder,
            say=lambda text: None,
            sleep=time.sleep,
        )
        files = {"script.sbatch": SCRIPT}
        self.folder = run_folder.create(
            folder, "x", "abcd12345678", files, sync=run_folder.Syncer()
        )
        self.argv = sbatch.command(self.folder.script, "x.abcd12345678")

    def sent(self) -> str:
        return self.journal.read_text() if self.journal.exists() else ""


@pytest.fixture
def site(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Site]:
    """A site whose sbatch is the wrapper that the test names, if any."""
    made = Site(tmp_path, getattr(request, "param", ""))
    with made.context.store:
        yield made


def test_it_is_sent_once_it_has_its_script(site: Site) -> None:
    with contextlib.closing(ahead.Ahead(site.context, SCRIPT)) as begun:
        begun.start(site.folder, site.argv, site.environ)
        assert os.readlink(site.folder.handed) == "/dev/stdin"
        answer = begun.send(site.folder, site.argv, site.environ)
    assert answer is not None and answer.stdout == "7\n"
    assert answer.argv == (*site.argv[:-1], str(site.folder.handed))
    assert site.sent() == SCRIPT
    # What Slurm shows as the job's Command is the script.
    assert site.folder.handed.resolve() == site.folder.script


@pytest.mark.parametrize("change", ["argv", "environ", "nothing sent"])
def test_one_that_is_not_wanted_has_sent_nothing(site: Site, change: str) -> None:
    with contextlib.closing(ahead.Ahead(site.context, SCRIPT)) as begun:
        begun.start(site.folder, site.argv, site.environ)
        if change == "argv":
            other = ["sbatch", "--dependency=afterok:1", *site.argv[1:]]
            assert begun.send(site.folder, other, site.environ) is None
        elif change == "environ":
            assert begun.send(site.folder, site.argv, {**site.environ, "A": "b"}) is None
    assert site.sent() == ""
    assert site.context.memory.ahead


@pytest.mark.parametrize(
    "site",
    ['for script; do :; done; grep -c bash "$script" >/dev/null && exec real "$@"'],
    ids=["grep"],
    indirect=True,
)
def test_a_wrapper_that_reads_the_script(site: Site) -> None:
    """Its sbatch then finds the text in the file that the path names by now."""
    with contextlib.closing(ahead.Ahead(site.context, SCRIPT)) as begun:
        begun.start(site.folder, site.argv, site.environ)
        answer = begun.send(site.folder, site.argv, site.environ)
    assert answer is not None and answer.stdout == "7\n"
    assert site.sent() == SCRIPT


@pytest.mark.parametrize(
    "site",
    [
        'for script; do :; done; [ -f "$script" ] || exit 1; exec real "$@"',
        'exec </dev/null; exec real "$@"',
        "exit 1",
    ],
    ids=["wants a file", "has a stdin of its own", "refuses"],
    indirect=True,
)
def test_a_wrapper_that_it_is_not_made_for(site: Site) -> None:
    with contextlib.closing(ahead.Ahead(site.context, SCRIPT)) as begun:
        begun.start(site.folder, site.argv, site.environ)
        assert begun._held is not None
        begun._held._process.wait(30)
        assert begun.send(site.folder, site.argv, site.environ) is None
    assert site.sent() == ""
    with contextlib.closing(ahead.Ahead(site.context, SCRIPT)) as begun:
        begun.start(site.folder, site.argv, site.environ)
        assert begun._held is None, "in this process it is not tried again"


def test_a_script_that_is_too_long_for_a_pipe(site: Site) -> None:
    with contextlib.closing(ahead.Ahead(site.context, SCRIPT + "#" * 64 * 1024)) as begun:
        begun.start(site.folder, site.argv, site.environ)
        assert begun._held is None
    assert not site.folder.handed.is_symlink()


def test_none_is_started_for_what_waits(site: Site) -> None:

    def stored(behind: jobs.Job | None) -> tuple[jobs.Job, bool]:
        with contextlib.closing(ahead.Ahead(site.context, SCRIPT)) as begun:
            job, folder = submit.store_intent(
                site.context,
                SPEC,
                SCRIPT,
                "{}",
                cluster="lab",
                runs_dir=site.context.folder / "runs",
                behind=behind,
                begun=begun,
            )
        return job, folder.handed.is_symlink()

    first, started = stored(None)
    assert started
    later = dataclasses.replace(first, reason="waits for room: x", resend_at=first.created_at)
    waits, started = stored(later)
    assert waits.waits_for_room and not started
