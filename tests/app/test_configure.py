"""`@configure`: what a function is given beside the web application."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import FastAPI

from amoxi_py import create_app, install
from amoxi_py.app.declarations import read_declarations
from amoxi_py.app.runtime import Runtime, StandIns
from amoxi_py.app.web import web_app

SOURCE = """
from fastapi import FastAPI
from pydantic import BaseModel, SecretStr
from amoxi_py import configure, settings


@settings("desk")
class Desk(BaseModel):
    secret: SecretStr


@configure
def add_session(app: FastAPI, desk: Desk, more: str = "plain") -> None:
    app.state.told = (desk.secret.get_secret_value(), more)
"""


def test_a_configure_function_gets_settings_of_the_apps_own_before_the_start(make_app: Callable[..., Any]) -> None:
    settings = make_app(SOURCE, {"desk.secret": "s3cret"})
    assert create_app(settings).state.told == ("s3cret", "plain")
    mine = FastAPI()
    install(mine, settings=settings)
    assert mine.state.told == ("s3cret", "plain")


def test_a_configure_function_gets_what_a_test_gives_in_place_of_settings(make_app: Callable[..., Any]) -> None:
    settings = make_app(SOURCE)
    declarations = read_declarations(settings)
    (desk,) = declarations.settings
    given = StandIns(instances={desk: desk(secret="of the test")})
    assert web_app(Runtime(settings, declarations, stand_ins=given)).state.told == ("of the test", "plain")
