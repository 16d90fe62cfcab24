"""The hosts and daemons of one lab: started, recorded on disk, ended."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import fcntl
import functools
import json
import os
import pathlib
import signal
import time
from collections.abc import Callable, Sequence

from tests.cluster import configuration, daemons, hosts, machine, root


def wait_for(
    predicate: Callable[[], object],
    timeout_seconds: float,
    condition: str,
    interval_seconds: float = 0.1,
) -> None:
    """Poll until the condition is true; raise TimeoutError with its name after the time."""
    deadline = time.monotonic() + timeout_seconds
    while not predicate():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {timeout_seconds:.0f} s for {condition}")
        time.sleep(interval_seconds)


def cgroup_name(state: pathlib.Path) -> str:
    """The folder, in every cgroup v1 hierarchy, that the hosts of a lab have theirs in."""
    return f"lab-{machine.digest(str(state.absolute()))}"


class Fleet:
    """The hosts recorded in `state`."""

    def __init__(self, state: pathlib.Path) -> None:
        self.state = state
        self.settings = configuration.Settings()
        #: First process of each host, and of the switch.
        self.processes: dict[str, hosts.Process] = {}
        #: Daemons by `HOST/NAME`.
        self.daemons: dict[str, hosts.Process] = {}
        #: What went wrong and was mended by a second try.
        self.troubles: list[str] = []
        self._cgroup = cgroup_name(state)
        self._tie: int | None = None
        self._load()

    def alive(self) -> bool:
        """All hosts live."""
        return bool(self.processes) and all(p.alive() for p in self.processes.values())

    def start(
        self,
        base: pathlib.Path,
        binds: Sequence[tuple[str, str, bool]],
        used: Sequence[pathlib.Path],
    ) -> None:
        """Start and connect all hosts; until `release` they die when this process does.

        `used` are built folders that must stay as long as a host lives.
        """
        reader, self._tie = os.pipe()
        starters = []
        with contextlib.ExitStack() as stack:
            files = [(folder / root.STAMP).open() for folder in used]
            locks = [stack.enter_context(file).fileno() for file in files]
            for lock in locks:
                fcntl.flock(lock, fcntl.LOCK_SH)
            for name in (hosts.SWITCH, *configuration.HOSTS):
                plan = hosts.Plan(
                    name=name,
                    root=None if name == hosts.SWITCH else str(base),
                    binds=tuple(binds),
                    gpus=configuration.GPUS_PER_NODE if name in configuration.NODES else 0,
                    cgroups=self._make_cgroups(name),
                )
                self.processes[name], starter = hosts.start(plan, tie=reader, locks=locks)
                starters.append((name, starter))
                self.save()
        os.close(reader)
        for name, starter in starters:
            hosts.wait_ready(name, starter)
        addresses = {
            name: (self.processes[name], configuration.address(name))
            for name in configuration.HOSTS
        }
        hosts.connect(self.processes[hosts.SWITCH], addresses)

    def release(self) -> None:
        """Let the hosts live on after this process."""
        if self._tie is not None:
            os.write(self._tie, b"s" * len(self.processes))

    def end(self) -> None:
        """End all hosts, and with each everything that runs on it; remove their cgroups."""
        living = list(self.processes.values())
        for process in living:
            process.signal(signal.SIGKILL)
        for process in living:
            process.end()
        if self._tie is not None:
            os.close(self._tie)
            self._tie = None
        self.processes, self.daemons = {}, {}
        self._remove_cgroups()
        (self.state / "state.json").unlink(missing_ok=True)

    def start_daemon(self, name: str, host: str) -> None:
        """Start a daemon and wait until it has written its process ID."""
        daemon = daemons.daemon(name, host)
        init = self.processes[host]
        path = pathlib.Path(f"/proc/{init.pid}/root{daemon.pid_file}")
        path.unlink(missing_ok=True)
        argv = [*hosts.enter_command(init), *daemon.start_command(host)]
        machine.command(argv, action=f"starting {name} on {host}")
        result: list[hosts.Process] = []

        def written() -> bool:
            # The file is there before its text is.
            with contextlib.suppress(FileNotFoundError, ValueError):
                process = hosts.seen_from_outside(init, int(path.read_text()))
                result.extend([process] if process else [])
            return bool(result)

        wait_for(written, 60, f"{name} on {host}; its log is below {self.state}/lab/log", 0.02)
        self.daemons[f"{host}/{name}"] = result[0]
        self.save()

    def forget_daemon(self, name: str, host: str) -> None:
        """Let a daemon that has ended be none of the cluster's any more."""
        del self.daemons[f"{host}/{name}"]
        self.save()

    def daemon(self, name: str, host: str) -> hosts.Process:
        """A running daemon's process; `LabError` when it does not run."""
        process = self.daemons.get(f"{host}/{name}")
        if process is None or not process.alive():
            raise machine.LabError(f"{name} does not run on {host}.")
        return process

    def save(self) -> None:
        """Write the record, whole or not at all."""
        record = {
            "settings": dataclasses.asdict(self.settings),
            "processes": {n: [p.pid, p.start_ticks] for n, p in self.processes.items()},
            "daemons": {n: [p.pid, p.start_ticks] for n, p in self.daemons.items()},
        }
        fresh = self.state / "state.json.new"
        fresh.write_text(json.dumps(record))
        fresh.rename(self.state / "state.json")

    def _load(self) -> None:
        try:
            record = json.loads((self.state / "state.json").read_text())
        except FileNotFoundError:
            return
        settings = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in record["settings"].items()
        }
        self.settings = configuration.Settings(**settings)
        self.processes, self.daemons = (
            {n: hosts.Process(pid=pid, start_ticks=ticks) for n, (pid, ticks) in part.items()}
            for part in (record["processes"], record["daemons"])
        )

    def _make_cgroups(self, host: str) -> dict[str, str]:
        made: dict[str, str] = {}
        if not self.settings.cgroups:
            return made
        for controller in machine.cgroup_controllers():
            folder = controller / self._cgroup
            for part in (folder, folder / host):
                part.mkdir(exist_ok=True)
                if controller.name == "cpuset":
                    # Empty in a new folder, and nothing can run in it until they are set.
                    for name in ("cpuset.cpus", "cpuset.mems"):
                        (part / name).write_text((controller / name).read_text())
            made[controller.name] = str(folder / host)
        return made

    def _remove_cgroups(self) -> None:
        for controller in machine.cgroup_controllers():
            # Bottom up; the files of a cgroup folder go with it.
            for folder, _, _ in os.walk(controller / self._cgroup, topdown=False):
                wait_for(functools.partial(_rmdir, folder), 10, f"{folder} to be unused", 0.05)


def _rmdir(folder: str) -> bool:
    try:
        os.rmdir(folder)
    except FileNotFoundError:
        return True
    except OSError as error:
        # A process leaves its cgroup a moment after it is gone from /proc.
        if error.errno != errno.EBUSY:
            raise
        return False
    return True
