"""The work of the crash test: three steps, each of which leaves a line; the second one takes four seconds."""

import asyncio
import os


def note(step: int) -> None:
    with open(os.environ["STEPS_LOG"], "a") as log:
        log.write(f"{step}\n")


async def first_step() -> str:
    """Do the first part of the work."""
    note(1)
    return "done"


async def second_step() -> str:
    """Do the second part of the work."""
    note(2)
    await asyncio.sleep(4)
    return "done"


async def third_step() -> str:
    """Do the third part of the work."""
    note(3)
    return "done"


STEPS = [first_step, second_step, third_step]
