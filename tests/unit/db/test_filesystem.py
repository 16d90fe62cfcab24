"""Which file systems may hold the database, from lines of /proc/self/mounts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from db.sqlite import filesystem
from orchestrator import errors

MOUNTS = r"""/dev/vda / ext4 rw,relatime,discard 0 0
tmpfs /dev/shm tmpfs rw,relatime,size=24682416k 0 0
nas:/home /home nfs4 rw,relatime,vers=4.2,hard,proto=tcp,local_lock=none 0 0
/dev/sdb1 /home/ann/My\040Disk xfs rw 0 0
nas:/old /old nfs rw,vers=3,nolock,mountproto=tcp,local_lock=all 0 0
nas:/mixed /mixed nfs rw,vers=3,local_lock=flock 0 0
nas:/posix /posix nfs rw,vers=3,local_lock=posix 0 0
10.0.0.1@o2ib:/scratch /scratch lustre rw,flock,lazystatfs 0 0
10.0.0.1@o2ib:/scratch2 /scratch2 lustre rw,localflock 0 0
ann@host:/ /mnt/remote fuse.sshfs rw,nosuid,nodev,user_id=1000 0 0
gpfs0 /gpfs gpfs rw 0 0
beegfs_nodev /bee beegfs rw,cfgFile=/etc/beegfs/beegfs-client.conf 0 0
//nas/win /win cifs rw,vers=3.1.1,nobrl 0 0
overlay /var/lib/containers overlay rw,lowerdir=/a,upperdir=/b 0 0
default /weka wekafs rw 0 0
nas:/vol /gluster fuse.glusterfs rw 0 0
nas:/again /again nfs4 rw,local_lock=none 0 0
tmpfs /again tmpfs rw 0 0
a line that is none
"""


@pytest.mark.parametrize(
    ("path", "result"),
    [
        ("/var/lib/x.db", filesystem.Locality.LOCAL),
        ("/dev/shm/x.db", filesystem.Locality.LOCAL),
        ("/var/lib/containers/x.db", filesystem.Locality.LOCAL),
        ("/home/ann/My Disk/x.db", filesystem.Locality.LOCAL),
        ("/again/x.db", filesystem.Locality.LOCAL),
        ("/home/ann/x.db", filesystem.Locality.NETWORK),
        ("/homework/x.db", filesystem.Locality.LOCAL),
        ("/mixed/x.db", filesystem.Locality.NETWORK),
        ("/scratch/x.db", filesystem.Locality.NETWORK),
        ("/gpfs/x.db", filesystem.Locality.NETWORK),
        ("/gluster/x.db", filesystem.Locality.NETWORK),
        ("/weka/x.db", filesystem.Locality.NETWORK),
    ],
)
def test_local_or_network(path: str, result: filesystem.Locality) -> None:
    mount = filesystem.find_mount(Path(path), MOUNTS)
    assert filesystem.classify(mount) is result


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("/old/x.db", "/old (nfs) cannot hold the database: mounted with nolock"),
        ("/posix/x.db", "/posix (nfs) cannot hold the database: mounted with local_lock=posix"),
        ("/scratch2/x.db", "/scratch2 (lustre) cannot hold the database: mounted with localflock"),
        ("/win/x.db", "/win (cifs) cannot hold the database: mounted with nobrl"),
        ("/bee/x.db", "/bee (beegfs) cannot hold the database: BeeGFS keeps file locks on one"),
        ("/mnt/remote/x.db", "/mnt/remote (fuse.sshfs) cannot hold the database: sshfs keeps file"),
    ],
)
def test_locks_that_stay_on_one_host_are_refused(path: str, why: str) -> None:
    mount = filesystem.find_mount(Path(path), MOUNTS)
    with pytest.raises(errors.DatabaseError) as refusal:
        filesystem.classify(mount)
    assert str(refusal.value).startswith(why)
    assert str(refusal.value).endswith(
        "Set state_dir to a local disk; a database that several hosts share needs PostgreSQL."
    )


def test_this_machine_is_readable() -> None:
    mounts = Path("/proc/self/mounts").read_text()
    assert filesystem.find_mount(Path("/"), mounts) is not None


def test_lock_proof(tmp_path: Path) -> None:
    filesystem.prove_locks(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_lock_proof_fails_if_locks_do_not_exclude(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filesystem, "_try_lock", lambda descriptor, path: True)
    with pytest.raises(errors.DatabaseError, match="a second process gets the lock too"):
        filesystem.prove_locks(tmp_path)


OTHER_PROCESS = """
import pathlib, sys
from orchestrator import errors
from db.sqlite import filesystem
try:
    with filesystem.file_lock(pathlib.Path(sys.argv[1]), timeout_seconds=0.05):
        print("got it")
except errors.DatabaseLockedError as error:
    print(error)
"""


def test_lock_is_private_and_given_up_in_time(tmp_path: Path) -> None:
    path = tmp_path / "x.lock"
    command = [sys.executable, "-c", OTHER_PROCESS, str(path)]
    root = Path(filesystem.__file__).parents[1]
    with filesystem.file_lock(path, timeout_seconds=1):
        assert path.stat().st_mode & 0o777 == 0o600
        assert subprocess.check_output(command, cwd=root, text=True) == (
            f"{path} has been locked by another process for 0.05 s. "
            f"`fuser {path}` on its host shows which one; try again when it has ended.\n"
        )
    assert subprocess.check_output(command, cwd=root, text=True) == "got it\n"
