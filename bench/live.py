"""The template's refund with a real model: what a person waits for, and what it costs.

    ANTHROPIC_API_KEY=... python bench/live.py [--conversations 3] [--model anthropic:claude-sonnet-5-5]

Each conversation is of two messages to the template's `support-agent`: where an order is, and to refund it. The app
runs in a folder of its own that is deleted at the end, on the embedded store, with the e-mail taking no time. The model
is what the app would take: `--model`, else `AI_MODEL`, else by the key that is there.

Printed for each message and as medians: the time to the first word (TTFT) and to the end of the run, requests to the
model, tokens in (and of them from the provider's cache) and out, and the cost in US dollars where the price is known.
Without a key it says so and exits with 2; with 1 when a run did not do what it was asked for.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from amoxi_py import Run, open_app
from amoxi_py.models.lookup import default_model

TEMPLATE = Path(__file__).parents[1] / "app_template"
AGENT = "support-agent"
MESSAGES = ("Where is order A-1001?", "Please refund order A-1001. I have decided; do it right away.")
LONGEST_S = 300.0


@dataclass(frozen=True)
class Answer:
    """One message's run, and how long it took, in seconds."""

    message: str
    run: Run
    first_word: float
    whole: float

    def row(self) -> str:
        usage = self.run.usage
        cost = f"{usage.cost / 1e9:.5f}" if usage.cost else "unknown"
        return (
            f"{self.first_word:>7.2f} {self.whole:>7.2f} {usage.requests:>9} {usage.input_tokens:>7} "
            f"{usage.cached_tokens:>7} {usage.output_tokens:>7} {cost:>10}  {self.run.status.value:<10} {self.message}"
        )


async def ask(runs: Any, message: str, conversation: str | None) -> Answer:
    """Send a message and follow its run to the end."""
    began = time.perf_counter()
    first = None
    run = await runs.submit(AGENT, message, conversation_id=conversation)
    async for event in runs.events(run.id):
        spoken = event.type == "message.delta" or (
            event.type == "message.completed" and event.data["message"]["role"] == "assistant"
        )
        if first is None and spoken:
            first = time.perf_counter() - began
    whole = time.perf_counter() - began
    return Answer(message, await runs.get(run.id), whole if first is None else first, whole)


async def measure(conversations: int) -> list[Answer]:
    """Talk as often as is asked, one conversation after another."""
    answers: list[Answer] = []
    async with open_app() as app, asyncio.timeout(LONGEST_S * conversations):
        for _ in range(conversations):
            conversation = None
            for message in MESSAGES:
                answer = await ask(app.runs, message, conversation)
                print(answer.row(), flush=True)
                conversation = answer.run.conversation_id
                answers.append(answer)
    return answers


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--conversations", type=int, default=3)
    parser.add_argument("--model", help="instead of AI_MODEL, or of what the key at hand means")
    options = parser.parse_args()
    if options.model:
        os.environ["AI_MODEL"] = options.model
    model = os.environ.get("AI_MODEL") or default_model(os.environ)
    if model == "offline":
        print("there is no key of a provider: set ANTHROPIC_API_KEY or OPENAI_API_KEY, or --model", file=sys.stderr)
        return 2
    os.environ["RECEIPT_SECONDS"] = "0"
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "live"
        shutil.copytree(TEMPLATE, folder, ignore=shutil.ignore_patterns("__pycache__", "ai", "*.log", ".env"))
        os.chdir(folder)  # where its settings are, and where it keeps its ledger
        print(f"model: {model}")
        print("TTFT s   all s  requests      in  cached     out      US $  status     message")
        answers = asyncio.run(measure(options.conversations))
        ledger = folder / "data" / "refunds.log"
        refunds = ledger.read_text("utf-8").splitlines() if ledger.exists() else []
        os.chdir(TEMPLATE)
    first_words = statistics.median(answer.first_word for answer in answers)
    wholes = statistics.median(answer.whole for answer in answers)
    cost = sum(answer.run.usage.cost for answer in answers) / 1e9
    print(f"{first_words:>6.2f} {wholes:>7.2f}  medians of {len(answers)} messages; US $ {cost:.5f} in all")
    failed = [answer for answer in answers if answer.run.status.value != "completed"]
    if failed or len(refunds) < options.conversations:
        print(
            f"{len(failed)} of {len(answers)} runs did not complete, and {len(refunds)} refunds were made of "
            f"{options.conversations}",
            file=sys.stderr,
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
