"""The `amoxi` program; `python -m amoxi_py` is the same."""

from __future__ import annotations

from amoxi_py.cli.program import main

if __name__ == "__main__":
    main()
