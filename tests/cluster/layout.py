"""The files of one lab, before its hosts start: homes, Slurm's configuration, MariaDB's tables."""

from __future__ import annotations

import os
import pathlib
import shutil

from tests.cluster import configuration, environment, machine, root


def lay_out(state: pathlib.Path, base: pathlib.Path, settings: configuration.Settings) -> None:
    """Fill a state folder afresh; `base` is the root file system."""
    for name in ("home", "lab", "slurm"):
        shutil.rmtree(state / name, ignore_errors=True)
    spools = [f"lab/spool/{node}" for node in configuration.NODES]
    for name in ("slurm", "lab/ctld", "lab/log", *spools):
        (state / name).mkdir(parents=True)
    for user, number in configuration.USERS.items():
        (state / "home" / user).mkdir(parents=True, mode=0o700)
        os.chown(state / "home" / user, number, number)
    write_configuration(state, settings)
    machine.command(
        ["cp", "-a", str(base / root.TABLES), str(state / "lab/mysql")],
        action="copying MariaDB's first tables",
    )


def write_configuration(state: pathlib.Path, settings: configuration.Settings) -> None:
    """Write the files of /etc/slurm."""
    for name, text in configuration.files(settings).items():
        path = state / "slurm" / name
        # Replaced whole: a daemon may read it at any time.
        fresh = path.with_suffix(".new")
        fresh.write_text(text)
        fresh.chmod(0o600 if name == "slurmdbd.conf" else 0o644)
        fresh.rename(path)


def compile_checkout(made: root.Root, python: pathlib.Path, checkout: pathlib.Path) -> None:
    """Compile the checkout for the hosts' Python.

    Users of the hosts cannot write there, and each of their commands would compile it again.
    """
    binds = {python: environment.PLACE, checkout: environment.CHECKOUT_PLACE}
    folders = [
        f"{environment.CHECKOUT_PLACE}/{name}" for name in ("orchestrator", "db", "trainers")
    ]
    argv = [f"{environment.PLACE}/bin/python", "-m", "compileall", "-q", *folders]
    root.enter(made.folder, argv, action="compiling the checkout", binds=binds)
