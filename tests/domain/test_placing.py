"""Which principals are stored, and under which id: a sign-in and code never say what is before the colon."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from amoxi_py.domain.placing import placed_by_code, signed_in
from amoxi_py.domain.principal import Principal
from amoxi_py.errors import InvalidRequest

UNFIT: dict[str, Any] = {
    "no principal": "ana",
    "empty": Principal(id=""),
    "blank": Principal(id=" "),
    "number": Principal(id=4),  # type: ignore[arg-type]  # an app may give any
    "long": Principal(id="4" * 256),
    "control": Principal(id="4\x1facme"),
    "nul": Principal(id="4", name="a\0"),
    "half": Principal(id="4", tenant="\ud800"),
    "role": Principal(id="4", roles=frozenset({4})),  # type: ignore[arg-type]  # an app may give any
    "roles": Principal(id="4", roles=frozenset(map(str, range(201)))),
    "object": Principal(id="4", claims={"at": object()}),
    "key": Principal(id="4", claims={1: 2}),  # type: ignore[dict-item]  # an app may give any
    "list": Principal(id="4", claims=[1]),  # type: ignore[arg-type]  # an app may give any
    "nan": Principal(id="4", claims={"x": float("nan")}),
    "digits": Principal(id="4", claims={"x": 10**5000}),
    "much": Principal(id="4", claims={"x": "x" * 4096}),
}


@pytest.mark.parametrize("unfit", UNFIT.values(), ids=UNFIT)
def test_what_cannot_be_stored_is_refused_from_a_sign_in_and_from_code_and_the_reason_holds_no_value(
    unfit: Any,
) -> None:
    placed = replace(unfit, id=f"user:{unfit.id}", channel="web") if isinstance(unfit, Principal) else unfit
    asked = [(signed_in, unfit), (placed_by_code, unfit)] + [(placed_by_code, placed)] * (unfit != UNFIT["number"])
    for ask, principal in asked:
        with pytest.raises(InvalidRequest) as refused:
            ask(principal)
        assert refused.value.code == "principal_invalid"
        assert "xxx" not in str(refused.value)
        assert "444" not in str(refused.value)


@pytest.mark.parametrize(
    "id", ["42", "user:42", "system:nightly", "web:9", "api:acme", "mcp:x", "a2a:x", ":", "é" * 255]
)
def test_without_a_channel_user_goes_before_whatever_the_id_says_and_what_was_placed_stays(id: str) -> None:
    placed = placed_by_code(Principal(id=id, name="A", tenant="t", roles=frozenset({"r"}), claims={"a": (1, 2)}))
    expected = Principal(
        id=f"user:{id}", name="A", channel="code", tenant="t", roles=frozenset({"r"}), claims={"a": [1, 2]}
    )
    assert placed == expected
    assert placed_by_code(placed) == placed


def test_a_sign_in_names_no_channel() -> None:
    assert signed_in(Principal(id="mcp:desktop", channel="mcp")) == Principal(id="mcp:desktop")


@pytest.mark.parametrize(
    ("channel", "fits"),
    [
        ("web", {"web:1", "user:1"}),
        ("api", {"api:1"}),
        ("mcp", {"mcp:1", "user:1"}),
        ("a2a", {"a2a:1"}),
        ("code", {"system:1", "user:1"}),
        ("sms", set()),
    ],
)
def test_with_a_channel_the_id_must_be_one_of_it(channel: Any, fits: set[str]) -> None:
    for told in ("1", "web:1", "api:1", "mcp:1", "a2a:1", "user:1", "system:1", "user:", "system: ", "sms:1"):
        principal = Principal(id=told, channel=channel)
        if told in fits:
            assert placed_by_code(principal) == principal
        else:
            with pytest.raises(InvalidRequest):
                placed_by_code(principal)
