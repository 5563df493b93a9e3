"""Ctrl-C at the keyboard: none is lost, also not one that comes just before the process waits for a key."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import os, signal, threading
from amoxi_py.cli.keyboard import Keyboard

keyboard = Keyboard()
keyboard.install()
nudged = threading.Event()
signal.signal(signal.SIGURG, lambda number, frame: nudged.set())
os.kill(os.getpid(), signal.SIGINT)
print("nudged" if nudged.wait(20) else "left alone")
"""


def test_after_ctrl_c_the_wait_for_a_key_is_ended_again() -> None:
    ended = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60)
    assert ended.stdout == "nudged\n", ended.stderr
