"""A server on a simulated machine, and a notebook there whose arrays can be parked."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.jupyter import serving
from tests.parking.notebooks import Parkable, Site, home, seen


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("home")
    with seen("1x8GiB", tmp_path_factory.mktemp("board")) as machine, serving(machine, home(folder)) as server:
        yield Site(machine, server)


@pytest.fixture(scope="module")
def notebook(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Parkable]:
    with site.parkable("train.ipynb", tmp_path_factory.mktemp("shelf")) as notebook:
        yield notebook


@pytest.fixture
def digest(notebook: Parkable) -> str:
    return notebook.run("print(digest())").split()[-1]
