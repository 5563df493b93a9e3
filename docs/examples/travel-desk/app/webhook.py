"""The route that the payment provider calls when an invoice is paid; the run that waits for it is told by a signal."""

from fastapi import FastAPI, HTTPException, Request
from pydantic import BaseModel

from amoxi_py import Runs, configure
from amoxi_py.errors import Conflict

from .settings import TravelSettings
from .signature import SIGNATURE, is_signed


class Paid(BaseModel):
    """What the provider tells."""

    id: str
    invoice: str
    hold: str
    run_id: str
    cents: int


@configure
def add_webhook(app: FastAPI, settings: TravelSettings) -> None:
    """Add the route. It has no sign-in: the signature says who calls."""

    @app.post("/webhooks/payments", include_in_schema=False)
    async def paid(request: Request) -> dict[str, bool]:
        body = await request.body()
        secret = settings.webhook_secret.get_secret_value()
        if not is_signed(body, request.headers.get(SIGNATURE, ""), secret):
            raise HTTPException(401, "this is not signed by the payment provider")
        event = Paid.model_validate_json(body)
        runs: Runs = request.app.state.amoxi.runs
        payload = {"invoice": event.invoice, "cents": event.cents}
        try:  # the provider sends an event until it is answered, so it may come more than once
            await runs.signal(event.run_id, f"paid.{event.hold}", payload, idempotency_key=event.id)
        except Conflict:  # the run was cancelled; whoever keeps the books finds it in the log of invoices
            return {"taken": False}
        return {"taken": True}
