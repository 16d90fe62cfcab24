"""Wrapper of a Slurm command: runs the real command and injects the faults of a rule.

    fault.py NAME ARGUMENTS...      NAME is sbatch, squeue, sacct, scancel or scontrol

$ORCHESTRATOR_TEST_FAULTS names a JSON file {"stamp": ..., "rules": [...]}, whose folder the caller
may write to; without it, or without a matching rule, the output is unchanged. Every call is
logged in that folder in `calls.jsonl`: a line when it starts and one when it ends.

An sbatch that is started ahead of its script is a call when it has the script. A call passes these
points, in this order:

    before    the caller has started us, the real command has not been started
    during    the real command has been started and has not answered
    after     the real command has ended, before its output is passed on

At each, first the delay (`delay_before_seconds`, `delay_after_seconds`), then the stop (`stop_at`:
a file ID.stopped appears; we go on when ID.go does, or after `stop_seconds`), then the kill
(`kill_parent`: SIGKILL to the process that called us; at `during`, `kill_after_seconds` late). We
ourselves go on after that, as a real command does that has lost its caller. With `run` false the
real command is left out, and `during` with it. `stdout`, `stderr` and `rc` replace its output
(`""` drops it), `stdout_prefix` comes before it, and after it `crowd_lines` lines: the texts of
`crowd` in turn, with the line's number in the place of {n}.
"""

import fcntl
import json
import os
import signal
import sys
import time

REAL = "/usr/bin/"


def choose(folder, config, name, argv):
    """Log the start of a call; return (its ID, index of its rule, the rule)."""
    with open(os.path.join(folder, "calls.jsonl"), "a+") as log:
        # Under the lock: two concurrent calls must not both use the last time of a rule.
        fcntl.flock(log, fcntl.LOCK_EX)
        log.seek(0)
        earlier = [json.loads(line) for line in log]
        seen = [r for r in earlier if "command" in r and r["stamp"] == config["stamp"]]
        chosen, fitting = None, []
        for number, rule in enumerate(config["rules"]):
            if rule["command"] != name or rule["match"] not in " ".join(argv):
                continue
            fitting.append(number)
            passed = sum(1 for r in seen if number in r["fitting"])
            used = sum(1 for r in seen if r["rule"] == number)
            spent = rule["times"] is not None and used >= rule["times"]
            if chosen is None and passed >= rule["skip"] and not spent:
                chosen = number
        call = f"{len(earlier)}-{os.getpid()}"
        record = {
            "id": call,
            "command": name,
            "argv": argv,
            "started_at": time.time(),
            "rule": chosen,
            "fitting": fitting,
            "stamp": config["stamp"],
        }
        log.write(json.dumps(record) + "\n")
    return call, (config["rules"][chosen] if chosen is not None else None)


def finish(folder, call, **record):
    """Log the end of a call."""
    with open(os.path.join(folder, "calls.jsonl"), "a") as log:
        fcntl.flock(log, fcntl.LOCK_EX)
        log.write(json.dumps({"id": call, **record}) + "\n")


def kill(parent):
    """Kill the caller, unless it is gone and its number may be another's."""
    if parent > 1 and os.getppid() == parent:
        os.kill(parent, signal.SIGKILL)


def reach(point, rule, folder, call, parent):
    """Apply the rule at a point."""
    time.sleep(rule[f"delay_{point}_seconds"])
    if rule["stop_at"] == point:
        mark = os.path.join(folder, call)
        open(mark + ".stopped", "w").close()
        deadline = time.monotonic() + rule["stop_seconds"]
        while not os.path.exists(mark + ".go") and time.monotonic() < deadline:
            time.sleep(0.02)
    if rule["kill_parent"] == point:
        kill(parent)


def answer(rule, folder, call, name, argv, parent):
    """Run the call by its rule; return (stdout, stderr, exit code, real exit code, real stdout)."""
    reach("before", rule, folder, call, parent)
    stdout, stderr, real = "", "", None
    if rule["run"]:
        # Half of the time of a call that only passes through.
        import subprocess

        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        process = subprocess.Popen([REAL + name, *argv], text=True, errors="replace", **pipes)
        if rule["kill_parent"] == "during":
            time.sleep(rule["kill_after_seconds"])
            kill(parent)
        stdout, stderr = process.communicate()
        real = process.returncode
    output = stdout
    reach("after", rule, folder, call, parent)
    stdout = rule["stdout_prefix"] + (stdout if rule["stdout"] is None else rule["stdout"])
    stdout += "".join(
        rule["crowd"][n % len(rule["crowd"])].replace("{n}", str(n)) + "\n"
        for n in range(rule["crowd_lines"])
    )
    stderr = stderr if rule["stderr"] is None else rule["stderr"]
    rc = rule["rc"] if rule["rc"] is not None else (real or 0)
    return stdout, stderr, rc, real, output


def is_ahead(name, argv):
    """Return whether this is an sbatch that was started ahead of its script."""
    links = [word for word in argv if os.path.islink(word)]
    return name == "sbatch" and any(os.readlink(link) == "/dev/stdin" for link in links)


def read_stdin():
    """Wait for the script of an sbatch that was started ahead; nothing comes where it is dropped.

    This is not a call: nothing was requested.
    """
    script = sys.stdin.buffer.read()
    if not script:
        sys.exit("sbatch: error: Batch script is empty!")
    file = os.memfd_create("script")
    with open(file, "wb", closefd=False) as whole:
        whole.write(script)
    os.lseek(file, 0, os.SEEK_SET)
    os.dup2(file, 0)


def main():
    """Be the command; the exit code is the one to give."""
    parent = os.getppid()
    # As ssh and sudo do: what ties a command to its caller is lost, and we outlive ours.
    os.closerange(3, 256)
    name, argv = sys.argv[1], sys.argv[2:]
    rules_path = os.environ.get("ORCHESTRATOR_TEST_FAULTS")
    if not rules_path:
        os.execv(REAL + name, [name, *argv])
    if is_ahead(name, argv):
        read_stdin()
    folder = os.path.dirname(rules_path)
    with open(rules_path) as file:
        config = json.load(file)
    start = time.monotonic()
    call, rule = choose(folder, config, name, argv)
    if rule is None:
        # Streamed through untouched, however large.
        command, reset = [REAL + name, *argv], [signal.SIGPIPE, signal.SIGXFSZ]
        started = os.posix_spawn(command[0], command, os.environ, setsigdef=reset)
        rc = os.waitstatus_to_exitcode(os.waitpid(started, 0)[1])
        finish(folder, call, rc=rc, real_rc=rc, seconds=time.monotonic() - start)
        return rc
    stdout, stderr, rc, real, output = answer(rule, folder, call, name, argv, parent)
    # Logged first: when the caller has the output, the log is complete.
    seconds = time.monotonic() - start
    finish(folder, call, rc=rc, real_rc=real, real_stdout=output, seconds=seconds)
    try:
        sys.stderr.write(stderr)
        sys.stdout.write(stdout)
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return rc


if __name__ == "__main__":
    code = main()
    if code < 0:
        # The real command died of a signal: so do we.
        if code != -signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    sys.exit(code)
