"""`orchestrator --host` through a real sshd: a node stands for a laptop, `ctl` is the host."""

from __future__ import annotations

import hashlib
import hmac
import importlib.metadata
import json
import os
import pathlib
import re
import signal
from collections.abc import Iterator

import pytest

import orchestrator
from orchestrator.controller.hosts import wheels as packing
from tests.cluster import hosts, laptop
from tests.cluster import lab as cluster
from tests.cluster import site as sites
from tests.cluster.laptop import Remote

#: Of the tokens that alice's codes come from.
SECRET = bytes.fromhex("00112233445566778899aabbccddeeff00112233")
PAM = """\
auth required pam_oath.so usersfile=/run/otp/users window=50 digits=6
account required pam_permit.so
session required pam_permit.so
"""
#: Prints the next line of a file, as a user who is asked for a code.
ASKPASS = """\
#!/bin/sh
echo "$1" >>{folder}/prompts
head -n 1 {folder}/codes
sed -i 1d {folder}/codes
"""


@pytest.fixture
def sshd() -> str:
    """The first lines of sshd's configuration."""
    return ""


@pytest.fixture
def remote(site: sites.Site, lab: cluster.Lab, sshd: str) -> Iterator[Remote]:
    with laptop.connected(lab, site, sshd) as made:
        yield made


def test_submit_follow_metrics_sweep_and_cancel(remote: Remote, lab: cluster.Lab) -> None:
    laptop.work(remote)
    (job, *_) = remote.site.items("status", "--all", "--name", "demo")

    def show_the_same() -> bool:
        return remote("show", job["job_id"]) == remote.site.run("show", job["job_id"]).stdout

    # What it used comes from the accounts, maybe between the two.
    lab.wait_for(show_the_same, 60, "the laptop and the login host to show the same")


def test_tcsh_as_login_shell(remote: Remote, lab: cluster.Lab) -> None:
    users = lab.run(["cat", "/etc/passwd"]).stdout.splitlines()
    changed = [
        line.rpartition(":")[0] + ":/bin/tcsh" if line.startswith("alice:") else line
        for line in users
    ]
    with laptop.replaced(lab, "/etc/passwd", "".join(f"{line}\n" for line in changed)):
        assert remote.ssh(command="echo $version").stdout.splitlines()[-1].startswith("tcsh ")
        laptop.work(remote)


def code_of(counter: int) -> str:
    """The one-time code of RFC 4226."""
    digest = hmac.digest(SECRET, counter.to_bytes(8), hashlib.sha1)
    at = digest[-1] & 15
    return f"{(int.from_bytes(digest[at : at + 4]) & 0x7FFFFFFF) % 1_000_000:06d}"


CODES = """\
UsePAM yes
KbdInteractiveAuthentication yes
AuthenticationMethods publickey,keyboard-interactive
"""


@pytest.mark.parametrize("sshd", [CODES], ids=["PAM"])
def test_one_time_codes(remote: Remote, lab: cluster.Lab) -> None:
    folder = f"{remote.folder}/otp"
    lab.write(f"{folder}/codes", "".join(f"{code_of(n)}\n" for n in range(40)))
    lab.write(f"{folder}/askpass", ASKPASS.format(folder=folder), mode=0o755)
    make = f"mkdir -p -m 700 /run/otp; echo HOTP alice - {SECRET.hex()} >/run/otp/users"
    assert lab.run(["sh", "-c", make], user="root").returncode == 0
    remote = Remote(
        remote.site,
        remote.folder,
        {"SSH_ASKPASS": f"{folder}/askpass", "SSH_ASKPASS_REQUIRE": "force"},
    )

    def prompts() -> int:
        path = lab.path(f"{folder}/prompts")
        return len(path.read_text().splitlines()) if path.exists() else 0

    with laptop.replaced(lab, "/etc/pam.d/sshd", PAM):
        # Each call logs in, and asks once.
        for _ in range(2):
            remote("status")
        assert prompts() == 2
        assert remote.here("doctor", "--host", "mill").returncode == 0
        assert prompts() == 3
        # One login serves all calls: of a shared connection, and of ssh's master.
        connecting = remote.popen("connect", "mill")
        assert connecting.stderr is not None
        assert connecting.stderr.readline() == "Connected to ctl; Ctrl-C ends the connection.\n"
        laptop.work(remote)
        assert prompts() == 4
        lab.kill(connecting, signal.SIGINT)
        connecting.communicate(timeout=60)
        assert remote.ssh("-M", "-f", "-N", "-o", "ControlPersist=60").returncode == 0
        for _ in range(3):
            remote("status")
        assert prompts() == 5
        remote.ssh("-O", "exit")
        # Three wrong ones.
        lab.write(f"{folder}/codes", "000000\n" * 5)
        done = remote.run("status")
        assert done.returncode == 255
        assert done.stderr.splitlines()[-1] == (
            "Error: ssh cannot connect to mill, see its message above: `ssh mill` has to work first"
        )
        assert "Permission denied" in done.stderr


def test_a_log_is_followed_over_a_connection_that_breaks(remote: Remote) -> None:
    steps = 100
    remote.site.lab.write(f"{remote.folder}/project/train.py", laptop.TRAIN.format(steps=steps))
    job_id = remote("submit", "demo.toml", "--parsable").strip()
    following = remote.popen("--host", "mill", "logs", job_id, "--follow", "--lines", str(steps))
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
    assert (seen + out).endswith(laptop.lines(steps)), seen + out


@pytest.mark.parametrize("sshd", ["MaxSessions 1"])
def test_a_master_connection_with_one_session(remote: Remote) -> None:
    assert remote.ssh("-M", "-f", "-N", "-o", "ControlPersist=60").returncode == 0
    job_id = remote("submit", "demo.toml", "--parsable").strip()
    following = remote.popen("--host", "mill", "logs", job_id, "--follow")
    assert following.stdout is not None
    following.stdout.readline()
    # The only session is taken: ssh logs in again by itself.
    assert job_id in remote("status", "--all")
    following.communicate(timeout=120)
    assert following.returncode == 0
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


def wheels(lab: cluster.Lab, folder: str) -> None:
    """Write what orchestrator needs into a folder, packed from the environment of the hosts."""
    (packages,) = lab.path(sites.ENVIRONMENT).glob("lib/python3.*/site-packages")
    names, seen = ["orchestrator"], set[str]()
    while names:
        name = re.split(r"[^\w.-]", names.pop())[0].lower().replace("_", "-")
        if name in seen:
            continue
        seen.add(name)
        if name == "orchestrator":
            file, content = packing.of_this_version(os.environ)
            needed = importlib.metadata.requires("orchestrator") or []
        else:
            (found,) = importlib.metadata.distributions(name=name, path=[str(packages)])
            file, content = packing.packed(found)
            needed = found.requires or []
        path = lab.path(f"{folder}/{file}")
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
        names += [
            line for line in needed if not re.search(r"extra ==|python_version < \"3.1[0-3]", line)
        ]


def test_orchestrator_is_installed_on_a_host_without_it(remote: Remote, lab: cluster.Lab) -> None:
    remote.configure(folder=remote.site.home)
    done = remote.here("doctor", "--host", "mill", "--json")
    checks = {item["check"]: item for item in json.loads(done.stdout)["items"]}
    assert {name: item["outcome"] for name, item in checks.items()} == {
        "ssh": "ok",
        "start-up files": "warning",
        "orchestrator": "bad",
        "Python": "ok",
        "slurm commands": "ok",
        "clock": "ok",
    }
    # The hosts of the cluster have no way out.
    wheels(lab, f"{remote.folder}/wheels")
    done = remote.here("setup", "--host", "mill", "--wheels", f"{remote.folder}/wheels")
    assert done.returncode == 0, done.stderr
    installed, link, remove = done.stderr.splitlines()[-3:]
    version = orchestrator.__version__
    share = "/home/alice/.local/share/orchestrator/install"
    assert installed.startswith(f"orchestrator {version} is installed on ctl: {share}/{version}-")
    assert link == "/home/alice/.local/bin/orchestrator starts it."
    assert remove == (f"To remove it: ssh mill 'rm -r {share} /home/alice/.local/bin/orchestrator'")
    try:
        assert remote.here("doctor", "--host", "mill").returncode == 0
        # It is found although no start-up file was changed, and it is not that of the checkout.
        shown = remote("db", "path").strip()
        assert shown == "/home/alice/.local/state/orchestrator/orchestrator.db"
        job_id = remote("submit", "demo.toml", "--parsable").strip()
        remote("cancel", job_id)
        again = remote.here("setup", "--host", "mill", "--wheels", f"{remote.folder}/wheels")
        assert (again.returncode, again.stderr.splitlines()) == (
            0,
            [installed.replace("is installed", "is already installed"), link, remove],
        )
    finally:
        remote.ssh(command=f"rm -r {share} /home/alice/.local")
    assert remote.run("status").returncode == 255
