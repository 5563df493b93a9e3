"""The two agents: what each is told to be, and the tools it has."""

from amoxi_py import agent

from .notes import NoteTools
from .orders import OrderTools
from .refunds import RefundTools


@agent(tools=[NoteTools], description="Keeps your notes.")
class Assistant:
    """You are a friendly assistant. You keep short notes for the person and find them again. Answer briefly."""


@agent(tools=[OrderTools, RefundTools], description="Looks up, refunds and cancels orders.")
class SupportAgent:
    """You are the support assistant of a small outdoor shop.

    Look an order up before you say anything about it. Never guess an order number: ask for it. Answer briefly.
    """
