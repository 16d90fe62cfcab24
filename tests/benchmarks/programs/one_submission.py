"""Submit SPEC once and print a JSON list with the seconds, without imports."""

import json
import sys
import time

import in_process

from orchestrator.controller.submission import submitit  # noqa: F401

if __name__ == "__main__":
    context = in_process.open_context()
    began = time.perf_counter()
    in_process.submit_spec(context, sys.argv[1])
    print(json.dumps([time.perf_counter() - began]))
