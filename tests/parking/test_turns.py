"""Notebooks that together hold more than a GPU has take turns on it: cells at random, and no state lost."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from random import Random

import pytest

from tests.jupyter import reply_to
from tests.parking.notebooks import Site, is_parked, park, standing
from tests.waiting import until
from tfgpu_magic.parking import client
from tfgpu_magic.parking.states import Phase

SECONDS = 25.0
"""How long cells are run; each has as long as it needs."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with standing(tmp_path_factory) as site:
        yield site


def test_three_notebooks_take_turns_on_a_gpu_that_has_room_for_one(site: Site) -> None:
    with contextlib.ExitStack() as stack:
        notebooks = []
        for number in range(3):
            notebooks.append(stack.enter_context(site.holding(f"turn-{number}.ipynb")))
            park(notebooks[-1])
        for notebook in notebooks:  # each comes back for this, when the one before lets it
            notebook.run("%tf_gpu park --auto 1s --when-needed")
        end, chance, cells = time.monotonic() + SECONDS, Random(1), []
        while time.monotonic() < end:
            some = chance.sample(notebooks, chance.randint(1, 3))  # which wait for one another
            asked = [one.client.execute("same = intact()", user_expressions={"same": "same"}) for one in some]
            cells += [reply_to(one.client, number) for one, number in zip(some, asked, strict=True)]
            time.sleep(chance.uniform(0.1, 3.0))
        until(lambda: sum(not is_parked(notebook) for notebook in notebooks) <= 1)
        entries = [client.parked(notebook.pid) for notebook in notebooks]

    assert len(cells) >= 3
    assert [cell for cell in cells if "'True'" not in str(cell)] == []
    assert Phase.FAILED not in [entry.phase for entry in entries if entry is not None]
    assert sum(entry.returns for entry in entries if entry is not None) >= 4  # each came back for its line, too
