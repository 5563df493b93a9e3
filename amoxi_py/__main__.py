"""The `amoxi` program; `python -m amoxi_py` is the same."""

from __future__ import annotations

import sys

from amoxi_py.cli.allocator import use_system_allocator

_SERVERS = ("start", "worker")


def main() -> None:
    """Run the program and exit."""
    if sys.argv[1:] and sys.argv[1] in _SERVERS:
        use_system_allocator()
    from amoxi_py.cli.program import main as run_program  # after it: the program may begin anew

    run_program()


if __name__ == "__main__":
    main()
