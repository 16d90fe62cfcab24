"""A program in place of ssh: runs the command for the host here, and can cut the connection.

    python stand_in_ssh.py FOLDER WORD...

FOLDER/host.json says what the host is like: `environ` of its login shell, `noise` that this prints,
and `instead`, [output, exit code], of a host without an agent. Each connection takes the first file
of FOLDER/cuts, by name: `DIRECTION BYTES` breaks it after so many bytes ("to host" or "from host").
FOLDER/calls has the words of each call. With -N it forwards a port.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import select
import socket
import subprocess
import sys
import threading

BROKEN = 255


def main(folder: pathlib.Path, words: list[str]) -> int:
    with (folder / "calls").open("a") as calls:
        calls.write(json.dumps(words) + "\n")
    if "-N" in words:
        return forward(words[words.index("-L") + 1])
    host = json.loads((folder / "host.json").read_text())
    cut = take_cut(folder / "cuts")
    if host["instead"] is not None:
        output, code = host["instead"]
        sys.stdout.write(output)
        return code
    # As sshd does: the user's login shell gets the command as one word.
    shell = subprocess.Popen(
        ["sh", "-c", host["noise"] + words[-1]],
        env=host["environ"],
        cwd=host["environ"]["HOME"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert shell.stdin is not None and shell.stdout is not None
    left = {"to host": None, "from host": None} | cut
    routes = {
        0: ("to host", shell.stdin.fileno()),
        shell.stdout.fileno(): ("from host", 1),
    }
    while shell.stdout.fileno() in routes:
        for source in select.select(list(routes), [], [])[0]:
            direction, target = routes[source]
            limit = left[direction]
            data = os.read(source, 65536 if limit is None else min(65536, limit) or 1)
            if limit is not None:
                if not limit:
                    return BROKEN
                left[direction] = limit - len(data)
            if not data:
                del routes[source]
                if direction == "to host":
                    shell.stdin.close()
                continue
            with contextlib.suppress(BrokenPipeError):
                while data:
                    data = data[os.write(target, data) :]
            if limit is not None and not left[direction]:
                return BROKEN
    return shell.wait()


def forward(route: str) -> int:
    """Forward connections as `ssh -N -L SOCKET:PATH` does."""
    ours, path = route.split(":")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(ours)
        server.listen()
        while True:
            connected, _ = server.accept()
            inner = socket.socket(socket.AF_UNIX)
            inner.connect(path)
            for pair in ((connected, inner), (inner, connected)):
                threading.Thread(target=pump, args=pair, daemon=True).start()


def pump(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)


def take_cut(folder: pathlib.Path) -> dict[str, int]:
    for path in sorted(folder.iterdir()):
        direction, _, number = path.read_text().rpartition(" ")
        path.unlink()
        return {direction: int(number)} if direction else {}
    return {}


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]), sys.argv[2:]))
