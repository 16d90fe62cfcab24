"""Time commands alternately: argv is N and a JSON list of [words, variables].

Prints a JSON list with the seconds of each command. The first run does not count.
"""

import json
import os
import subprocess
import sys
import time

if __name__ == "__main__":
    commands = json.loads(sys.argv[2])
    seconds: list[list[float]] = [[] for _ in commands]
    for number in range(int(sys.argv[1]) + 1):
        for (words, variables), kept in zip(commands, seconds, strict=True):
            began = time.perf_counter()
            subprocess.run(
                words, env={**os.environ, **variables}, stdout=subprocess.DEVNULL, check=True
            )
            if number:
                kept.append(time.perf_counter() - began)
    print(json.dumps(seconds))
