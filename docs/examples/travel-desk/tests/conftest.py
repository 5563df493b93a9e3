"""What all tests share: a folder of its own for each, and the secret of the payment provider."""

from typing import Any

import pytest

SECRET = "the-secret-of-the-provider-in-the-tests"


@pytest.fixture(autouse=True)
def own_folder(amoxi_folder):
    """Make a new folder the current one, with the settings of `application.json`."""


@pytest.fixture
def amoxi_settings() -> dict[str, Any]:
    return {"travel.webhook-secret": SECRET}
