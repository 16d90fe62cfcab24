"""What people read of the lease."""

from __future__ import annotations

from orchestrator import errors
from orchestrator.jobs import leases as records


def described(lease: records.Lease) -> str:
    """Return who holds the lease: the command, its process, its host, and since when."""
    if lease.holder is None:
        return "nobody"
    since = "" if lease.since is None else f", since {lease.since.astimezone():%Y-%m-%d %H:%M:%S}"
    return f"`{lease.command}` (process {lease.holder.pid} on {lease.holder.host}{since})"


def taken_over(lease: records.Lease | None) -> errors.FencedError:
    """Return the error for a controller whose lease another one took."""
    if lease is None or lease.holder is None:
        return errors.FencedError(
            "Another controller took over meanwhile and has ended; this one does nothing more."
        )
    return errors.FencedError(
        f"Another controller took over: {described(lease)}; this one does nothing more."
    )
