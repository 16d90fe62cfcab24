"""Hosts on one machine: each its own network, host name, mounts, processes and cgroups.

Run as a program this file is a host's first process. It ends, and the kernel ends everything else
on that host with it, when the process that holds the other end of its pipe dies. The bridge lies in
a namespace too (the host `switch`), so nothing of a lab is ever seen in the machine's own network,
and several labs can run with the same names and addresses.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import json
import os
import pathlib
import select
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

SWITCH = "switch"
BRIDGE = "lab"
# linux/sched.h and linux/mount.h; os.unshare came with Python 3.12.
CLONE_NEWNS, CLONE_NEWCGROUP, CLONE_NEWUTS = 0x00020000, 0x02000000, 0x04000000
CLONE_NEWIPC, CLONE_NEWPID, CLONE_NEWNET = 0x08000000, 0x20000000, 0x40000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_REMOUNT, MS_BIND = 1, 2, 4, 32, 4096
MS_REC, MS_PRIVATE, MNT_DETACH = 16384, 1 << 18, 2
#: Devices of a host by name: major and minor number.
DEVICES = {
    "null": (1, 3),
    "zero": (1, 5),
    "full": (1, 7),
    "random": (1, 8),
    "urandom": (1, 9),
    "tty": (5, 0),
    "fuse": (10, 229),
}


class HostError(RuntimeError):
    """A host did not start; the message has its last words and how it ended."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Process:
    """A process of this machine that cannot be mistaken for a later one with its number."""

    #: Process ID as this machine sees it.
    pid: int
    #: When it started, in clock ticks since boot (field 22 of /proc/PID/stat).
    start_ticks: int

    @classmethod
    def of(cls, pid: int) -> Process:
        """The process that has this ID now; `ProcessLookupError` when there is none."""
        return cls(pid=pid, start_ticks=_stat(pid)[1])

    def alive(self) -> bool:
        """True while it runs; a zombie does not."""
        try:
            state, ticks, _ = _stat(self.pid)
        except ProcessLookupError:
            return False
        return ticks == self.start_ticks and state not in "ZX"

    def signal(self, number: int) -> bool:
        """Send a signal; False when the process is gone."""
        if not self.alive():
            return False
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            return False
        return True

    def end(self, timeout_seconds: float = 120) -> None:
        """Kill it and wait until it is gone; `TimeoutError` if it stays."""
        self.signal(signal.SIGKILL)
        deadline = time.monotonic() + timeout_seconds
        while self.alive():
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"process {self.pid} is still there after SIGKILL; with it:\n"
                    + "\n".join(_members(self.pid))
                )
            time.sleep(0.02)


def _members(init_pid: int) -> list[str]:
    """What still is, on the host of a first process, and where in the kernel it is."""
    lines = []
    for pid in [init_pid, *descendants(init_pid)]:
        status = _status(pid)
        words = [f"{name} {status.get(name)}" for name in ("NSpid", "Name", "State", "PPid")]
        with contextlib.suppress(OSError):
            words.append(pathlib.Path(f"/proc/{pid}/stack").read_text().replace("\n", " < "))
        lines.append(" ".join(words))
    return lines


def _status(pid: int) -> dict[str, str]:
    try:
        text = pathlib.Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return {}
    pairs = (line.partition(":") for line in text.splitlines())
    return {name: value.strip() for name, _, value in pairs}


def _stat(pid: int) -> tuple[str, int, int]:
    """State letter, start time and parent of a process, from /proc/PID/stat."""
    try:
        text = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        raise ProcessLookupError(pid) from None
    # The name may hold spaces and brackets: the fields begin after its last one.
    fields = text[text.rindex(")") + 2 :].split()
    return fields[0], int(fields[19]), int(fields[1])


def descendants(pid: int) -> list[int]:
    """Process IDs below `pid`, parents before children."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                children.setdefault(_stat(int(entry))[2], []).append(int(entry))
            except ProcessLookupError:
                continue
    result = list(children.get(pid, []))
    for child in result:
        result += children.get(child, [])
    return result


def seen_from_outside(init: Process, inner_pid: int) -> Process | None:
    """The process that has `inner_pid` on the host of `init`, or None."""
    try:
        space = os.readlink(f"/proc/{init.pid}/ns/pid")
    except FileNotFoundError:
        return None
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            if os.readlink(f"/proc/{entry}/ns/pid") != space:
                continue
            text = pathlib.Path(f"/proc/{entry}/status").read_text()
            numbers = text.split("\nNSpid:", 1)[1].split("\n", 1)[0].split()
            if int(numbers[-1]) == inner_pid:
                return Process.of(int(entry))
        except OSError:
            # Ended meanwhile, or not accessible.
            continue
    return None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """What a host is made of."""

    #: Host name.
    name: str
    #: Folder that becomes the host's read-only root; None for the switch, which needs none.
    root: str | None = None
    #: (folder of this machine, place on the host, read-only), mounted in this order.
    binds: tuple[tuple[str, str, bool], ...] = ()
    #: Number of devices /dev/nvidia0.. that stand for GPUs.
    gpus: int = 0
    #: cgroup v1 folder of this host by controller, already made.
    cgroups: Mapping[str, str] = dataclasses.field(default_factory=dict)


def start(plan: Plan, *, tie: int, locks: Sequence[int]) -> tuple[Process, subprocess.Popen[str]]:
    """Start a host; call `wait_ready` with what it returns before using it.

    `tie` is the reading end of a pipe: the host ends at its end of file, and stays for good once
    it has read one byte. `locks` are file descriptors that the host keeps open as long as it lives.
    """
    argument = json.dumps({**dataclasses.asdict(plan), "tie": tie})
    starter = subprocess.Popen(
        [sys.executable, "-I", __file__, argument],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        pass_fds=(tie, *locks),
    )
    assert starter.stdout is not None
    line = starter.stdout.readline()
    if not line.strip().isdigit():
        with starter:
            raise _failed(plan.name, starter, line + starter.stdout.read())
    return Process.of(int(line)), starter


def wait_ready(name: str, starter: subprocess.Popen[str]) -> None:
    """Wait until a host's mounts are there; `HostError` if they failed."""
    assert starter.stdout is not None
    # Not `communicate`: with a time-out it reads past the buffer, which may hold all there is.
    with starter:
        text = starter.stdout.read()
    if text.splitlines()[-1:] != ["ready"]:
        raise _failed(name, starter, text)


def _failed(name: str, starter: subprocess.Popen[str], words: str) -> HostError:
    # A negative number is the signal that ended it.
    status = starter.wait()
    return HostError(f"host {name} did not start (exit status {status}): {words.strip()}")


def connect(switch: Process, hosts: Mapping[str, tuple[Process, str]]) -> None:
    """Give each host (its first process and IPv4 address) an eth0 on the switch's bridge."""
    ports = [f"link add {BRIDGE} type bridge", f"link set {BRIDGE} up"]
    for name, (init, _) in hosts.items():
        ports.append(f"link add {name} type veth peer name eth0 netns {init.pid}")
        ports.append(f"link set {name} master {BRIDGE} up")
    _ip(switch, ports)
    for init, address in hosts.values():
        lines = [f"addr add {address}/24 brd + dev eth0", "link set eth0 up", "link set lo up"]
        _ip(init, lines)


def set_links(switch: Process, names: Sequence[str], up: bool) -> None:
    """Plug the cables of hosts in or out."""
    _ip(switch, [f"link set {name} {'up' if up else 'down'}" for name in names])


def _ip(namespace: Process, lines: Sequence[str]) -> None:
    argv = ["nsenter", "-t", str(namespace.pid), "--net", "ip", "-batch", "-"]
    done = subprocess.run(argv, input="\n".join(lines), capture_output=True, text=True)
    if done.returncode:
        raise HostError(f"ip failed: {done.stderr.strip()}")


def enter_command(init: Process) -> list[str]:
    """The words before a command that make it run on a host."""
    spaces = ["--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup"]
    return ["nsenter", "-t", str(init.pid), *spaces, "--root", "--wd", "--"]


# ---- from here on: the host's first process; the standard library only, loaded before the root
# ---- changes, since the host's root has another Python


class _Libc:
    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)

    def _check(self, result: int, what: str) -> None:
        if result:
            number = ctypes.get_errno()
            raise OSError(number, f"{what}: {os.strerror(number)}")

    def unshare(self, flags: int) -> None:
        self._check(self._libc.unshare(flags), "unshare")

    def mount(self, source: str, target: str, kind: str, flags: int = 0, data: str = "") -> None:
        words = [word.encode() for word in (source, target, kind)]
        result = self._libc.mount(*words, ctypes.c_ulong(flags), data.encode())
        self._check(result, f"mount {source} {target} {kind} {data}")

    def bind(self, source: str, target: str, *, read_only: bool) -> None:
        self.mount(source, target, "", MS_BIND)
        if read_only:
            self.mount("", target, "", MS_BIND | MS_REMOUNT | MS_RDONLY)

    def detach(self, target: str) -> None:
        self._check(self._libc.umount2(target.encode(), MNT_DETACH), f"umount {target}")


def _mount_all(libc: _Libc, plan: dict[str, Any]) -> None:
    root = plan["root"]
    libc.mount("", "/", "", MS_REC | MS_PRIVATE)
    libc.bind(root, root, read_only=True)
    libc.mount("proc", f"{root}/proc", "proc")
    libc.mount("sysfs", f"{root}/sys", "sysfs")
    libc.mount("tmpfs", f"{root}/dev", "tmpfs", MS_NOSUID, "mode=755,size=1m")
    for name in ("run", "tmp", "var/tmp"):
        mode = "755" if name == "run" else "1777"
        libc.mount("tmpfs", f"{root}/{name}", "tmpfs", MS_NOSUID | MS_NODEV, f"mode={mode}")
    gpus = {f"nvidia{number}": DEVICES["null"] for number in range(plan["gpus"])}
    for name, (major, minor) in {**DEVICES, **gpus}.items():
        os.mknod(f"{root}/dev/{name}", stat.S_IFCHR, os.makedev(major, minor))
        os.chmod(f"{root}/dev/{name}", 0o666)
    for name, target in (
        ("fd", "/proc/self/fd"),
        ("stdin", "/proc/self/fd/0"),
        ("stdout", "/proc/self/fd/1"),
        ("stderr", "/proc/self/fd/2"),
        ("ptmx", "pts/ptmx"),
    ):
        os.symlink(target, f"{root}/dev/{name}")
    os.mkdir(f"{root}/dev/pts")
    os.mkdir(f"{root}/dev/shm")
    libc.mount("devpts", f"{root}/dev/pts", "devpts", 0, "newinstance,ptmxmode=0666,mode=620")
    libc.mount("tmpfs", f"{root}/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777")
    # slurmd 22.05 wants something to be mounted here even when it is to use no cgroups.
    libc.mount("tmpfs", f"{root}/sys/fs/cgroup", "tmpfs", 0, "mode=755,size=1m")
    for controller, folder in plan["cgroups"].items():
        os.mkdir(f"{root}/sys/fs/cgroup/{controller}")
        libc.bind(folder, f"{root}/sys/fs/cgroup/{controller}", read_only=False)
    for source, target, read_only in plan["binds"]:
        libc.bind(source, root + target, read_only=read_only)
    os.chdir(root)
    subprocess.run(["pivot_root", ".", "mnt"], check=True)
    os.chdir("/")
    libc.detach("/mnt")


def _watch(tie: int) -> None:
    """Reap child processes, as PID 1 must; return when the other end of the pipe is closed."""
    reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    watched = [reader, tie]
    while True:
        ready, _, _ = select.select(watched, [], [])
        if tie in ready:
            if not os.read(tie, 1):
                return
            watched.remove(tie)
        if reader in ready:
            os.read(reader, 4096)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            continue


def _first_process(libc: _Libc, plan: dict[str, Any]) -> None:
    os.setsid()
    socket.sethostname(plan["name"])
    if plan["root"] is not None:
        _mount_all(libc, plan)
    print("ready", flush=True)
    nothing = os.open("/dev/null", os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nothing, number)
    _watch(plan["tie"])


def main(argument: str) -> None:
    """Start the host described by `argument`; print its first process's ID, then `ready`."""
    plan = json.loads(argument)
    libc = _Libc()
    for folder in plan["cgroups"].values():
        pathlib.Path(folder, "cgroup.procs").write_text(str(os.getpid()))
    flags = CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWNET | CLONE_NEWPID
    libc.unshare(flags | (CLONE_NEWCGROUP if plan["cgroups"] else 0))
    reader, writer = os.pipe()
    child = os.fork()
    if child:
        print(child, flush=True)
        os._exit(0)
    os.close(writer)
    # End of file means that the line above is out: it must come before "ready".
    os.read(reader, 1)
    os.close(reader)
    _first_process(libc, plan)


if __name__ == "__main__":
    main(sys.argv[1])
