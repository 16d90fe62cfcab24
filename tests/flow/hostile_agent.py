"""An agent that answers as a test wants: python hostile_agent.py FILE.

FILE is JSON: `greeting` has keys that differ from those of a true greeting, and `answers` maps the
type of a message to the lines that answer it, with REQUEST for its request. Each message is
appended to FILE.log.
"""

from __future__ import annotations

import json
import pathlib
import signal
import sys


def main(path: pathlib.Path) -> None:
    # The client may go at any time.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    script = json.loads(path.read_text())
    greeting = {"protocols": [1, 1], "version": "0.1.0", "host": "mill1", "store": "0" * 32}
    say(f"\norchestrator-agent: {json.dumps({**greeting, **script.get('greeting', {})})}\n")
    while line := sys.stdin.buffer.readline():
        message = json.loads(line)
        sys.stdin.buffer.read(message.get("bytes", 0))
        with path.with_name(f"{path.name}.log").open("a") as log:
            log.write(line.decode())
        for answer in script.get("answers", {}).get(message["type"], []):
            say(answer.replace("REQUEST", message.get("request", "")))


def say(text: str) -> None:
    sys.stdout.buffer.write(text.encode("latin-1"))
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
