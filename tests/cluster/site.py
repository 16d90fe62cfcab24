"""User alice: orchestrator as a process on the login host, with her own folders."""

from __future__ import annotations

import dataclasses
import json
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

from tests.cluster import lab as cluster

#: Short, so that a test waits for Slurm and not for us; users' default is 10.
CONFIGURATION = """\
state_dir = "{home}/state"
runs_dir = "{home}/runs"
[profiles.lab]
poll_floor_seconds = 1
"""
ENVIRONMENT = "/opt/orchestrator-env"
PYTHON = f"{ENVIRONMENT}/bin/python"


@dataclasses.dataclass(frozen=True)
class Site:
    """One user's orchestrator: a home with configuration, database and run folders."""

    lab: cluster.Lab
    home: str
    #: wrappers and whatever else a test puts into the environment
    env: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @classmethod
    def make(cls, lab: cluster.Lab, home: str, *, more: str = "", first: str = "") -> Site:
        """Write the configuration (`more` goes into the profile, `first` before it)."""
        text = first + CONFIGURATION.format(home=home) + more
        lab.write(f"{home}/config/orchestrator/config.toml", text)
        return cls(lab, home)

    def with_env(self, **env: str) -> Site:
        return dataclasses.replace(self, env={**self.env, **env})

    @property
    def environ(self) -> dict[str, str]:
        """What every command of this user's needs in its environment."""
        return {"XDG_CONFIG_HOME": f"{self.home}/config", **self.env}

    def run(
        self, *argv: str, timeout_seconds: float = 240, check: int | None = 0, user: str = "alice"
    ) -> subprocess.CompletedProcess[str]:
        """Run `orchestrator ARGV`; `check` is the exit code it must have (None: any)."""
        done = self.lab.orchestrator(
            argv,
            user=user,
            env=self.environ,
            cwd=self.home,
            timeout_seconds=timeout_seconds,
        )
        if check is not None:
            assert done.returncode == check, f"{argv}: {done.returncode}\n{done.stderr}"
        return done

    def popen(self, *argv: str) -> subprocess.Popen[str]:
        return self.lab.popen(["orchestrator", *argv], env=self.environ, cwd=self.home)

    def spec(self, name: str, text: str) -> str:
        """Write a spec into the home; its path."""
        path = f"{self.home}/{name}.toml"
        self.lab.write(path, text)
        return path

    def shell(self, name: str, command: str, **tables: str) -> str:
        """Write a spec that runs a shell line in one task; further keys by table."""
        job = tables.pop("job", 'time_limit = "00:05:00"')
        extra = "".join(f"[{table}]\n{keys}\n" for table, keys in tables.items())
        line = json.dumps(command)
        text = f'[job]\nname = "{name}"\n{job}\n{extra}[launch]\nlauncher = "python"\n'
        return self.spec(name, f"{text}command = {line}\n")

    def submit(self, *argv: str) -> str:
        """Submit and return the job ID."""
        return self.run("submit", *argv, "--parsable").stdout.strip()

    def items(self, *argv: str) -> list[dict[str, Any]]:
        """The items of a command's JSON."""
        return json.loads(self.run(*argv, "--json").stdout)["items"]

    def job(self, reference: str) -> dict[str, Any]:
        """The job with its attempts and events."""
        (item,) = self.items("show", reference, "--refresh")
        return item

    def wait_state(
        self, reference: str, states: str | Sequence[str], timeout_seconds: float = 120
    ) -> dict[str, Any]:
        """Refresh until the job is in one of the states."""
        expected = (states,) if isinstance(states, str) else tuple(states)
        seen: dict[str, Any] = {}

        def arrived() -> bool:
            seen.update(self.job(reference))
            return seen["state"] in expected

        try:
            self.lab.wait_for(arrived, timeout_seconds, f"{reference} to be {expected}", 0.5)
        except TimeoutError as error:
            raise AssertionError(f"{error}; it is {seen}") from error
        return seen


def details(job: Mapping[str, Any]) -> list[str]:
    """The messages of its history, oldest first, without the cause of a failure."""
    return [event["detail"] for event in job["events"] if event["kind"] != "cause"]
