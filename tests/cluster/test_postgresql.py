"""The root file system of the cluster serves the PostgreSQL tests of the other tiers."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys

import pytest

from tests import debian_programs, postgresql
from tests.cluster import hosts, machine
from tests.cluster import lab as cluster

# Serves an empty database, prints its URL, and waits to be killed.
SERVE = """
import pathlib, sys, time
from tests import debian_programs, postgresql
folder, root = map(pathlib.Path, sys.argv[1:])
with postgresql.serving(debian_programs.Programs(folder, root)) as server:
    print(server.make(), flush=True)
    time.sleep(600)
"""
# The same for a user who is not root; there the root of the cluster is that of the host.
AS_ALICE = """
from pathlib import Path
from tests import debian_programs, postgresql
folder = debian_programs.newest(debian_programs.POSTGRESQL, Path("/"))
programs = debian_programs.Programs(folder, Path("/mnt"))
with postgresql.serving(programs) as server:
    pid = (server.folder / "data/postmaster.pid").read_text().split()[0]
    user_id = Path("/proc", pid).stat().st_uid
    print(user_id, server.execute("SHOW listen_addresses"))
    print(Path(f"/mnt{debian_programs.INSIDE}").exists())
"""


def test_a_server_in_the_root_file_system_ends_with_its_starter(
    running_lab: cluster.Lab, slurm_release: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(debian_programs, "installed", lambda package: None)
    with debian_programs.found(
        debian_programs.POSTGRESQL, machine.lab_dir(), slurm_release
    ) as programs:
        assert programs.root is not None
        argv = [sys.executable, "-c", SERVE, str(programs.folder), str(programs.root)]
        with subprocess.Popen(
            argv, cwd=cluster.CHECKOUT, stdout=subprocess.PIPE, text=True
        ) as starter:
            assert starter.stdout is not None
            url = starter.stdout.readline().strip()
            folder = pathlib.Path(url.partition("?host=")[2])
            pid = int((folder / "data/postmaster.pid").read_text().split()[0])
            server = hosts.Process.of(pid)
            assert pathlib.Path(f"/proc/{pid}").stat().st_uid == debian_programs.nobody()
            assert os.readlink(f"/proc/{pid}/exe") == f"{programs.folder}/postgres"
            assert os.readlink(f"/proc/{pid}/ns/net") != os.readlink("/proc/self/ns/net")
            assert postgresql.ask(url, "SELECT 1") == [(1,)]
            starter.kill()
        running_lab.wait_for(lambda: not server.alive(), 60, "the server to end")
        shutil.rmtree(folder)
        assert list((programs.root / "tmp").iterdir()) == []


def test_a_user_starts_a_server_in_the_root_file_system(running_lab: cluster.Lab) -> None:
    become = "exec setpriv --reuid=alice --regid=alice --init-groups -- python -c"
    words = ["unshare", "--mount", "sh", "-c", f'mount --bind / /mnt; {become} "$1"', "sh"]
    done = running_lab.run([*words, AS_ALICE], user="root", env={"HOME": "/home/alice"})
    assert (done.stdout, done.stderr) == ("2001 [('',)]\nFalse\n", "")
