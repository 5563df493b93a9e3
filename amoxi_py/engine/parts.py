"""What executing runs needs of the process, and how the model of an agent is found."""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct, field

from amoxi_py.declare.context import RunContext
from amoxi_py.declare.definitions import AgentDefinition, Catalog, Instances
from amoxi_py.domain.usage import Usage
from amoxi_py.engine.files import Files
from amoxi_py.engine.hub import Hub
from amoxi_py.engine.measures import EngineMeasures
from amoxi_py.engine.memories import Memories
from amoxi_py.engine.model_places import ModelPlaces
from amoxi_py.engine.redaction import Redaction
from amoxi_py.engine.settings import EngineSettings
from amoxi_py.engine.threads import ThreadPool
from amoxi_py.engine.transcripts import Transcripts
from amoxi_py.ports.chat_model import ChatModel, ModelRequest
from amoxi_py.ports.clock import Clock
from amoxi_py.ports.store import Store


class Models(Protocol):
    """Finds the model of an agent for a run."""

    async def model_for(self, agent: AgentDefinition, ctx: RunContext) -> ChatModel:
        """Return the model; raise `ModelFailed` when the app cannot choose one."""
        ...


class ModelFacts:
    """What is known of models besides how they are asked; this one knows nothing."""

    def cost_of(self, model: str, usage: Usage) -> int | None:
        """Return what a reply costs, in billionths of a US dollar, or None when the model's price is not known."""
        return None

    def unpriced(self, agent: AgentDefinition) -> tuple[str, ...]:
        """Return the names of the agent's models whose prices are not known; of one that is chosen, nothing is."""
        return ()

    def problems_of(self, request: ModelRequest) -> list[str]:
        """Return why a provider would refuse a request, one sentence each."""
        return []


class Parts(Struct, frozen=True, kw_only=True):
    """What executing needs of the process: made once, given to every run."""

    store: Store
    files: Files
    hub: Hub
    catalog: Catalog
    instances: Instances
    models: Models
    facts: ModelFacts
    settings: EngineSettings
    clock: Clock
    threads: ThreadPool
    model_places: ModelPlaces | None
    redaction: Redaction
    memories: Memories
    transcripts: Transcripts
    measures: EngineMeasures = field(default_factory=EngineMeasures)
