"""sshd on the login host, and alice's commands that go through it from another host."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator, Mapping, Sequence

from tests.cluster import configuration
from tests.cluster import lab as cluster

_FOLDER = "/run/sshd-of-tests"
_CONFIGURATION = f"""\
ListenAddress {configuration.address(configuration.LOGIN_HOST)}
HostKey {_FOLDER}/host_key
AuthorizedKeysFile {_FOLDER}/authorized_keys
PidFile {_FOLDER}/sshd.pid
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
"""
_MAKE = f"""
set -e
mkdir -p /run/sshd {_FOLDER}
cat >{_FOLDER}/sshd_config
ssh-keygen -q -t ed25519 -N '' -f {_FOLDER}/host_key
ssh-keygen -q -t ed25519 -N '' -f {_FOLDER}/key
mv {_FOLDER}/key.pub {_FOLDER}/authorized_keys
cat {_FOLDER}/key
"""
_OPTIONS = ("IdentitiesOnly=yes", "StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null")


@contextlib.contextmanager
def serving(lab: cluster.Lab, key: str) -> Iterator[None]:
    """Run sshd on the login host; `key`: path of the private key that is made for alice."""
    done = lab.run(["sh", "-c", _MAKE], user="root", input=_CONFIGURATION)
    assert done.returncode == 0, done.stderr
    lab.write(key, done.stdout, mode=0o600)
    words = ["/usr/sbin/sshd", "-D", "-e", "-f", f"{_FOLDER}/sshd_config"]
    sshd = lab.popen(words, user="root")
    try:
        pid_file = lab.path(f"{_FOLDER}/sshd.pid")
        lab.wait_for(lambda: pid_file.exists() or sshd.poll() is not None, 60, "sshd to listen")
        assert sshd.poll() is None, sshd.communicate()[1]
        yield
    finally:
        lab.kill_tree(sshd)
        sshd.communicate()
        lab.run(["rm", "-r", _FOLDER], user="root")


def command(key: str, argv: Sequence[str], *, env: Mapping[str, str], cwd: str) -> list[str]:
    """Return the words that run a command on the login host, in a terminal of its own."""
    options = [word for option in (*_OPTIONS, "LogLevel=ERROR") for word in ("-o", option)]
    words = ["env", "-C", cwd, *(f"{name}={value}" for name, value in env.items()), *argv]
    ssh = ["ssh", "-F", "none", "-i", key, *options, "-t", configuration.LOGIN_HOST]
    return [*ssh, shlex.join(words)]
