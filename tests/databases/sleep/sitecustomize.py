"""What Python reads at its start in a process with a wrong clock: `time.sleep` in a form that libfaketime understands.

`time.sleep` asks for the end of the sleep by the clock that only goes forward, and libfaketime (0.9.10) takes that for
a date, which the system refuses with `OSError: [Errno 22]`.
"""

import select
import time


def sleep(seconds: float, /) -> None:
    """Sleep by naming the duration."""
    if seconds < 0:
        raise ValueError("sleep length must be non-negative")
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        select.select([], [], [], left)


time.sleep = sleep
