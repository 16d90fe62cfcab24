"""`orchestrator --host` through a real sshd: a node stands for a laptop, `ctl` is the host."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import signal
import subprocess
import time
from collections.abc import Callable, Iterator

import pytest

from tests.cluster import hosts
from tests.cluster import lab as cluster
from tests.cluster import site as sites

LAPTOP = "n4"
PORT = 2222
SSHD = """\
Port {port}
ListenAddress 0.0.0.0
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/alice_key.pub
PidFile {folder}/sshd.pid
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
StrictModes no
PrintMotd yes
MaxSessions {max_sessions}
"""
SSH = """\
Host mill
  HostName ctl
  Port {port}
  User alice
  IdentityFile {folder}/alice_key
  UserKnownHostsFile {folder}/known_hosts
  StrictHostKeyChecking yes
  ControlPath /tmp/%C
  ControlMaster no
"""
SPEC = """\
[job]
name = "{name}"
time_limit = "00:05:00"
[launch]
script = "train.py"
"""
TRAIN = """\
import time
for step in range({steps}):
    print(f"step {{step}} loss {{1 / (step + 1):.4f}}", flush=True)
    time.sleep(0.2)
"""


@dataclasses.dataclass(frozen=True)
class Remote:
    """A laptop of alice's, and her orchestrator on the login host."""

    site: sites.Site
    folder: str

    def __call__(self, *argv: str, timeout_seconds: float = 240) -> str:
        """Run a command with --host, which must succeed; its stdout."""
        done = self.run(*argv, timeout_seconds=timeout_seconds)
        assert done.returncode == 0, f"{argv}: {done.returncode}\n{done.stderr}"
        return done.stdout

    def run(self, *argv: str, timeout_seconds: float = 240) -> subprocess.CompletedProcess[str]:
        return self.site.lab.run(
            ["orchestrator", "--host", "mill", *argv],
            **self._where,  # type: ignore[arg-type]
            timeout_seconds=timeout_seconds,
        )

    def popen(self, *argv: str) -> subprocess.Popen[str]:
        return self.site.lab.popen(["orchestrator", "--host", "mill", *argv], **self._where)

    def ssh(self, *options: str, command: str = "") -> subprocess.CompletedProcess[str]:
        """Call ssh itself."""
        words = ["ssh", "-F", f"{self.folder}/ssh_config", *options, "mill", *command.split()]
        return self.site.lab.run(words, **self._where)  # type: ignore[arg-type]

    @property
    def _where(self) -> dict[str, object]:
        environ = {"XDG_CONFIG_HOME": f"{self.folder}/config", "HOME": self.folder}
        return {"host": LAPTOP, "env": environ, "cwd": f"{self.folder}/project"}


@pytest.fixture
def max_sessions() -> int:
    return 10


@pytest.fixture
def remote(site: sites.Site, lab: cluster.Lab, max_sessions: int) -> Iterator[Remote]:
    folder = f"{site.home}/laptop"
    lab.make_folder(folder)
    for name in ("host_key", "alice_key"):
        words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", f"{folder}/{name}"]
        assert lab.run(words).returncode == 0
    public = lab.read(f"{folder}/host_key.pub")
    lab.write(f"{folder}/known_hosts", f"[ctl]:{PORT} {public}")
    sshd = SSHD.format(port=PORT, folder=folder, max_sessions=max_sessions)
    lab.write(f"{folder}/sshd_config", sshd)
    lab.write(f"{folder}/ssh_config", SSH.format(port=PORT, folder=folder))
    command = [
        *("env", f"XDG_CONFIG_HOME={site.home}/config"),
        *(f"{sites.ENVIRONMENT}/bin/orchestrator", "agent", "--stdio"),
    ]
    lab.write(
        f"{folder}/config/orchestrator/config.toml",
        f'state_dir = "{folder}/state"\n[hosts.mill]\n'
        f'ssh_options = ["-F", "{folder}/ssh_config"]\nremote_command = {json.dumps(command)}\n'
        f'folder = "{site.home}"\n',
    )
    lab.write(f"{folder}/project/.git/HEAD", "")
    lab.write(f"{folder}/project/train.py", TRAIN.format(steps=10))
    lab.write(f"{folder}/project/demo.toml", SPEC.format(name="demo"))
    # As in many start-up files.
    lab.write("/home/alice/.bashrc", 'echo "Welcome to the cluster, $USER"\n')
    lab.make_folder("/run/sshd", "root")
    server = lab.popen(["/usr/sbin/sshd", "-D", "-e", "-f", f"{folder}/sshd_config"], user="root")
    try:
        made = Remote(site, folder)
        lab.wait_for(lambda: lab.path(f"{folder}/sshd.pid").exists(), 60, "sshd to start", 0.2)
        done = made.ssh(command="true")
        assert done.returncode == 0, done.stderr
        yield made
    finally:
        made.ssh("-O", "exit")
        lab.kill_tree(server)
        server.communicate()
        lab.path("/home/alice/.bashrc").unlink()


def test_submit_follow_metrics_sweep_and_cancel(remote: Remote) -> None:
    out = remote("submit", "demo.toml", "--parsable")
    job_id = out.strip()
    assert job_id.isdigit()
    log = remote("logs", job_id, "--follow")
    assert log.endswith("".join(f"step {n} loss {1 / (n + 1):.4f}\n" for n in range(10)))
    assert '"loss"' in remote("metrics", job_id, "--json")
    lab = remote.site.lab
    lab.write(f"{remote.folder}/project/train.py", TRAIN.format(steps=1000))
    lab.write(
        f"{remote.folder}/project/sweep.toml",
        SPEC.format(name="grid") + '[sweep]\nkind = "grid"\n[sweep.axes]\n"args.lr" = [1, 2]\n',
    )
    remote("sweep", "submit", "sweep.toml")
    remote("cancel", "--sweep", "grid")
    items = json.loads(remote("sweep", "status", "grid", "--json"))["items"]
    assert {item["state"] for item in items} == {"CANCELLED"}
    assert remote.run("explain", job_id).returncode == 0
    here, there = remote.site.run("show", job_id), remote("show", job_id)
    assert there == here.stdout


def test_a_log_is_followed_over_a_connection_that_breaks(remote: Remote) -> None:
    steps = 100
    remote.site.lab.write(f"{remote.folder}/project/train.py", TRAIN.format(steps=steps))
    job_id = remote("submit", "demo.toml", "--parsable").strip()
    following = remote.popen("logs", job_id, "--follow", "--lines", str(steps))
    assert following.stdout is not None
    seen = ""
    while "step 2 " not in seen:
        seen += following.stdout.readline()
    killed = 0
    for pid in hosts.descendants(following.pid):
        if pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"ssh\0"):
            killed += hosts.Process.of(pid).signal(signal.SIGKILL)
    assert killed == 1
    # Not communicate(): what readline() has read ahead would be lost.
    out = following.stdout.read()
    _, err = following.communicate(timeout=120)
    assert following.returncode == 0, err
    assert "The connection to mill broke. Connecting again ...\n" in err
    lines = "".join(f"step {n} loss {1 / (n + 1):.4f}\n" for n in range(steps))
    assert (seen + out).endswith(lines), seen + out


@pytest.mark.parametrize("max_sessions", [1])
def test_a_master_connection_with_one_session(remote: Remote, tell: Callable[[str], None]) -> None:
    assert remote.ssh("-M", "-f", "-N", "-o", "ControlPersist=60").returncode == 0
    job_id = remote("submit", "demo.toml", "--parsable").strip()
    following = remote.popen("logs", job_id, "--follow")
    assert following.stdout is not None
    following.stdout.readline()
    # The only session is taken: ssh logs in again by itself.
    assert job_id in remote("status", "--all")
    following.communicate(timeout=120)
    assert following.returncode == 0
    began = time.monotonic()
    for _ in range(20):
        remote("status")
    tell(f"a call over a master connection: {(time.monotonic() - began) / 20:.2f} s")
    assert remote.run("show", "1000000").returncode == 4


def test_a_wrong_key_is_explained(remote: Remote) -> None:
    remote.site.lab.path(f"{remote.folder}/alice_key").write_text("")
    done = remote.run("status")
    assert done.returncode == 255
    assert "Permission denied (publickey)" in done.stderr
    assert done.stderr.splitlines()[-1] == (
        "Error: ssh cannot connect to mill, see its message above: `ssh mill` has to work first"
    )


def test_an_unknown_host_key_is_never_accepted(remote: Remote) -> None:
    remote.site.lab.path(f"{remote.folder}/known_hosts").write_text("")
    done = remote.run("status")
    assert done.returncode == 255
    assert "Host key verification failed" in done.stderr
