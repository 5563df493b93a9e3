"""What a call's rows say about it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from amoxi_py.domain.approval import Approval
from amoxi_py.domain.tool_call import CallStatus, Effect, ToolCall
from amoxi_py.domain.usage import NO_USAGE, Usage

CALL = ToolCall(id="call_1", turn=1, n=0, tool="pay", arguments='{"a":1}', effect=Effect.UNSAFE)


def test_only_an_unsafe_effect_may_not_be_repeated() -> None:
    assert [effect for effect in Effect if not effect.repeatable] == [Effect.UNSAFE]


@pytest.mark.parametrize("status", CallStatus)
def test_a_call_is_an_error_when_it_is_settled_but_not_done(status: CallStatus) -> None:
    assert replace(CALL, status=status).is_error == (status not in {"open", "started", "done"})


def test_a_call_runs_with_the_arguments_that_a_person_edited_else_with_the_models() -> None:
    assert CALL.effective_arguments == '{"a":1}'
    assert replace(CALL, approval=Approval(created_at=0.0)).effective_arguments == '{"a":1}'
    edited = replace(CALL, approval=Approval(created_at=0.0, decision="approve", arguments="{}"))
    assert edited.effective_arguments == "{}"
    assert edited.arguments == '{"a":1}'


def test_an_approval_expires_only_while_it_is_undecided_and_at_its_moment() -> None:
    approval = Approval(created_at=0.0, expires_at=10.0)
    assert [approval.expired(now) for now in (9.9, 10.0, 11.0)] == [False, True, True]
    assert not replace(approval, decision="approve").expired(11.0)
    assert not replace(approval, expires_at=None).expired(1e12)


def test_usage_adds_up() -> None:
    one = Usage(requests=1, input_tokens=20, output_tokens=3)
    assert NO_USAGE + one + one == Usage(requests=2, input_tokens=40, output_tokens=6)
