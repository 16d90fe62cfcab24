"""Writes values into a new offline folder of a W&B run. Runs in the user's Python.

Reads JSON from stdin and prints the name of the folder.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any


def main() -> int:
    request: dict[str, Any] = json.load(sys.stdin)
    try:
        import wandb
    except ImportError as error:
        print(error, file=sys.stderr)
        return 3
    run = wandb.init(
        id=request["id"],
        name=request["name"],
        group=request["group"] or None,
        project=request["project"],
        entity=request["entity"],
        config=request["parameters"],
        dir=request["folder"],
        mode="offline",
        settings=wandb.Settings(
            console="off", disable_git=True, save_code=False, silent=True, x_disable_stats=True
        ),
    )
    for name, axis in request["names"]:
        if axis != "count":
            run.define_metric(name, step_metric=axis)
    for number, row in enumerate(request["rows"], request["first_row"]):
        run.log(row, step=number)
    folder = os.path.basename(os.path.dirname(run.dir))
    run.finish()
    print(json.dumps({"folder": folder}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
