"""doctor --host: what `orchestrator --host NAME` needs, each with its cure."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

import orchestrator
from orchestrator import config
from orchestrator.controller.remote import connection as connections
from orchestrator.controller.remote.connection import Remote
from orchestrator.controller.setup import site_checks
from orchestrator.controller.setup.site_checks import Check, bad, ok, warning
from orchestrator.processes import piped, process
from orchestrator.remote import explanations, framing, messages, probe
from orchestrator.text import escaping, nouns

#: A larger difference of clocks makes the ages of jobs and files misleading.
_MAX_CLOCK_SECONDS = 5
_SHOWN_CHARACTERS = 60
#: Of what a host prints: more than start-up files that still do no harm.
_MAX_BYTES = 4 * framing.MAX_NOISE_BYTES
_QUIET = "let it print only on a terminal; for bash: `[[ $- == *i* ]] || return` before it"


class NoisyHostError(connections.ConnectionFailedError):
    """The host prints without end."""


def examine(remote: Remote, environ: Mapping[str, str]) -> Iterator[Check]:
    """Yield the checks of a host; one call of ssh, which may ask for a password."""
    try:
        code, output = ask(remote, environ, probe.script(remote.host.remote_command))
    except NoisyHostError as error:
        yield bad("start-up files", str(error), _QUIET)
        return
    except connections.ConnectionFailedError as error:
        yield bad("ssh", str(error), "install the OpenSSH client")
        return
    yield from checks(remote, code, probe.facts(output), time.time())


def ask(remote: Remote, environ: Mapping[str, str], script: bytes) -> tuple[int, bytes]:
    """Run a script on a host; return the exit code of ssh, and what came.

    Raises NoisyHostError, and ConnectionFailedError without ssh.
    """
    command = connections.ssh_command(remote, probe.COMMAND)
    try:
        return piped.converse(command, environ, script, limit_bytes=_MAX_BYTES)
    except process.CommandNotFound as error:
        raise connections.ConnectionFailedError(str(error)) from error
    except process.TooMuchOutputError as error:
        noise = explanations.too_much_noise(remote.name, _MAX_BYTES)
        raise NoisyHostError(noise) from error


def checks(remote: Remote, code: int, facts: probe.Facts, now: float) -> Iterator[Check]:
    """Yield the checks of what a host printed.

    code: exit code of ssh. now: seconds since 1970, when the script had ended.
    """
    yield from _connection(remote, code, facts)
    if facts.greeting is None and not facts.is_complete:
        return
    yield _start_up_files(facts)
    yield _agent(remote, facts)
    if not facts.is_complete:
        return
    yield python_check(facts)
    yield _slurm(remote, facts)
    if (seconds := facts.number("clock")) is not None:
        yield _clock(now - seconds)


def _connection(remote: Remote, code: int, facts: probe.Facts) -> Iterator[Check]:
    if facts.is_complete:
        yield ok("ssh", f"{remote.address} is {facts.first('host')}")
    elif facts.greeting is not None:
        found = f"{remote.address} is {facts.greeting.host}; this key may only start the agent"
        cure = "nothing to do; a key without command=... in authorized_keys shows more"
        yield warning("ssh", found, cure)
    elif code == explanations.OF_SSH:
        yield bad("ssh", *explanations.no_agent(remote.name, remote.address, code))
    else:
        shown = "; ".join(_lines(facts.noise)[:2])
        yield bad(
            "ssh",
            f"`{probe.COMMAND}` on {remote.address} ended with exit code {code} and did not run "
            f"the checks{f', but printed: {shown}' if shown else ''}",
            "the account needs a login shell that runs commands; a start-up file must not end it, "
            "start another program or read stdin",
        )


def _lines(noise: bytes) -> list[str]:
    lines = map(escaping.one_line, explanations.printed(noise))
    return [line[:_SHOWN_CHARACTERS] for line in lines]


def _start_up_files(facts: probe.Facts) -> Check:
    lines = _lines(facts.noise)
    if not lines:
        return ok("start-up files", "print nothing")
    found = f"print {nouns.count(len(lines), 'line')}: {lines[0]}"
    if len(facts.noise) > framing.MAX_NOISE_BYTES:
        return bad("start-up files", found, _QUIET)
    return warning("start-up files", found, f"harmless here, but scp fails: {_QUIET}")


def _agent(remote: Remote, facts: probe.Facts) -> Check:
    if (greeting := facts.greeting) is None:
        code = facts.number("agent-exit") or 0
        return bad("orchestrator", *explanations.no_agent(remote.name, remote.address, code))
    version = orchestrator.__version__
    if messages.common_protocol(messages.PROTOCOLS, greeting.protocols) is None:
        problem = explanations.no_common_protocol(remote.name, version, greeting)
        return bad("orchestrator", *problem)
    is_same = greeting.version == version
    here = "as here" if is_same else f"{version} here; they understand each other"
    return ok("orchestrator", f"{greeting.version}, {here}")


def python_check(facts: probe.Facts) -> Check:
    """Return whether orchestrator can be installed with a Python of the host."""
    pythons = facts.pythons
    suitable = next((each for each in pythons if each.has_venv), None)
    if suitable is not None:
        return ok("Python", f"{suitable.version}, {suitable.path}")
    result = bad if facts.greeting is None else warning
    new = next((each for each in pythons if each.is_new_enough), None)
    if new is not None:
        return result(
            "Python",
            f"{new.version}, {new.path}, has no venv and ensurepip",
            "install the package that has them (python3-venv), or name another Python: "
            "setup --python",
        )
    newest = max((each.version for each in pythons), key=_numbers, default="")
    return result(
        "Python",
        "3.11 or newer was not found" + (f", only {newest}" if newest else ""),
        "find one with `module avail python`, or install one without root: `uv python install "
        "3.12`, or conda; then name it: setup --python",
    )


def _numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".") if part.isdecimal()]


def _slurm(remote: Remote, facts: probe.Facts) -> Check:
    found, of_login = (set(facts.lines.get(key, ())) for key in ("command", "login-command"))
    missing = [name for name in site_checks.COMMANDS if name not in found]
    if not missing:
        return ok("slurm commands", "all on PATH")
    if of_login.issuperset(site_checks.COMMANDS):
        if "-lc" in remote.host.remote_command:
            return ok("slurm commands", "all on PATH of a login shell, which remote_command starts")
        words = config.Host().remote_command[-1]
        return bad(
            "slurm commands",
            "only on PATH of a login shell",
            f'set remote_command = ["bash", "-lc", "{words}"] in [hosts.{remote.name}]',
        )
    return warning(
        "slurm commands",
        f"not on PATH: {', '.join(missing)}",
        "connect to a login node, or load the module that provides Slurm in a start-up file; "
        "without Slurm, jobs run on the host itself",
    )


def _clock(ahead_seconds: float) -> Check:
    """ahead_seconds: of this computer."""
    if abs(ahead_seconds) <= _MAX_CLOCK_SECONDS:
        return ok("clock", "same as here")
    side = "ahead of" if ahead_seconds > 0 else "behind"
    return warning(
        "clock",
        f"this computer is {abs(ahead_seconds):.0f} s {side} the host",
        "synchronise the clock of this computer (`timedatectl set-ntp true`), or tell the host's "
        "administrators",
    )
