"""doctor --job: whether the lines of the profile's fabric take effect on a compute node. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from orchestrator import fabrics
from orchestrator.controller.setup import site_checks
from orchestrator.fabrics import interfaces, nccl_log

Facts: TypeAlias = Mapping[str, Sequence[str]]

#: Variables with interfaces, and what understands them.
_INTERFACES = {
    "NCCL_SOCKET_IFNAME": interfaces.unmatched_by_nccl,
    "GLOO_SOCKET_IFNAME": interfaces.unmatched_by_gloo,
}
#: One rank: NCCL chooses its network all the same. It takes seconds; a node may wait for its files.
_NCCL_SECONDS = 45
_NCCL = """\
import tempfile, torch, torch.distributed as dist
if torch.cuda.is_available() and dist.is_nccl_available():
    torch.cuda.set_device(0)
    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group("nccl", init_method=f"file://{folder}/store", rank=0, world_size=1)
        dist.all_reduce(torch.ones(1, device="cuda"))
        torch.cuda.synchronize()
        dist.destroy_process_group()
"""
_SCRIPT = """
for path in /sys/class/net/*; do
    echo "probe interface ${path##*/} $(cat "$path/operstate" 2>/dev/null)"
done
bind() { # NUMBER PATH
    if [ -e "${2-}" ]; then echo "probe bind $1 found"; else echo "probe bind $1 missing ${2-}"; fi
}
library() { # NAME FOLDER...
    local name=$1 folder folders
    IFS=: read -ra folders <<<"${LD_LIBRARY_PATH-}"
    for folder in "${@:2}" "${folders[@]}"; do
        if [ -n "$folder" ] && [ -e "$folder/$name" ]; then
            echo "probe library $name $folder/$name"
            return
        fi
    done
    PATH=$PATH:/sbin:/usr/sbin ldconfig -p 2>/dev/null |
        awk -v name="$name" '$1 == name { print "probe library", name, $NF; exit }'
}
"""
_FAILED = "exit code "
_ASK_NCCL = """
if [ -n "$python" ] && {{ command -v nvidia-smi >/dev/null || [ -e /dev/kfd ]; }}; then
    {{
        NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET NCCL_DEBUG_FILE= timeout -k 5 {seconds} \\
            "$python" -c {program} 2>&1 || echo "exit code $?"
    }} | sed 's/^/probe nccl /'
fi
"""


def script(fabric: fabrics.Fabric) -> str:
    """Return shell lines that print the facts; `$python` is a Python with torch, or empty."""
    lines = [_SCRIPT]
    for name in dict.fromkeys([*fabric.variables, *_INTERFACES]):
        lines.append(f'if [[ -v {name} ]]; then echo "probe variable {name}=${{{name}}}"; fi\n')
    binds = fabric.containers.binds
    for number, bind in enumerate(binds):
        lines.append(f"bind {number} {_shell_word(bind.value.partition(':')[0])}\n")
    folders = [fabrics.host_path(line.value, binds) for line in fabric.containers.library_path]
    words = " ".join(_shell_word(folder) for folder in folders if folder is not None)
    for name in fabric.libraries:
        lines.append(f"library {shlex.quote(name)} {words}\n")
    if fabric.network.value is not None:
        lines.append(_ASK_NCCL.format(seconds=_NCCL_SECONDS, program=shlex.quote(_NCCL)))
    return "".join(lines)


def checks(
    fabric: fabrics.Fabric, facts: Facts, own_variables: Mapping[str, str]
) -> Iterator[site_checks.Check]:
    """Yield what the facts say. own_variables: of the profile, which win."""
    environment = dict(line.partition("=")[::2] for line in facts.get("variable", ()))
    yield _variables(fabric, environment, own_variables)
    yield from _interfaces(environment, facts)
    if fabric.containers.binds:
        yield _binds(fabric, facts)
    if fabric.libraries:
        yield _libraries(fabric, facts)
    if fabric.network.value is not None:
        yield _network(fabric, facts)


def _shell_word(path: str) -> str:
    """Quote a path that may begin with a variable; if that is not set, there is no word."""
    variable, rest = fabrics.variable_and_rest(path)
    if not variable:
        return shlex.quote(rest)
    return f'${{{variable}:+"${variable}"{shlex.quote(rest) if rest else ""}}}'


def _variables(
    fabric: fabrics.Fabric, environment: Mapping[str, str], own_variables: Mapping[str, str]
) -> site_checks.Check:
    name = "fabric"
    expected = {
        key: line.value for key, line in fabric.variables.items() if key not in own_variables
    }
    others = [
        f"{key} is {environment.get(key, 'not set')}, not {value}"
        for key, value in expected.items()
        if environment.get(key) != value
    ]
    if others:
        cure = "a module or your shell sets them: unset what you do not mean"
        return site_checks.warning(name, f"{fabric.name}: {'; '.join(others)}", cure)
    count = f"{len(expected)} variable" + ("" if len(expected) == 1 else "s")
    return site_checks.ok(name, f"{fabric.name} ({fabric.origin}): {count} set")


def _interfaces(environment: Mapping[str, str], facts: Facts) -> Iterator[site_checks.Check]:
    states = dict(line.partition(" ")[::2] for line in facts.get("interface", ()))
    for name, unmatched_by in _INTERFACES.items():
        value = environment.get(name)
        if not value:
            continue
        missing = unmatched_by(value, states)
        down = [part for part in value.split(",") if states.get(part) == "down"]
        if not missing and not down:
            yield site_checks.ok(name, f"{value}: up on {facts['host'][0]}")
            continue
        problem = f"has no {', '.join(missing)}" if missing else f"{', '.join(down)} is down"
        cure = f"set {name} to one of {', '.join(states)} in the profile's variables or the fabric"
        # NCCL uses the remaining ones; gloo fails, or waits for the other ranks.
        is_partial = name == "NCCL_SOCKET_IFNAME" and len(missing or down) <= value.count(",")
        check = site_checks.warning if is_partial else site_checks.bad
        yield check(name, f"{value}: {facts['host'][0]}: {problem}", cure)


def _binds(fabric: fabrics.Fabric, facts: Facts) -> site_checks.Check:
    name, binds = "fabric binds", [line.value for line in fabric.containers.binds]
    unset, missing = [], []
    for line in facts.get("bind", ()):
        number, _, state = line.partition(" ")
        variable, _ = fabrics.variable_and_rest(binds[int(number)])
        path = state.partition(" ")[2]
        if state == "found":
            continue
        if variable and not path:
            unset.append(variable)
        else:
            missing.append(path)
    if missing:
        cure = "write your own fabric without them: docs/howto/fabrics.md"
        return site_checks.bad(name, f"not on {facts['host'][0]}: {', '.join(missing)}", cure)
    if unset:
        modules = f" ({', '.join(fabric.modules)})" if fabric.modules else ""
        cure = f"for containers on several nodes: set modules{modules}"
        return site_checks.warning(name, f"not set: {', '.join(unset)}", cure)
    return site_checks.ok(name, f"all {len(binds)} exist on {facts['host'][0]}")


def _libraries(fabric: fabrics.Fabric, facts: Facts) -> site_checks.Check:
    name = "fabric libraries"
    found = dict(line.partition(" ")[::2] for line in facts.get("library", ()))
    if missing := [library for library in fabric.libraries if library not in found]:
        cure = "load the module that has them, or use an image that does; else NCCL uses sockets"
        if fabric.modules:
            cure = f"load {', '.join(fabric.modules)} (modules), or use an image that has them"
        return site_checks.warning(name, f"not found: {', '.join(missing)}", cure)
    return site_checks.ok(name, ", ".join(found.values()))


def _network(fabric: fabrics.Fabric, facts: Facts) -> site_checks.Check:
    name, expected = "NCCL network", fabric.network.value
    lines = facts.get("nccl", ())
    log = nccl_log.read(lines)
    if log.missing:
        plugin = f" ({log.missing_plugin})" if log.missing_plugin else ""
        cure = "load the module with NCCL's plugin, or bind it into the container"
        return site_checks.bad(name, f'NCCL does not find "{log.missing}"{plugin}', cure)
    if not log.networks:
        if lines and lines[-1].startswith(_FAILED):
            message = [*lines[:-1][-1:], lines[-1]]
            return site_checks.bad(
                name, f"NCCL failed: {', '.join(message)}", "read the job's log: orchestrator logs"
            )
        cure = "`doctor --job --gpus-per-node 1` asks NCCL, if the profile's environment has torch"
        return site_checks.ok(name, "not checked: no GPU, or no torch", cure)
    chosen = ", ".join(log.networks) + (f" ({', '.join(log.providers)})" if log.providers else "")
    found = f"{log.version or 'NCCL'} uses {chosen}"
    if log.kinds == {expected}:
        return site_checks.ok(name, found)
    cure = "check the libraries above; `orchestrator logs` of the job has NCCL's own log"
    return site_checks.bad(name, f"{found}; the fabric {fabric.name} expects {expected}", cure)
