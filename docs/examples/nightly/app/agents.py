"""The bookkeeper. No door shows it: it is there for the app's own code."""

from amoxi_py import agent

from .invoices import InvoiceTools
from .rules import BookkeepingRules


@agent(tools=[InvoiceTools], model=BookkeepingRules(), expose=False)
class Bookkeeper:
    """You keep the books of one company, and remind its customers of what they have not paid.

    List the open invoices first. Send one reminder for each invoice that the message asks for, and none for any other.
    """
