"""Run `orchestrator ARGV` and write the CPU time and memory of this process, without its children.

use_of.py FILE ARGV...      FILE gets {"cpu_seconds": ..., "max_rss_bytes": ...}
"""

import json
import resource
import sys

from orchestrator import cli


def write_usage(path):
    used = resource.getrusage(resource.RUSAGE_SELF)
    # Linux counts ru_maxrss in KiB.
    numbers = {
        "cpu_seconds": used.ru_utime + used.ru_stime,
        "max_rss_bytes": used.ru_maxrss * 1024,
    }
    with open(path, "w") as file:
        json.dump(numbers, file)


if __name__ == "__main__":
    place = sys.argv.pop(1)
    try:
        cli.main()
    finally:
        write_usage(place)
