"""All files are read through orchestrator.files, which handles FIFOs, devices and huge files."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

import pytest

_READERS = ("open", "read_text", "read_bytes")
#: What makes open() and os.open() one for writing, or of a folder.
_WRITES = ("'w", "'x", "'a", "O_WRONLY", "O_CREAT", "O_DIRECTORY")
#: Modules of which these functions are called: the helper, and what calls it.
_WRAPPERS = ("files", "batch_file", "documents")
#: Function -> why it may open a file for reading.
_ALLOWED = {
    "orchestrator/toml/documents.py:shipped": "a file of this package",
    "orchestrator/web/rendering.py:_shipped": "a file of this package",
    "orchestrator/processes/peers.py:uid_of_socket": "a file of the kernel",
    "orchestrator/web/server.py:_take_lock": "a lock, for writing",
    "orchestrator/local/processes.py:boot_id": "a file of the kernel",
    "orchestrator/local/processes.py:marked": "a file of the kernel",
    "orchestrator/local/processes.py:_stat": "a file of the kernel",
    "orchestrator/cli/interrupts.py:_write_traceback": "a descriptor of its own, for writing",
    "orchestrator/local/verification.py:opened": "a folder",
    "orchestrator/controller/prune/folders.py:_opened": "a folder",
    "orchestrator/files/removal.py": "folders",
    "orchestrator/local/runner.py:_appended": "a log, for writing",
    "orchestrator/local/submitted.py:_read_in_child": "a pipe to its own child",
    "orchestrator/controller/notices/senders.py:post": "a web address",
    "orchestrator/controller/code/packs.py:add": "a pack in our private folder",
    "orchestrator/controller/remote/agent.py:_run": "a request by its ID",
    "orchestrator/controller/remote/keeper.py": "/dev/null, its own descriptors, and a new file",
    "orchestrator/controller/remote/pending.py:_locked": "a lock in our private folder",
    "orchestrator/controller/remote/requests.py:output": "a spool in our private folder",
    "orchestrator/controller/remote/requests.py:settled": "a request by its ID",
    "orchestrator/controller/remote/transfer.py": "packs in our private folder",
    "orchestrator/controller/hosts/installation.py:install": "a file of the package",
    "orchestrator/controller/hosts/wheels.py:_checkout": "a file of our installation",
    "orchestrator/controller/hosts/wheels.py:packed": "a file of our installation",
    "orchestrator/remote/probe.py:script": "a file of the package",
    "orchestrator/remote/installer.py": "runs elsewhere, with the standard library alone",
    "orchestrator/files/writing.py:sync": "syncs what was just written, reads nothing",
    "orchestrator/processes/process.py": "pipes and memory of its own, and /dev/null",
}


def _calls(tree: ast.AST, inside: str = "") -> Iterator[tuple[str, ast.Call]]:
    """Yield all calls with the name of the function that they stand in."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Call):
            yield inside, node
        is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        yield from _calls(node, node.name if is_function else inside)


def _opens_for_reading(call: ast.Call) -> bool:
    function = call.func
    if isinstance(function, ast.Attribute):
        name = function.attr
        owner = function.value
        if isinstance(owner, ast.Name) and owner.id in _WRAPPERS:
            return False
    elif isinstance(function, ast.Name) and function.id == "open":
        name = function.id
    else:
        return False
    if name not in _READERS:
        return False
    arguments = [ast.unparse(value) for value in [*call.args, *(k.value for k in call.keywords)]]
    return not any(word in text for text in arguments for word in _WRITES)


@pytest.fixture(scope="module")
def readers(parsed_modules: Mapping[str, ast.Module]) -> set[str]:
    """Return the functions and modules that open files for reading."""
    return {
        path if path in _ALLOWED else f"{path}:{function}"
        for path, module in parsed_modules.items()
        if path.startswith("orchestrator/") and path != "orchestrator/files/reading.py"
        for function, call in _calls(module)
        if _opens_for_reading(call)
    }


def test_files_are_read_through_the_helper(readers: set[str]) -> None:
    assert readers - set(_ALLOWED) == set(), "use orchestrator.files"


def test_all_exceptions_are_needed(readers: set[str]) -> None:
    assert set(_ALLOWED) - readers == set()
