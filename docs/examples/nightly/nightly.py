"""Every night, for every tenant: have the bookkeeper remind customers of what is due.

Start it again as often as you like. A run has the key `<day>:<tenant>`, so a second start of a night finds the runs of
the first, finishes what a crash or Ctrl-C has left, and does nothing twice. What `--retry` makes anew has the key
`<day>:<tenant>:2`, then `:3` and so on; each start goes by the last one.
"""

import argparse
import asyncio
import csv
import json
import sys
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime
from functools import partial
from pathlib import Path

from amoxi_py import Principal, Run, Runs, open_app
from amoxi_py.errors import AmoxiError

PATIENCE_S = 600


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came of one tenant; `problem` is None when all went well."""

    tenant: str
    run: str | None
    reminders: int = 0
    problem: str | None = None


async def remind(runs: Runs, day: date, tenant: str, retry: bool) -> Outcome:
    """Start the tenant's run of that day, or find it, and wait for its end; with `retry` make it anew if it must be."""
    order = f"Remind of every invoice that was due before {day}, unless a reminder went out on that day or later."
    principal = Principal(id="system:nightly", name="The nightly script", channel="code", tenant=tenant)
    submit = partial(runs.submit, "bookkeeper", order, principal=principal)

    async def end(run: Run) -> tuple[Run, Outcome]:
        run = await runs.wait(run.id, timeout=PATIENCE_S)
        return run, await outcome_of(runs, run, tenant)

    try:
        run, outcome = await end(await submit(idempotency_key=f"{day}:{tenant}"))
        if outcome.problem and run.status.final:
            last, *earlier = await tries(runs, run)
            if earlier:  # somebody had it made anew: the last one counts
                run, outcome = await end(last)
            if outcome.problem and run.status.final and retry:
                key = f"{day}:{tenant}:{len(earlier) + 2}"
                _, outcome = await end(await submit(idempotency_key=key, conversation_id=run.conversation_id))
    except AmoxiError as error:
        return Outcome(tenant=tenant, run=None, problem=str(error))
    return outcome


async def tries(runs: Runs, first: Run) -> list[Run]:
    """Return the runs of a tenant's day, the last one first: what is made anew is in the conversation of the first."""
    page = await runs.list(principal=first.principal, agent="bookkeeper", limit=1000)
    return [run for run in page.items if run.conversation_id == first.conversation_id]


async def outcome_of(runs: Runs, run: Run, tenant: str) -> Outcome:
    """Tell what a run has done by its log: what a model says of its work is no proof."""
    problem = None if run.status == "completed" else run.error.message if run.error else f"it is {run.status}"
    reminders = 0
    tools: dict[str, str] = {}
    if not run.status.final:  # its stream would go on for as long as it does
        return Outcome(tenant=tenant, run=run.id, problem=problem)
    async for event in runs.events(run.id):
        if event.type == "tool.called":
            tools[event.data["call_id"]] = event.data["tool"]
        elif event.type == "tool.completed" and event.data["is_error"]:
            problem = problem or str(event.data["result"])
        elif event.type == "tool.completed":
            reminders += tools[event.data["call_id"]] == "send_reminder"
    return Outcome(tenant=tenant, run=run.id, reminders=reminders, problem=problem)


async def nightly(day: date, tenants: list[str], at_once: int, retry: bool) -> list[Outcome]:
    """Do the night's work, with at most `at_once` runs open."""
    gate = asyncio.Semaphore(at_once)

    async def one(runs: Runs, tenant: str) -> Outcome:
        async with gate:
            return await remind(runs, day, tenant, retry)

    async with open_app() as app:
        return await asyncio.gather(*(one(app.runs, tenant) for tenant in tenants))


def main() -> int:
    """Read the command line, do the work, tell what came of it; 1 when a tenant is not done."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--day", type=date.fromisoformat, default=datetime.now(UTC).date(), help="YYYY-MM-DD")
    options.add_argument("--tenants", type=Path, default=Path("tenants.csv"), help="a CSV with a column `tenant`")
    options.add_argument("--at-once", type=int, default=50, help="the most runs that are open at once")
    options.add_argument("--retry", action="store_true", help="run those anew whose run has ended with a problem")
    options.add_argument("--json", action="store_true", help="print the summary as JSON")
    args = options.parse_args()
    with args.tenants.open(encoding="utf-8", newline="") as table:
        tenants = list(dict.fromkeys(row["tenant"] for row in csv.DictReader(table)))
    try:
        outcomes = asyncio.run(nightly(args.day, tenants, args.at_once, args.retry))
    except KeyboardInterrupt:
        print("stopped; start it again to do the rest", file=sys.stderr)
        return 130
    failed = [outcome for outcome in outcomes if outcome.problem is not None]
    reminders = sum(outcome.reminders for outcome in outcomes)
    if args.json:
        told = {"day": str(args.day), "reminders": reminders, "tenants": [asdict(outcome) for outcome in outcomes]}
        print(json.dumps(told, indent=2))
    else:
        print(f"{args.day}: {len(outcomes)} tenants, {reminders} reminders, {len(failed)} not done")
    for outcome in failed:
        print(f"{outcome.tenant}: {outcome.problem} (run {outcome.run})", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
