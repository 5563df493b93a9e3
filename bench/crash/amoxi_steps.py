"""The three steps as tools of an app of ours; it is the package of an app in a folder that `crash_peers.py` makes."""

from three_steps import first_step, second_step, third_step

from amoxi_py import agent, tool

TOOLS = [tool(idempotent=True)(step) for step in (first_step, second_step, third_step)]


@agent(tools=TOOLS)
class Worker:
    """You do the work in three steps."""
