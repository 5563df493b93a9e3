"""What all tests share: a folder of its own for each, because the shop's files are in the current one."""

import os

import pytest

os.environ["RECEIPT_SECONDS"] = "0"  # read when the app is imported; a receipt takes no time in a test


@pytest.fixture(autouse=True)
def own_folder(amoxi_folder):
    """Make a new folder the current one, with the settings of `application.json`."""
