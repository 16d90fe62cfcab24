"""Prints the runs in offline folders of W&B, as `wandb sync` reads them. Needs only wandb.

python wandb_reader.py FILE.wandb... -> JSON: [ID, group, name, rows] of each file
"""

import json
import struct
import sys

from wandb.proto import wandb_internal_pb2

BLOCK_BYTES = 32 * 1024


def records(content):
    """Yield the records of a file: the log format of LevelDB behind a header of 7 bytes."""
    place, parts = 7, b""
    while place + 7 <= len(content):
        if BLOCK_BYTES - place % BLOCK_BYTES < 7:
            place += BLOCK_BYTES - place % BLOCK_BYTES
            continue
        _, size, kind = struct.unpack("<IHB", content[place : place + 7])
        parts += content[place + 7 : place + 7 + size]
        place += 7 + size
        if kind in (1, 4):
            yield parts
            parts = b""


def run_in(path):
    run, rows = None, []
    with open(path, "rb") as file:
        content = file.read()
    for data in records(content):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        kind = record.WhichOneof("record_type")
        if kind == "run":
            run = record.run
        if kind == "history":
            items = record.history.item
            rows.append({i.key or "/".join(i.nested_key): json.loads(i.value_json) for i in items})
    return [run.run_id, run.run_group, run.display_name, rows]


if __name__ == "__main__":
    print(json.dumps([run_in(path) for path in sys.argv[1:]]))
