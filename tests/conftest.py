"""What holds for every test: no board, home and settings but its own, and Ctrl-C is heard; the longest come first."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from multiprocessing.util import get_temp_dir
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from collections.abc import Iterator

# A machine that runs other tests beside has no deadlines, and CI looks at other examples each time.
settings.register_profile("here", deadline=None, derandomize=False, print_blob="CI" in os.environ)
settings.load_profile("here")


@pytest.fixture(autouse=True, scope="session")
def interrupts() -> None:
    """Let Ctrl-C be heard: a shell that starts the tests in the background has all their programs ignore it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True, scope="session")
def board(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Have a directory for boards that is not the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TFGPU_MAGIC_DIR", str(tmp_path_factory.mktemp("board", numbered=False) / "board"))
        yield


@pytest.fixture(autouse=True, scope="session")
def nobody(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Have a user without configuration, whose home and temporary files are gone afterwards."""
    tmp_path_factory.getbasetemp()  # pytest's own stays where it is: it keeps what failed
    get_temp_dir()  # and multiprocessing removes its own later than this
    before, made = tempfile.tempdir, tempfile.mkdtemp(prefix="tests-")  # short: paths of sockets are
    folder, home = Path(made), Path.home()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache") / "tfgpu_magic"
    for own in ("home/.config", "cache", "tmp"):
        (folder / own).mkdir(parents=True)
    for kept in (".config/pip", ".pip", ".gitconfig"):  # where packages come from, and whose clone this is
        if (home / kept).exists():
            (folder / "home" / kept).symlink_to(home / kept)
    cache.mkdir(parents=True, exist_ok=True)
    (folder / "cache" / "tfgpu_magic").symlink_to(cache)
    folder.chmod(0o755)
    (folder / "tmp").chmod(0o1777)  # some tests are also other users
    with pytest.MonkeyPatch.context() as patch:
        for name, where in _OWN.items():
            patch.setenv(name, str(folder / where))
        tempfile.tempdir = None
        yield
        tempfile.tempdir = before
    shutil.rmtree(folder, ignore_errors=True)


_OWN = {
    "HOME": "home",
    "IPYTHONDIR": "home/.ipython",
    "JUPYTER_CONFIG_DIR": "home/.jupyter",
    "JUPYTER_DATA_DIR": "home/.local/share/jupyter",
    "JUPYTER_RUNTIME_DIR": "home/.local/share/jupyter/runtime",
    "MPLCONFIGDIR": "cache/matplotlib",
    "TMPDIR": "tmp",
    "XDG_CACHE_HOME": "cache",
    "XDG_CONFIG_HOME": "home/.config",
}

LONGEST = (
    "browser/test_panel.py",
    "parking/test_deaths.py",
    "parking/test_traps.py",
    "notebooks/test_isolation.py",
    "insight/test_why.py",
    "magic/test_administrator.py",
    "browser/test_away.py",
    "server/test_idle.py",
    "magic/test_restart.py",
    "server/test_stream.py",
    "scripts/test_bench.py",
    "notebooks/test_tour.py",
    "browser/test_table.py",
    "isolate/test_standing.py",
    "isolate/test_together.py",
    "command/test_as_python.py",
    "test_wheel.py",
    "simgpu/test_tensorflow.py",
    "browser/test_restart.py",
    "isolate/test_cell.py",
    "monitor/test_collector.py",
    "isolate/test_cell_end.py",
    "server/test_kernels.py",
    "isolate/test_future.py",
    "isolate/test_cluster_trouble.py",
    "browser/test_settings.py",
    "tf/test_import.py",
)
"""Files of more than 40 s, as `--durations` says: they are begun first, so that none is alone in the end; next to one
another stand those that compute and those that wait."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest files first."""
    here = Path(__file__).parent
    places = {here / name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path, len(places)))
