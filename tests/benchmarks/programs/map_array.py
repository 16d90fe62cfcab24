"""Submit COUNT held jobs with submitit's map_array, with its files in FOLDER.

Prints a JSON list with the seconds of the call.
"""

import json
import sys
import time

import submitit


def double(number: int) -> int:
    """Return twice the number: a placeholder for work."""
    return 2 * number


if __name__ == "__main__":
    executor = submitit.SlurmExecutor(folder=sys.argv[1])
    executor.update_parameters(
        time=5, job_name="mapped", additional_parameters={"hold": True, "exclude": "n4"}
    )
    began = time.perf_counter()
    executor.map_array(double, range(int(sys.argv[2])))
    print(json.dumps([time.perf_counter() - began]))
