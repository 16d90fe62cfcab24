"""PostgreSQL on a host of the lab, with access by password over the lab's network."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from tests.cluster import daemons
from tests.cluster import lab as cluster

NETWORK = "10.77.0.0/24"
SETTINGS = f"""
listen_addresses = '*'
unix_socket_directories = '{daemons.POSTGRES}'
external_pid_file = '{daemons.POSTGRES}/pid'
# A cluster that is thrown away need not survive a power cut.
fsync = off
"""
MAKE = f"""
set -e
mkdir -p {daemons.POSTGRES}
chown postgres: {daemons.POSTGRES}
rm -rf {daemons.POSTGRES}/data
{daemons.AS_POSTGRES} /usr/lib/postgresql/*/bin/initdb --no-sync -E UTF8 --locale=C \
    --auth-local=trust --auth-host=scram-sha-256 -D {daemons.POSTGRES}/data >/dev/null
cd {daemons.POSTGRES}/data
cat >>postgresql.conf
echo "host all all {NETWORK} scram-sha-256" >>pg_hba.conf
"""


@contextlib.contextmanager
def running(lab: cluster.Lab, host: str) -> Iterator[None]:
    """Make an empty server on a host, and end it."""
    done = lab.run(["sh", "-c", MAKE], user="root", host=host, input=SETTINGS)
    assert done.returncode == 0, done.stderr
    lab.start("postgres", host)
    try:
        lab.wait_for(lambda: not _psql(lab, host, "SELECT 1")[1], 60, "PostgreSQL to answer")
        yield
    finally:
        lab.retire("postgres", host)


def make(lab: cluster.Lab, host: str, name: str, *, user: str, password: str) -> str:
    """Make a database of a user's and return its URL; the password goes into ~/.pgpass."""
    words = f"CREATE ROLE {user} LOGIN PASSWORD '{password}'"
    run(lab, host, f"DO $$BEGIN {words}; EXCEPTION WHEN duplicate_object THEN END$$")
    run(lab, host, f"CREATE DATABASE {name} OWNER {user}")
    lab.write(f"/home/{user}/.pgpass", f"{host}:5432:*:{user}:{password}\n", user, 0o600)
    return f"postgresql://{user}@{host}/{name}"


def run(lab: cluster.Lab, host: str, statement: str, database: str = "postgres") -> list[str]:
    """Run a statement as the server's own user and return its lines."""
    out, err = _psql(lab, host, statement, database)
    assert not err, f"{statement}: {err}"
    return out.splitlines()


def _psql(
    lab: cluster.Lab, host: str, statement: str, database: str = "postgres"
) -> tuple[str, str]:
    argv = ["psql", "-X", "-q", "-t", "-A", "-h", daemons.POSTGRES, "-U", "postgres"]
    done = lab.run(
        [*argv, "-d", database, "-v", "ON_ERROR_STOP=1", "-c", statement], user="root", host=host
    )
    return done.stdout, done.stderr if done.returncode else ""
