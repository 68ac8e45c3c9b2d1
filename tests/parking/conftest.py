"""A server on a simulated machine, whose notebooks can be parked."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.jupyter import serving
from tests.parking.notebooks import MODEL, Parkable, Site, home, seen


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("home")
    with seen("1x8GiB", tmp_path_factory.mktemp("board")) as machine, serving(machine, home(folder)) as server:
        yield Site(machine, server)


@pytest.fixture(scope="module")
def trained(site: Site) -> Iterator[Parkable]:
    with Parkable(site, "model.ipynb", MODEL) as notebook:
        yield notebook
