"""A running cluster: starting, stopping, running commands, injecting faults."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from orchestrator import jobs
from tests import zygote
from tests.cluster import (
    answers,
    commands,
    configuration,
    daemons,
    environment,
    faults,
    fleet,
    hosts,
    layout,
    machine,
    root,
)

CHECKOUT = pathlib.Path(__file__).resolve().parents[2]
CONTROL = configuration.LOGIN_HOST
WRAPPERS = f"{environment.CHECKOUT_PLACE}/tests/cluster/wrappers"


class Lab:
    """One cluster, whose files lie in `state`; built things are shared through `cache`.

    An instance starts the cluster (`up`) or uses the one that another process started (`attach`).
    """

    def __init__(self, state: pathlib.Path, cache: pathlib.Path) -> None:
        self.state = state.absolute()
        self.cache = cache.absolute()
        self._fleet = fleet.Fleet(self.state)
        #: by user
        self._forking: dict[str, zygote.Zygote] = {}
        #: slurmctld lost its state, so it may give an ID to a second job.
        self.gives_ids_again = False
        #: No job was given this ID or a higher one, as far as was seen before a loss of state.
        self._next_job_id = 1

    @property
    def troubles(self) -> list[str]:
        """What went wrong with the cluster itself and was mended by a second try."""
        return self._fleet.troubles

    @property
    def settings(self) -> configuration.Settings:
        """What this cluster was started with, or changed to since."""
        return self._fleet.settings

    # ---- up and down

    def build(self, release: str, *, fresh: bool = False) -> tuple[pathlib.Path, pathlib.Path]:
        """Build what `up` needs, as far as the cache lacks it: root and Python environment."""
        made = root.build(release, self.cache, fresh=fresh)
        python = environment.build(made, self.cache, CHECKOUT, fresh=fresh)
        layout.compile_checkout(made, python, CHECKOUT)
        return made.folder, python

    def up(
        self,
        release: str = "24.11",
        *,
        accounting: bool = True,
        min_job_age_seconds: int = 120,
        message_timeout_seconds: int = 5,
        extra: Sequence[str] = (),
        tie_to_caller: bool = False,
    ) -> None:
        """Start the cluster, after ending what an earlier run left in this state folder.

        With `tie_to_caller` it ends by itself when this process does, however it dies.
        """
        base, python = self.build(release)
        machine.require(["ip"])
        self.down()
        self._fleet.settings = configuration.Settings(
            release=release,
            accounting=accounting,
            min_job_age_seconds=min_job_age_seconds,
            message_timeout_seconds=message_timeout_seconds,
            cgroups=bool(machine.cgroup_controllers()) and root.has_cgroup_v1(base),
            extra=tuple(extra),
        )
        layout.lay_out(self.state, base, self.settings)
        self._boot(base, python, new=True)
        if not tie_to_caller:
            self._fleet.release()

    def _boot(self, base: pathlib.Path, python: pathlib.Path, *, new: bool) -> None:
        places = [
            (str(self.state / "home"), "/home", False),
            (str(self.state / "lab"), configuration.LAB, False),
            (str(self.state / "slurm"), "/etc/slurm", True),
            (str(python), environment.PLACE, True),
            (str(CHECKOUT), environment.CHECKOUT_PLACE, True),
        ]
        try:
            self._fleet.start(base, places, used=[base, python])
            self._start_daemons(new=new)
        except BaseException:
            self.down()
            raise

    def upgrade(self, release: str) -> None:
        """Start the cluster with a later release on what it has on disk; what runs on it ends.

        Afterwards it ends with this process.
        """
        base, python = self.build(release)
        for name in ("slurmctld", "slurmdbd", "mariadbd"):
            self.stop(name)
        settings = self.settings
        self.down()
        cgroups = settings.cgroups and root.has_cgroup_v1(base)
        self._fleet.settings = dataclasses.replace(settings, release=release, cgroups=cgroups)
        layout.write_configuration(self.state, self.settings)
        self._boot(base, python, new=False)

    def attach(self) -> Lab:
        """Use the cluster that runs in this state folder; `LabError` when none does."""
        if not self._fleet.alive():
            raise machine.LabError(
                f"No cluster runs in {self.state}. Start one: python3 -m tests.cluster up"
            )
        return self

    def daemons_alive(self) -> dict[str, bool]:
        """Every daemon that was started, by `HOST/NAME`, and whether it lives."""
        return {name: process.alive() for name, process in self._fleet.daemons.items()}

    def alive(self) -> bool:
        """All hosts live."""
        return self._fleet.alive()

    def down(self) -> None:
        """End everything that runs in this state folder; its files stay for reading."""
        self._stop_forking(*self._forking)
        self._fleet.end()

    def _start_daemons(self, *, new: bool) -> None:
        for host in configuration.HOSTS:
            self._must(["sh", "-c", daemons.PREPARE], host=host)
            self.start("munged", host)
        if self.settings.accounting:
            self._start_accounting(new=new)
        self.start("slurmctld")
        for node in configuration.NODES:
            self.start("slurmd", node)
        # What ran before an upgrade is still on its nodes for slurmctld.
        self.wait_until_idle() if new else self.wait_for(self._answers, 60, "all nodes to answer")

    def _start_accounting(self, *, new: bool = True) -> None:
        # The user's number differs from release to release.
        self._must(["chown", "-R", "mysql:", f"{configuration.LAB}/mysql"])
        self.start("mariadbd")
        self._wait_answer(["mariadb-admin", daemons.SOCKET, "ping"])
        self._must(["mariadb", daemons.SOCKET], input=configuration.database_statements())
        self.start("slurmdbd")
        self._wait_answer(["sacctmgr", "-n", "show", "cluster"])
        for argv in configuration.accounting_commands() if new else ():
            self._must(argv)

    # ---- commands

    def command(
        self,
        argv: Sequence[str],
        *,
        user: str = "alice",
        host: str = CONTROL,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
    ) -> list[str]:
        """The words that run `argv` on a host in a fresh login environment of a user."""
        init = self._fleet.processes[host]
        return commands.command(init, argv, user=user, env=env, cwd=cwd)

    def popen(self, argv: Sequence[str], **options: Any) -> subprocess.Popen[str]:
        """Start a command and return at once; `options` are those of `command`, or of `Popen`.

        The Popen is that of the wrapper: see `process`, `kill` and `kill_tree`.
        """
        names = ("user", "host", "env", "cwd")
        mine = {name: options.pop(name) for name in names if name in options}
        options = {
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            "text": True,
            **options,
        }
        return subprocess.Popen(self.command(argv, **mine), **options)

    def run(
        self,
        argv: Sequence[str],
        *,
        user: str = "alice",
        host: str = CONTROL,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        input: str | None = None,
        timeout_seconds: float = 60,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end; `subprocess.TimeoutExpired` after killing all of it."""
        where = {"user": user, "host": host, "env": env, "cwd": cwd}
        with self.popen(argv, stdin=subprocess.PIPE, **where) as process:
            try:
                stdout, stderr = process.communicate(input or "", timeout=timeout_seconds)
            except BaseException:
                self.kill_tree(process)
                raise
        return subprocess.CompletedProcess(list(argv), process.returncode, stdout, stderr)

    def orchestrator(
        self,
        argv: Sequence[str],
        *,
        user: str = "alice",
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        timeout_seconds: float = 60,
    ) -> subprocess.CompletedProcess[str]:
        """Run `orchestrator ARGV` on the login host as `run` does, from a process that is there."""
        if not zygote.can_fork(env or {}):
            where = {"user": user, "env": env, "cwd": cwd}
            return self.run(["orchestrator", *argv], **where, timeout_seconds=timeout_seconds)
        request = zygote.Request(
            argv=[f"{environment.PLACE}/bin/orchestrator", *argv],
            environ=commands.surroundings(user, env),
            folder=cwd or commands.folder_of(user),
        )
        return self._fork(request, user, timeout_seconds)

    def script(
        self, argv: Sequence[str], *, env: Mapping[str, str], cwd: str, timeout_seconds: float = 60
    ) -> subprocess.CompletedProcess[str]:
        """Run a Python file with our modules, and its arguments, as alice's `orchestrator`."""
        if not zygote.can_fork(env):
            python = f"{environment.PLACE}/bin/python"
            return self.run([python, *argv], env=env, cwd=cwd, timeout_seconds=timeout_seconds)
        request = zygote.Request(
            argv=list(argv), environ=commands.surroundings("alice", env), folder=cwd, script=True
        )
        return self._fork(request, "alice", timeout_seconds)

    def _fork(
        self, request: zygote.Request, user: str, timeout_seconds: float
    ) -> subprocess.CompletedProcess[str]:
        forking = self._forking.get(user)
        try:
            if forking is None:
                raise zygote.Gone
            code, out, err = forking.run(request, timeout_seconds)
        except zygote.Gone:
            # None yet, or a fault has killed it.
            self._stop_forking(user)
            self._forking[user] = started = zygote.Zygote(
                lambda words: self.command(
                    [f"{environment.PLACE}/bin/python", *words],
                    user=user,
                    env={"PYTHONPATH": environment.CHECKOUT_PLACE},
                )
            )
            code, out, err = started.run(request, timeout_seconds)
        texts = (text.decode(errors="replace") for text in (out, err))
        return subprocess.CompletedProcess(request.argv, code, *texts)

    def _stop_forking(self, *users: str) -> None:
        for user in users:
            if user in self._forking:
                self._forking.pop(user).close()

    def _must(self, argv: Sequence[str], host: str = CONTROL, input: str | None = None) -> str:
        done = self.run(argv, user="root", host=host, input=input)
        if done.returncode:
            raise machine.LabError(f"{argv} failed on {host}:\n{done.stdout}{done.stderr}")
        return done.stdout

    def _wait_answer(self, argv: Sequence[str]) -> None:
        self.wait_for(lambda: self.run(argv, user="root").returncode == 0, 60, f"{argv} to succeed")

    def process(self, popen: subprocess.Popen[str]) -> hosts.Process:
        """The command itself, as this machine sees it; `ProcessLookupError` when it has ended."""
        return commands.process(popen)

    def kill(self, popen: subprocess.Popen[str], number: int = signal.SIGKILL) -> None:
        """Send a signal to the command itself, and to nothing else."""
        with contextlib.suppress(ProcessLookupError):
            commands.process(popen).signal(number)

    def kill_tree(self, popen: subprocess.Popen[str]) -> None:
        """Kill the command and all its descendants."""
        commands.kill_tree(popen)

    def wait_for(
        self,
        predicate: Callable[[], object],
        timeout_seconds: float,
        condition: str,
        interval_seconds: float = 0.1,
    ) -> None:
        """Poll until the condition is true; raise TimeoutError with its name after the time."""
        fleet.wait_for(predicate, timeout_seconds, condition, interval_seconds)

    def first_process(self, host: str) -> hosts.Process:
        """The process that a host lives and dies with."""
        return self._fleet.processes[host]

    # ---- files

    def path(self, path: str, host: str = CONTROL) -> pathlib.Path:
        """Where this machine sees a file of a host. Links on the way are not the host's."""
        return pathlib.Path(f"/proc/{self._fleet.processes[host].pid}/root", path.lstrip("/"))

    def read(self, path: str, host: str = CONTROL) -> str:
        """The text of a file on a host."""
        return self.path(path, host).read_text()

    def read_lines(self, path: str, host: str = CONTROL) -> list[str]:
        """The complete lines of a file that is written meanwhile; none while it is missing."""
        path_on_host = self.path(path, host)
        text = path_on_host.read_text() if path_on_host.exists() else ""
        return text[: text.rfind("\n") + 1].splitlines()

    def make_folder(self, path: str, user: str = "alice", host: str = CONTROL) -> None:
        """Make a folder on a host, and those above it that are missing, for a user."""
        number = configuration.USERS.get(user, 0)
        path_on_host = self.path(path, host)
        for folder in reversed([path_on_host, *path_on_host.parents]):
            if not folder.exists():
                folder.mkdir()
                os.chown(folder, number, number)

    def write(
        self, path: str, text: str, user: str = "alice", mode: int = 0o644, host: str = CONTROL
    ) -> None:
        """Write a file on a host, for a user; missing folders are made for that user too."""
        self.make_folder(str(pathlib.PurePosixPath(path).parent), user, host)
        number = configuration.USERS.get(user, 0)
        path_on_host = self.path(path, host)
        path_on_host.write_text(text)
        path_on_host.chmod(mode)
        os.chown(path_on_host, number, number)

    # ---- Slurm's state

    def wait_until_idle(self, timeout_seconds: float = 120) -> None:
        """Wait until every node responds and is idle."""
        condition = "every node to be idle"
        self.wait_for(lambda: self._node_states() == {"idle"}, timeout_seconds, condition)

    def _node_states(self) -> set[str]:
        return set(self.run(["sinfo", "-hN", "-o", "%T"], user="root").stdout.split())

    def squeue(self, *options: str) -> list[dict[str, str]]:
        """Rows of squeue, all jobs and states, by squeue's own long field names."""
        return answers.parse_squeue(self._must(answers.squeue_command(*options)))

    def sacct(self, job_id: str, *options: str) -> list[dict[str, str]]:
        """Rows of sacct for a job and its steps, every attempt, by column name."""
        return answers.parse_sacct(self._must(answers.sacct_command(job_id, *options)))

    def job(self, job_id: str) -> dict[str, str]:
        """The fields of `scontrol show job`; empty if Slurm does not have the job."""
        shown: dict[str, str] = {}

        def is_answered() -> bool:
            answer = self.run(["scontrol", "show", "job", "-o", job_id], user="root")
            shown.update(answers.parse_scontrol_show(answer.stdout))
            # A slurmctld that is slow to respond has not forgotten the job.
            return bool(shown) or "Invalid job id" in answer.stderr

        self.wait_for(is_answered, 120, f"slurmctld to answer what it knows of {job_id}")
        return shown

    def job_state(self, job_id: str) -> str:
        """The state of a job in slurmctld, or an empty string."""
        return self.job(job_id).get("JobState", "")

    # ---- breaking and mending

    def start(self, name: str, host: str = CONTROL) -> None:
        """Start a daemon and wait until it has written its PID; slurmctld: until it responds.

        24.11.5 was seen to die while it started ("trap divide error" in the kernel's log) when
        clients asked at that moment; a site's init system starts it again too.
        """
        self._fleet.start_daemon(name, host)
        if name == "slurmctld":
            starts_left = [2]
            self.wait_for(lambda: self._slurmctld_answers(starts_left), 60, "slurmctld to answer")

    def _slurmctld_answers(self, starts_left: list[int]) -> bool:
        if not self.daemons_alive()["ctl/slurmctld"]:
            log = (self.state / "lab/log/slurmctld.log").read_text(errors="replace")
            tail = "\n".join(log.splitlines()[-5:])
            if not starts_left[0]:
                raise machine.LabError(f"slurmctld ended three times while it started:\n{tail}")
            starts_left[0] -= 1
            self.troubles.append(
                f"slurmctld ended while it started, and was started again:\n{tail}"
            )
            self._fleet.start_daemon("slurmctld", CONTROL)
        return self.run(["squeue", "-h"], user="root").returncode == 0

    def pause(self, name: str, host: str = CONTROL) -> None:
        """Stop a daemon (SIGSTOP); it does not respond until `resume`."""
        self._fleet.daemon(name, host).signal(signal.SIGSTOP)

    def resume(self, name: str, host: str = CONTROL) -> None:
        """Let a paused daemon go on."""
        self._fleet.daemon(name, host).signal(signal.SIGCONT)

    def kill_daemon(self, name: str, host: str = CONTROL) -> None:
        """End a daemon as a crash would (SIGKILL)."""
        self._fleet.daemon(name, host).end()

    def retire(self, name: str, host: str) -> None:
        """End a daemon at once that the cluster does without from now on."""
        process = self._fleet.daemon(name, host)
        process.signal(signal.SIGQUIT)
        self.wait_for(lambda: not process.alive(), 60, f"{name} on {host} to end")
        self._fleet.forget_daemon(name, host)

    def stop(self, name: str, host: str = CONTROL) -> None:
        """Ask a daemon to end (SIGTERM), and kill it after 30 s, as systemd does."""
        process = self._fleet.daemon(name, host)
        process.signal(signal.SIGTERM)
        process.signal(signal.SIGCONT)
        try:
            self.wait_for(lambda: not process.alive(), 30, f"{name} on {host} to end")
        except TimeoutError as error:
            # slurmctld 24.11.5 hung so once, after "Terminate signal SIGTERM received".
            self.troubles.append(f"{error}, and killed it")
            process.end()

    def restart(self, name: str, host: str = CONTROL) -> None:
        """Stop and start a daemon."""
        self.stop(name, host)
        self.start(name, host)

    def cut(self, host: str) -> None:
        """Take a host off the network."""
        hosts.set_links(self._fleet.processes[hosts.SWITCH], [host], up=False)

    def heal(self, *names: str) -> None:
        """Put hosts back on the network."""
        hosts.set_links(self._fleet.processes[hosts.SWITCH], names, up=True)

    @contextlib.contextmanager
    def throttled(self, host: str, *, cpus: float) -> Iterator[None]:
        """Let all processes of a host together use only so many CPUs while the body runs."""
        folder = pathlib.Path("/sys/fs/cgroup/cpu", fleet.cgroup_name(self.state), host)
        period = int((folder / "cpu.cfs_period_us").read_text())
        quota = folder / "cpu.cfs_quota_us"
        quota.write_text(str(round(cpus * period)))
        try:
            yield
        finally:
            # No limit.
            quota.write_text("-1")

    def reconfigure(self, **changes: Any) -> None:
        """Change settings (the fields of `configuration.Settings`) of the running cluster.

        slurmctld and every slurmd are restarted with them; jobs continue.
        """
        before = self.settings
        accounting = before.accounting
        self._fleet.settings = dataclasses.replace(self.settings, **changes)
        layout.write_configuration(self.state, self.settings)
        new = self.settings.accounting and not accounting
        if new and "ctl/slurmdbd" not in self._fleet.daemons:
            self._start_accounting()
        elif changes.get("dbd_extra", before.dbd_extra) != before.dbd_extra:
            self.restart("slurmdbd")
            self._wait_answer(["sacctmgr", "-n", "show", "cluster"])
        self.restart("slurmctld")
        for node in configuration.NODES:
            self.restart("slurmd", node)
        self.wait_for(self._answers, 60, "slurmctld and all nodes to answer")

    def _answers(self) -> bool:
        good = ("idle", "mixed", "allocated", "completing", "planned")
        states = self._node_states()
        return bool(states) and states.issubset(good)

    def save_slurmctld_state(self) -> pathlib.Path:
        """Copy what slurmctld has on disk; `wipe_slurmctld_state` can go back to the copy.

        slurmctld is restarted: it saves its state when it ends, else only every five seconds.
        """
        copy = self.state / f"ctld-{time.time_ns()}"
        self.stop("slurmctld")
        shutil.copytree(self.state / "lab/ctld", copy)
        self.start("slurmctld")
        return copy

    def wipe_slurmctld_state(self, copy: pathlib.Path | None = None) -> None:
        """Crash slurmctld and start it with no state, or with that of an earlier copy.

        It forgets the jobs that came since, and hands out their IDs again, from FirstJobId on,
        which `give_new_job_ids` raises.
        """
        self.gives_ids_again = True
        self._note_next_job_id()
        with contextlib.suppress(machine.LabError):
            self.kill_daemon("slurmctld")
        shutil.rmtree(self.state / "lab/ctld")
        if copy is None:
            (self.state / "lab/ctld").mkdir()
        else:
            shutil.copytree(copy, self.state / "lab/ctld")
        self.start("slurmctld")
        self.wait_for(self._answers, 60, "slurmctld to answer after it lost its state")

    def give_new_job_ids(self) -> None:
        """Give no ID that a job had before, also when slurmctld loses its state.

        `sacct -D` shows the jobs of both. Not the highest ID of sacct: it lists no job that was
        held to its end unless asked for its ID, and others some seconds late.
        """
        self._note_next_job_id()
        self.reconfigure(first_job_id=self._next_job_id)
        self.gives_ids_again = False

    def _note_next_job_id(self) -> None:
        shown = self.run(["scontrol", "show", "config"], user="root").stdout
        if match := re.search(r"^NEXT_JOB_ID\s*= (\d+)$", shown, re.MULTILINE):
            self._next_job_id = max(self._next_job_id, int(match[1]))

    def cancel_all(self, timeout_seconds: float = 120) -> None:
        """Cancel every job and wait until the nodes are idle."""
        # Not by `squeue -t`: a job in SPECIAL_EXIT is in none of its lists but `all`.
        going = [row["JobID"] for row in self.squeue() if row["State"] not in jobs.TERMINAL]
        if going:
            self.run(["scancel", *going], user="root")
        self.wait_until_idle(timeout_seconds)

    def mend(self) -> None:
        """Undo every fault, and cancel all jobs."""
        self.undo_faults()
        self.cancel_all()

    def undo_faults(self) -> None:
        """Daemons run, cables are in, nodes are up; jobs go on."""
        for name, process in self._fleet.daemons.items():
            host, daemon = name.split("/")
            if not process.signal(signal.SIGCONT):
                self.start(daemon, host)
        self.heal(*configuration.HOSTS)
        for line in self.run(["sinfo", "-hN", "-o", "%N %T"], user="root").stdout.splitlines():
            node, state = line.split()
            # Slurm takes `resume` for these only.
            if state.startswith(("down", "drain")):
                self.run(["scontrol", "update", f"nodename={node}", "state=resume"], user="root")

    def forget(self, job_id: str, timeout_seconds: float = 180) -> None:
        """Wait until slurmctld has forgotten a job that has ended."""
        self.wait_for(lambda: not self.job(job_id), timeout_seconds, f"{job_id} to be forgotten")

    @contextlib.contextmanager
    def faults(self, *rules: faults.Rule, user: str = "alice") -> Iterator[faults.Faults]:
        """Put the wrappers first on PATH: pass `env=faults.env` to `run` and `popen`."""
        folder = f"/home/{user}/.faults-{time.time_ns()}"
        self.write(f"{folder}/rules.json", faults.dump(rules), user=user)
        env = {"PATH": f"{WRAPPERS}:{commands.PATH}", faults.VARIABLE: f"{folder}/rules.json"}
        made = faults.Faults(folder=self.state / folder.lstrip("/"), env=env)
        try:
            yield made
        finally:
            made.go_on_all()
