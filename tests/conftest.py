"""What holds for every test: no board, home and settings but its own, and a process for each file."""

from __future__ import annotations

import os
import shutil
import tempfile
from multiprocessing.util import get_temp_dir
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from collections.abc import Iterator

pytest_plugins = ["tests.apart"]

# A machine that runs other tests beside has no deadlines. A run looks at the same examples each time, so that nothing
# goes red by chance; `--hypothesis-profile=search` looks at others.
settings.register_profile("here", deadline=None, derandomize=True, print_blob=True)
settings.register_profile("search", deadline=None, print_blob=True)
settings.load_profile("here")


@pytest.fixture(autouse=True, scope="session")
def board(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Have a directory for boards that is not the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TFGPU_MAGIC_DIR", str(tmp_path_factory.mktemp("board") / "board"))
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
        for tool in ("pip", "uv"):  # what they have fetched need not be fetched again
            if f"{tool.upper()}_CACHE_DIR" not in os.environ:
                patch.setenv(f"{tool.upper()}_CACHE_DIR", str(cache.with_name(tool)))
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
