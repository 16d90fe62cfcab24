"""Runs Python programs in forks of a process that has already imported PyTorch.

    python -m tests.trainer.warm DESCRIPTOR

The import takes two seconds of CPU. trainers.train is imported by the programs themselves, because
most of them run it as `__main__`, and so is torch._dynamo, because its order of import matters.
"""

from __future__ import annotations

import importlib
import runpy
import socket
import sys

from tests import zygote

MODULES = (
    *("torch.distributed.checkpoint.state_dict", "torch.distributed.elastic.multiprocessing"),
    *("trainers.arguments", "trainers.report"),
    *("trainers.tools.monitor", "trainers.tools.profiling"),
)


def main() -> None:
    for name in MODULES:
        importlib.import_module(name)
    # Replaced by the folder of the request, which is not searched.
    sys.path.insert(0, "")
    request = zygote.serve(socket.socket(fileno=int(sys.argv[1])))
    if request is None:
        return
    sys.path.pop(0)
    kind, *words = request.argv
    if kind == "-m":
        sys.argv = words
        runpy.run_module(words[0], run_name="__main__", alter_sys=True)
    elif kind == "-c":
        sys.argv = ["-c", *words[1:]]
        exec(compile(words[0], "<string>", "exec"), {"__name__": "__main__"})
    else:
        runpy.run_path(kind, run_name="__main__")


if __name__ == "__main__":
    main()
