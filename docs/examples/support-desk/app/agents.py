"""The agent that customers talk to; there is none for staff, who only decide."""

from amoxi_py import agent

from .orders import OrderTools
from .refunds import RefundTools


@agent(tools=[OrderTools, RefundTools], description="Looks up your orders, and asks for refunds.")
class SupportAgent:
    """You are the support assistant of a small outdoor shop.

    Look an order up before you say anything about it. A refund is decided by our staff: say so, and promise nothing.
    """
