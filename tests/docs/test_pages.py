"""What the guides and the README tell to do, done: every file written, every command run, every output compared."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GUIDES = sorted((ROOT / "docs" / "guides").glob("*.md"))
PAGES = [ROOT / "README.md", *GUIDES]
MOST_NOT_RUN = 5


@pytest.mark.crash
@pytest.mark.timeout(300)
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem.lower())
def test_every_block_of_a_page_runs_and_prints_what_it_says(page: Path, read_page: Callable[[Path, bool], int]) -> None:
    assert read_page(page, page.stem == "README") > 0


def test_only_a_few_blocks_are_not_run(count_blocks: Callable[[Path], tuple[int, int]]) -> None:
    """Those have a comment before them that says why."""
    assert sum(fences - run for fences, run in map(count_blocks, PAGES)) <= MOST_NOT_RUN
