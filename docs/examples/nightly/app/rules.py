"""A model without a language model: it reads the list and asks for reminders, by rules that never differ.

It is all that a `ChatModel` needs: a name, and `stream`, which ends with one `Reply`. With `model=` taken out of
`@agent` the model of the settings does the same work from the instructions.
"""

import json
import re
from collections.abc import AsyncIterator

from amoxi_py.ports.chat_model import CallRequest, ModelRequest, Reply, ToolResult, UserMessage


class BookkeepingRules:
    """Answers for the bookkeeper."""

    name = "bookkeeping-rules"

    async def stream(self, request: ModelRequest) -> AsyncIterator[Reply]:
        """Look at what has happened since the person's message, and say what comes next."""
        asked = max(place for place, message in enumerate(request.messages) if isinstance(message, UserMessage))
        results = [message for message in request.messages[asked + 1 :] if isinstance(message, ToolResult)]
        if not results:
            yield Reply(text="", calls=(CallRequest(id="list", name="list_open_invoices", arguments="{}"),))
        elif results[0].is_error:
            yield Reply(text=f"The invoices could not be read: {results[0].content}")
        elif len(results) > 1:
            yield Reply(text=f"{sum(not one.is_error for one in results[1:])} reminders sent.")
        else:
            due = _due(json.loads(results[0].content), request.messages[asked].text)
            yield Reply(text="" if due else "Nothing is due.", calls=tuple(map(_reminder, due)))


def _due(invoices: list[dict[str, str]], order: str) -> list[str]:
    """Return the invoices that were due before the day of the order and had no reminder since."""
    day = re.search(r"\d{4}-\d\d-\d\d", order)[0]  # as ISO dates are ordered like texts
    return [one["id"] for one in invoices if one["due"] < day and (one["reminded_on"] or "") < day]


def _reminder(invoice_id: str) -> CallRequest:
    return CallRequest(
        id=f"remind-{invoice_id}", name="send_reminder", arguments=json.dumps({"invoice_id": invoice_id})
    )
