"""Alice's laptop, which a node stands for, and sshd on the login host `ctl`."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tests.cluster import lab as cluster
from tests.cluster import site as sites

LAPTOP = "n4"
PORT = 2222
#: How the agent is started in the environment of the checkout.
AGENT = ("env", "XDG_CONFIG_HOME={home}/config", f"{sites.ENVIRONMENT}/bin/orchestrator")
# sshd uses the first value of each key.
SSHD = """\
{first}
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
    env: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def __call__(self, *argv: str, timeout_seconds: float = 240) -> str:
        """Run a command with --host, which must succeed; its stdout."""
        done = self.run(*argv, timeout_seconds=timeout_seconds)
        assert done.returncode == 0, f"{argv}: {done.returncode}\n{done.stderr}"
        return done.stdout

    def run(self, *argv: str, timeout_seconds: float = 240) -> subprocess.CompletedProcess[str]:
        return self.here("--host", "mill", *argv, timeout_seconds=timeout_seconds)

    def here(self, *argv: str, timeout_seconds: float = 240) -> subprocess.CompletedProcess[str]:
        """Run a command on the laptop."""
        return self.on_laptop(["orchestrator", *argv], timeout_seconds=timeout_seconds)

    def on_laptop(
        self, argv: Sequence[str], timeout_seconds: float = 240
    ) -> subprocess.CompletedProcess[str]:
        """Run any program on the laptop."""
        return self.site.lab.run(argv, **self._where, timeout_seconds=timeout_seconds)

    def popen(self, *argv: str) -> subprocess.Popen[str]:
        """Start a command on the laptop."""
        return self.site.lab.popen(["orchestrator", *argv], **self._where)

    def ssh(self, *options: str, command: str = "") -> subprocess.CompletedProcess[str]:
        """Call ssh itself."""
        words = ["ssh", "-F", f"{self.folder}/ssh_config", *options, "mill", *command.split()]
        return self.site.lab.run(words, **self._where)

    def configure(self, **keys: object) -> None:
        """Write the laptop's configuration; `keys` are of its table of the host."""
        table = {"ssh_options": ["-F", f"{self.folder}/ssh_config"], **keys}
        lines = [f"{key} = {json.dumps(value)}" for key, value in table.items()]
        self.site.lab.write(
            f"{self.folder}/config/orchestrator/config.toml",
            "\n".join([f'state_dir = "{self.folder}/state"', "[hosts.mill]", *lines, ""]),
        )

    @property
    def _where(self) -> dict[str, Any]:
        environ = {"XDG_CONFIG_HOME": f"{self.folder}/config", "HOME": self.folder, **self.env}
        return {"host": LAPTOP, "env": environ, "cwd": f"{self.folder}/project"}


@contextlib.contextmanager
def connected(lab: cluster.Lab, site: sites.Site, first: str = "") -> Iterator[Remote]:
    """Start sshd, and write what the laptop has. first: lines of sshd's configuration."""
    folder = f"{site.home}/laptop"
    lab.make_folder(folder)
    for name in ("host_key", "alice_key"):
        words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", f"{folder}/{name}"]
        assert lab.run(words).returncode == 0
    public = lab.read(f"{folder}/host_key.pub")
    lab.write(f"{folder}/known_hosts", f"[ctl]:{PORT} {public}")
    lab.write(f"{folder}/sshd_config", SSHD.format(port=PORT, folder=folder, first=first))
    lab.write(f"{folder}/ssh_config", SSH.format(port=PORT, folder=folder))
    made = Remote(site, folder)
    agent = [word.format(home=site.home) for word in AGENT]
    made.configure(remote_command=[*agent, "agent", "--stdio"], folder=site.home)
    lab.write(f"{folder}/project/.git/HEAD", "")
    lab.write(f"{folder}/project/train.py", TRAIN.format(steps=10))
    lab.write(f"{folder}/project/demo.toml", SPEC.format(name="demo"))
    # As in many start-up files.
    lab.write("/home/alice/.bashrc", 'echo "Welcome to the cluster, $USER"\n')
    lab.write("/home/alice/.cshrc", 'echo "Welcome to the cluster, $user"\n')
    lab.make_folder("/run/sshd", "root")
    server = lab.popen(["/usr/sbin/sshd", "-D", "-e", "-f", f"{folder}/sshd_config"], user="root")
    try:
        lab.wait_for(lambda: lab.path(f"{folder}/sshd.pid").exists(), 60, "sshd to start", 0.2)
        yield made
    finally:
        made.ssh("-O", "exit")
        lab.kill_tree(server)
        server.communicate()
        for name in (".bashrc", ".cshrc"):
            lab.path(f"/home/alice/{name}").unlink()


@contextlib.contextmanager
def replaced(lab: cluster.Lab, path: str, text: str) -> Iterator[None]:
    """Let a file of the login host's root, which is read-only, have another content."""
    draft = f"/run/replaced-{path.rpartition('/')[2]}"
    write = ["sh", "-c", f"cat >{draft} && mount --bind {draft} {path}"]
    done = lab.run(write, user="root", input=text)
    assert done.returncode == 0, done.stderr
    try:
        yield
    finally:
        assert lab.run(["umount", path], user="root").returncode == 0


def lines(steps: int) -> str:
    """What train.py prints."""
    return "".join(f"step {n} loss {1 / (n + 1):.4f}\n" for n in range(steps))


def work(remote: Remote) -> None:
    """Submit, follow, read metrics, submit a sweep and cancel it, through a login."""
    job_id = remote("submit", "demo.toml", "--parsable").strip()
    assert job_id.isdigit()
    assert remote("logs", job_id, "--follow").endswith(lines(10))
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
