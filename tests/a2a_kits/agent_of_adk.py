"""An agent of google-adk that passes all it is told on to ours; prints what came back as JSON.

Usage: agent_of_adk.py URL, with A2A_TOKEN set and google-adk first on the path.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from importlib.metadata import version
from typing import Any

import httpx
from google.adk.agents.remote_a2a_agent import RemoteA2aAgent
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.genai import types


async def turn(runner: Runner, *parts: types.Part) -> list[Any]:
    """Say something, and return the events."""
    said = types.Content(role="user", parts=list(parts))
    return [event async for event in runner.run_async(user_id="ann", session_id="s1", new_message=said)]


def seen(events: list[Any]) -> dict[str, Any]:
    """Return what a turn was: its last words, what it left open, and of which task and context."""
    last = events[-1]
    kept = last.custom_metadata or {}
    parts = last.content.parts if last.content else []
    texts = [part.text for event in events for part in (event.content.parts if event.content else []) if part.text]
    return {
        "text": texts[-1] if texts else None,
        "error": last.error_message,
        "open": [call.name for call in last.get_function_calls()],
        "parts": len(parts),
        "task": kept.get("a2a:task_id"),
        "context": kept.get("a2a:context_id"),
    }


def choose_skill(context: Any, message: Any) -> dict[str, Any]:
    """Name the agent that is asked; a task that waits has one already."""
    return {} if message.task_id else {"skill": "support-agent"}


async def main(url: str) -> None:
    """Ask, be asked, answer, and ask again in the same session."""
    headers = {"Authorization": f"Bearer {os.environ['A2A_TOKEN']}"}
    async with httpx.AsyncClient(headers=headers, timeout=60) as http:
        agent = RemoteA2aAgent(
            name="shop",
            agent_card=f"{url}/.well-known/agent-card.json",
            httpx_client=http,
            a2a_request_meta_provider=choose_skill,
        )
        sessions = InMemorySessionService()
        await sessions.create_session(app_name="trial", user_id="ann", session_id="s1")
        runner = Runner(app_name="trial", agent=agent, session_service=sessions)
        found = await turn(runner, types.Part(text="Where is order A-1001?"))
        waiting = await turn(runner, types.Part(text="Cancel order A-1002"))
        calls = [call for event in waiting for call in event.get_function_calls()]
        answers = [types.FunctionResponse(id=call.id, name=call.name, response={"result": "no"}) for call in calls]
        declined = await turn(runner, *[types.Part(function_response=answer) for answer in answers])
        more = await turn(runner, types.Part(text="Where is order A-1002?"))
    turns = [seen(events) for events in (found, waiting, declined, more)]
    print(json.dumps({"adk": version("google-adk"), "turns": turns}))


asyncio.run(main(sys.argv[1]))
