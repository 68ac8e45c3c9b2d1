"""Under the open kernel module no end of a notebook hangs the machine, whether it is parked or back: real kernels."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.jupyter import Notebook, execute, serving
from tests.parking.conftest import phase
from tests.parking.notebooks import Site, home, is_parked, park
from tests.sizes import GIB
from tests.slack import SLACK
from tests.waiting import until
from tfgpu_magic.parking.states import Phase
from tfgpu_magic.simgpu import Machine

PATIENT = f"--KernelManager.shutdown_wait_time={30 * SLACK}"
"""Jupyter Server takes five seconds, in which a busy machine may not have copied a GiB."""
AT_EXIT = "import atexit, pathlib; atexit.register(lambda: pathlib.Path({!r}).write_text(str(intact())))"


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], contextlib.AbstractContextManager[Site]]]:
    """Start servers on a machine with the open kernel module, where the administrator allows parking."""
    with pytest.MonkeyPatch.context() as patch, Machine.create("1x8GiB") as machine:
        patch.setenv("TFGPU_MAGIC_DIR", str(tmp_path_factory.mktemp("board") / "board"))
        for name, value in machine.environ().items():
            patch.setenv(name, value)
        machine.set_driver("595.71.05", open_module=True)

        @contextlib.contextmanager
        def start() -> Iterator[Site]:
            place = home(tmp_path_factory.mktemp("home"), parking_on_open_module=True)
            with serving(machine, place, options=[PATIENT]) as server:
                yield Site(machine, server)

        yield start


@pytest.fixture(scope="module")
def site(opened: Callable[[], contextlib.AbstractContextManager[Site]]) -> Iterator[Site]:
    with opened() as site:
        yield site


def restart(site: Site, notebook: Notebook) -> None:
    site.server.call(f"kernels/{notebook.kernel}/restart", method="POST")


def shut_down(site: Site, notebook: Notebook) -> None:
    site.server.open(f"api/kernels/{notebook.kernel}", method="DELETE").close()


def terminate(_: Site, notebook: Notebook) -> None:
    os.kill(notebook.pid, signal.SIGTERM)


def kill(_: Site, notebook: Notebook) -> None:
    os.kill(notebook.pid, signal.SIGKILL)


def exit_in_cell(_: Site, notebook: Notebook) -> None:
    notebook.client.execute("exit()")


def lose_server(site: Site, _: Notebook) -> None:
    site.server.process.kill()


def stop_as_a_hub(site: Site, _: Notebook) -> None:
    """Ask the server to end, and kill it after ten seconds."""
    site.server.process.terminate()
    try:
        site.server.process.wait(10)
    except subprocess.TimeoutExpired:
        site.server.process.kill()


def ended(machine: Machine, notebook: Notebook) -> None:
    """Wait for a notebook's end, and see whether the machine's driver still answers."""
    until(lambda: machine.hung() or not Path(f"/proc/{notebook.pid}").exists())
    assert not machine.hung()
    assert machine.held(pid=notebook.pid) == 0


@pytest.mark.parametrize("end", [restart, shut_down, terminate, exit_in_cell])
def test_one_that_is_back_is_parked_again_after_what_it_does_at_its_end(
    site: Site, end: Callable[[Site, Notebook], None], tmp_path: Path
) -> None:
    said = tmp_path / "said"
    with site.holding("back.ipynb", GIB) as notebook:
        notebook.run(AT_EXIT.format(str(said)))
        park(notebook)
        assert notebook.run("print(intact())") == "True\n"
        end(site, notebook)
        ended(site.machine, notebook)

        assert said.read_text() == "True"  # with the GPU
        if end is restart:
            again = site.server.connect(notebook.kernel)
            assert "anew" in execute(again, "print('anew')")
            again.stop_channels()


@pytest.mark.parametrize("end", [restart, shut_down, terminate, kill])
def test_one_that_is_parked_ends_at_once(site: Site, end: Callable[[Site, Notebook], None], tmp_path: Path) -> None:
    said = tmp_path / "said"
    with site.holding("parked.ipynb", GIB) as notebook:
        notebook.run(AT_EXIT.format(str(said)))
        park(notebook)
        notebook.run("pass")
        park(notebook)
        end(site, notebook)
        ended(site.machine, notebook)

        assert not said.exists()  # there is no GPU for it


def test_one_that_comes_back_when_it_ends_is_parked_again(site: Site) -> None:
    with site.holding("comes.ipynb", GIB) as notebook:
        park(notebook)
        site.machine.set_checkpoints(back=0.5 / (1 + SLACK))
        notebook.client.execute("pass")
        until(lambda: phase(notebook.pid) is Phase.RESTORING)
        terminate(site, notebook)
        ended(site.machine, notebook)
        site.machine.set_checkpoints(back=0.0)


@pytest.mark.parametrize("parked", [True, False], ids=["parked", "back"])
@pytest.mark.parametrize("end", [lose_server, stop_as_a_hub])
def test_a_server_that_is_gone_takes_its_kernels_with_it(
    opened: Callable[[], contextlib.AbstractContextManager[Site]], end: Callable[[Site, Notebook], None], parked: bool
) -> None:
    with opened() as site:
        notebook = Notebook(site.server, "lost.ipynb")
        notebook.run(f"from tests.simgpu.checkpoint_on_machine import hold, intact; at = hold({GIB})")
        park(notebook)
        if not parked:
            assert notebook.run("print(intact())") == "True\n"
        assert is_parked(notebook) == parked
        end(site, notebook)
        ended(site.machine, notebook)
        notebook.client.stop_channels()
