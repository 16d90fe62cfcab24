"""The program's entry: `python -m orchestrator`, and the installed `orchestrator`.

Until the command line is loaded, Ctrl-C ends the process by the signal: Python's own handler would
raise KeyboardInterrupt in the middle of an import, and show a traceback. `_signal` is built in;
`signal` would be 2 ms of imports.
"""

import _signal  # type: ignore[import-not-found]

if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)


def main() -> None:
    """Run the command line."""
    from orchestrator import cli

    cli.main()


if __name__ == "__main__":
    main()
