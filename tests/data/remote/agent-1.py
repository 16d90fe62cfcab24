"""An agent of protocol 1, version 0.1.0, reduced to what it says and understands."""

import json
import sys

print(
    '\norchestrator-agent: {"protocols": [1, 1], "version": "0.1.0", "host": "old", '
    '"store": "00112233445566778899aabbccddeeff"}',
    flush=True,
)
KNOWN = {"hello", "run", "settle", "control", "ack", "done", "alive"}
for line in sys.stdin.buffer:
    message = json.loads(line)
    assert message["type"] in KNOWN, message
    if message["type"] == "hello":
        assert message["protocol"] == 1
    if message["type"] == "run":
        words = " ".join(message["words"])
        text = f"old: {words}\n"
        spool = f'{{"stream": 1, "bytes": {len(text)}}}\n{text}'
        spool += '{"stream": 2, "bytes": 10}\nto stderr\n'
        head = {"type": "output", "request": message["request"], "offset": 0, "bytes": len(spool)}
        sys.stdout.write(json.dumps(head) + "\n" + spool)
        end = {"type": "ended", "request": message["request"], "code": 3}
        sys.stdout.write(json.dumps(end) + "\n")
        sys.stdout.flush()
