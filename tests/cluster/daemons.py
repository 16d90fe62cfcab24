"""The daemons of the cluster: commands and PID files."""

from __future__ import annotations

import dataclasses

from tests.cluster import configuration

LOG = f"{configuration.LAB}/log"
#: The PostgreSQL that orchestrator's own tables may lie in; see postgres.py.
POSTGRES = f"{configuration.LAB}/postgresql"
#: MariaDB's socket, for its client, whose default differs by release.
SOCKET = "--socket=/run/mysqld/mysqld.sock"

# A daemon's own cgroup is its host's, so that Slurm's limits and counts stay on that host.
# Arguments: file for its talk, `wait` or `go`, then the command.
START = """
for procs in /sys/fs/cgroup/*/cgroup.procs; do
  [ -e "$procs" ] && echo $$ >"$procs"
done
log=$1; how=$2; shift 2
if [ "$how" = wait ]; then exec "$@" >>"$log" 2>&1 </dev/null; fi
setsid "$@" >>"$log" 2>&1 </dev/null &
"""

AS_POSTGRES = "setpriv --reuid=postgres --regid=postgres --clear-groups"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Daemon:
    """One of the cluster's daemons."""

    #: Common name.
    name: str
    #: The command that starts it.
    argv: tuple[str, ...]
    #: Where it writes its process ID, on its host.
    pid_file: str
    #: It goes to the background by itself.
    detaches: bool = True

    def start_command(self, host: str) -> list[str]:
        """The command that starts it on `host`, as root there."""
        log = f"{LOG}/{self.name}-{host}.out"
        return ["sh", "-c", START, "start", log, "wait" if self.detaches else "go", *self.argv]


def daemon(name: str, host: str) -> Daemon:
    """The daemon of that name; `KeyError` for a name that the cluster has none of."""
    table = {
        "munged": Daemon(
            name="munged",
            argv=(
                *("setpriv", "--reuid=munge", "--regid=munge", "--clear-groups", "munged"),
                *("--pid-file=/run/munge/munged.pid", "--log-file=/run/munge/munged.log"),
                *("--seed-file=/run/munge/seed", "--force"),
            ),
            pid_file="/run/munge/munged.pid",
        ),
        "mariadbd": Daemon(
            name="mariadbd",
            argv=(
                *("mariadbd", "--no-defaults", "--user=mysql", "--bind-address=127.0.0.1"),
                *(f"--datadir={configuration.LAB}/mysql", SOCKET),
                *("--pid-file=/run/mysqld/mysqld.pid", "--innodb-buffer-pool-size=256M"),
                "--innodb-lock-wait-timeout=900",
                # With io_uring (Linux 6.18) a host was seen to stay for minutes after SIGKILL;
                # A known problem of MariaDB (MDEV-26674).
                "--innodb-use-native-aio=0",
                # slurmdbd: with it, which is MariaDB 11's default, a write that meets another ends
                # slurmdbd ("fatal").
                "--loose-innodb-snapshot-isolation=OFF",
                # A cluster that is thrown away need not survive a power cut.
                *("--innodb-flush-log-at-trx-commit=0", "--skip-innodb-doublewrite"),
            ),
            pid_file="/run/mysqld/mysqld.pid",
            detaches=False,
        ),
        "slurmdbd": Daemon(name="slurmdbd", argv=("slurmdbd",), pid_file="/run/slurmdbd.pid"),
        "slurmctld": Daemon(
            name="slurmctld",
            # Without -i, 26.05 refuses state that is half written (killed before its first save).
            argv=("slurmctld", "-i"),
            pid_file="/run/slurmctld.pid",
        ),
        "postgres": Daemon(
            name="postgres",
            # Debian keeps it in a folder of its version; it refuses to run as root.
            argv=(
                "sh",
                "-c",
                f"exec {AS_POSTGRES} /usr/lib/postgresql/*/bin/postgres -D {POSTGRES}/data",
            ),
            pid_file=f"{POSTGRES}/pid",
            detaches=False,
        ),
        "slurmd": Daemon(name="slurmd", argv=("slurmd", "-N", host), pid_file="/run/slurmd.pid"),
    }
    return table[name]


# Folders in /run, which is empty when a host starts.
PREPARE = """
mkdir -p /run/munge /run/mysqld
chown munge: /run/munge
chown mysql: /run/mysqld
"""
