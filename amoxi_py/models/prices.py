"""What a reply costs, by the list prices of a library that is kept up to date: genai-prices.

The library is imported when the first price is asked for, and nothing is fetched: a new price comes with a new version.
"""

from __future__ import annotations

from datetime import UTC, date, datetime
from functools import lru_cache
from typing import TYPE_CHECKING

from amoxi_py.domain.budget import BILLION
from amoxi_py.domain.usage import Usage

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo

_FREE = frozenset({"offline", "scripted"})
_MILLION = 1_000_000
_FEW = 1000


def cost_of(model: str, usage: Usage) -> int | None:
    """Return the cost of a reply in billionths of a US dollar, or None when its model's price is not known.

    Args:
        model: A model's name such as `openai:gpt-5`; the offline model and scripts cost nothing.
        usage: The reply's.
    """
    if model in _FREE:
        return 0
    info = _find(model)
    if info is None:
        return None
    rates = _rates(model, datetime.now(UTC).date())
    tokens = (
        max(usage.input_tokens - usage.cached_tokens - usage.written_tokens, 0),
        usage.cached_tokens,
        usage.written_tokens,
        usage.output_tokens,
    )
    if rates is None:
        return _price(info, *tokens)
    return round(sum(count * rate for count, rate in zip(tokens, rates, strict=True)) / _MILLION)


def unpriced(models: str) -> tuple[str, ...]:
    """Return those of some models, given as a chain's name is written, whose price is not known."""
    return tuple(name for name in models.split(", ") if name not in _FREE and _find(name) is None)


@lru_cache(maxsize=256)
def window_of(model: str, address: str | None = None) -> int | None:
    """Return how many tokens a model takes, or None when that is not known.

    Args:
        model: A model's name such as `openai:gpt-5`.
        address: Where it is asked; a provider that is known by that knows its models better.
    """
    provider, divided, name = model.partition(":")
    if not divided:
        return None
    from genai_prices.data_snapshot import get_snapshot

    for known in ((None, address), (provider, None)):
        try:
            window = get_snapshot().find_provider_model(name, None, *known)[1].context_window
        except LookupError:
            continue
        if window:
            return window
    return None


@lru_cache(maxsize=256)
def _find(name: str) -> ModelInfo | None:
    provider, divided, model = name.partition(":")
    if not divided:
        return None
    from genai_prices.data_snapshot import get_snapshot

    try:
        return get_snapshot().find_provider_model(model, None, provider, None)[1]
    except LookupError:
        return None


@lru_cache(maxsize=256)
def _rates(name: str, today: date) -> tuple[int, ...] | None:
    """Return the prices of a million tokens of each kind today, or None when they depend on how many there are.

    Asking the library for each reply would cost a quarter of a millisecond.
    """
    info = _find(name)
    assert info is not None, "it is priced"
    rates = []
    for kind in range(4):
        few, many = (_price(info, *(size * (kind == other) for other in range(4))) for size in (_FEW, _MILLION))
        if few is None or many is None or few * _MILLION != many * _FEW:
            return None
        rates.append(many)
    return tuple(rates)


def _price(info: ModelInfo, fresh: int, cached: int, written: int, out: int) -> int | None:
    from genai_prices.types import Usage as PricedUsage

    priced = PricedUsage(
        input_tokens=fresh + cached + written,
        cache_read_tokens=cached,
        cache_write_tokens=written,
        output_tokens=out,
    )
    try:
        return round(info.get_prices(datetime.now(UTC)).calc_price(priced)["total_price"] * BILLION)
    except (LookupError, ValueError):
        return None
