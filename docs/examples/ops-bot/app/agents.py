"""The agent that deploys."""

from amoxi_py import Principal, agent

from .deploys import DeployTools


def is_engineer(principal: Principal) -> bool:
    """Whether somebody may talk to the bot; for others it is not there."""
    return "engineers" in principal.roles


@agent(tools=[DeployTools], description="Lists services, and deploys versions of them.", allow=is_engineer)
class OpsBot:
    """You deploy services when an engineer asks for it.

    Never guess a service or a version: look at the list, or ask. When the outcome of a deploy is unknown, say so and
    what is known; do not deploy again before somebody has looked.
    """
