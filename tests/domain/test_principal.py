"""Who asks: stored with a run, and back the same."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from amoxi_py.domain.encoding import decode_json, encode_json
from amoxi_py.domain.principal import Principal, principal_from_json, principal_to_json

clean = st.text(st.characters(min_codepoint=1, exclude_categories=["Cs"]), max_size=8)
principals = st.builds(
    Principal,
    id=st.from_regex(r"(web|api|mcp|a2a|user|system):[a-z0-9:]{1,12}", fullmatch=True),
    name=clean,
    channel=st.sampled_from(["web", "api", "mcp", "a2a", "code"]),
    tenant=st.none() | clean,
    roles=st.frozensets(clean, max_size=3),
    claims=st.dictionaries(clean, st.none() | st.booleans() | st.integers() | clean | st.lists(clean), max_size=3),
)


@settings(deadline=None)
@given(principal=principals)
def test_a_principal_comes_back_from_the_store_as_it_was(principal: Principal) -> None:
    stored = encode_json(principal_to_json(principal))
    assert principal_from_json(principal.id, decode_json(stored)) == principal


@settings(deadline=None)
@given(principal=principals)
def test_the_same_principal_is_always_stored_as_the_same_text(principal: Principal) -> None:
    again = Principal(
        id=principal.id,
        name=principal.name,
        channel=principal.channel,
        tenant=principal.tenant,
        roles=frozenset(sorted(principal.roles, reverse=True)),
        claims=dict(principal.claims),
    )
    assert encode_json(principal_to_json(again)) == encode_json(principal_to_json(principal))


def test_an_anonymous_visitor_takes_no_more_than_its_channel() -> None:
    assert principal_to_json(Principal(id="web:abc", channel="web")) == {"channel": "web"}


def test_a_tenant_that_is_empty_text_is_not_none() -> None:
    kept = principal_from_json("user:1", principal_to_json(Principal(id="user:1", tenant="")))
    assert kept.tenant == ""


def test_roles_given_as_a_set_or_a_list_become_a_frozen_set() -> None:
    for roles in ({"finance"}, ["finance"], ("finance", "finance")):
        assert Principal(id="user:1", roles=roles).roles == frozenset({"finance"})  # type: ignore[arg-type]  # an app's sign-in may give any
