"""The command line: reads the environment, builds the objects of a role, and ends the process.

`main` is `tailrace`. Commands are declared in `commands`, `groups` and `trials`, with their help and nothing else; each
loads what it needs when it runs, so that `tailrace --help` answers at once. Exit codes: 0 done, 1 it could not be done
(now), 2 what was asked makes no sense; a supervisor does not start a role again that ended with 2.
"""

from __future__ import annotations

__all__ = ["main"]


def main() -> None:
    """Runs the command in `sys.argv`."""
    import sys

    from tailrace.cli.failures import exit_code, show_failure
    from tailrace.errors import TailraceError

    try:
        from tailrace.cli.commands import app

        app(prog_name="tailrace")
    except TailraceError as error:
        show_failure(error)
        sys.exit(exit_code(error))
