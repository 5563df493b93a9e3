"""A signal ends a process of ours wherever it is heard, also where Python lets an exception go no further."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

HEARD_IN = {
    "a destructor": "class Gone:\n    def __del__(self): os.kill(os.getpid(), number)\nGone()",
    "a weakref's callback": (
        "class Gone: pass\ngone = Gone()\nkept = weakref.ref(gone, lambda _: os.kill(os.getpid(), number))\ndel gone"
    ),
    "ordinary code": "os.kill(os.getpid(), number)",
}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("place", HEARD_IN)
def test_a_signal_that_is_heard_in_any_place_ends_the_process(place: str, number: signal.Signals) -> None:
    program = (
        "import os, time, weakref\nfrom amoxi_py.cli.leaving import leave_on_signal\n"
        f"leave_on_signal()\nnumber = {number.value}\n{HEARD_IN[place]}\ntime.sleep(60)\nprint('still here')"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=50, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


def test_what_else_cannot_be_raised_is_told_as_before() -> None:
    program = (
        "from amoxi_py.cli.leaving import leave_on_signal\nleave_on_signal()\n"
        "class Gone:\n    def __del__(self): raise ValueError('no way up')\nGone()"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=50, check=False)
    assert ended.returncode == 0
    assert "ValueError: no way up" in ended.stderr
