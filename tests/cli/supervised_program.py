"""A supervisor of two processes that start well twice, and never again after that; each start is a line in a file."""

import os
import sys
import time
from pathlib import Path

from amoxi_py.cli.child import Lead
from amoxi_py.cli.leaving import leave_on_signal
from amoxi_py.cli.supervisor import Supervisor

STARTS = Path("starts")
CALM_S = 0.1


def serve(lead: Lead, *_count: int) -> None:
    with STARTS.open("a") as starts:
        starts.write(f"{time.monotonic()} {os.getpid()}\n")
    if len(STARTS.read_text().splitlines()) > 2:
        print("the settings cannot be used", file=sys.stderr, flush=True)
        os._exit(1)
    lead.wait_to_begin()
    lead.say_ready()
    time.sleep(300)


if __name__ == "__main__":
    leave_on_signal()
    sys.exit(Supervisor(2, serve, (), greeting="both are ready", grace=1.0, calm=CALM_S).run())
