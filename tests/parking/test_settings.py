"""What the administrator says of parking holds: real IPython and kernels on a simulated machine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.jupyter import LEAN, Notebook, configure, serving
from tests.machines import machine_of
from tests.magic.shell import cells, loading
from tests.processes import run
from tests.server.conftest import ENABLED, ROOT
from tests.sizes import GIB
from tests.waiting import until
from tfgpu_magic.simgpu import Machine

ASKED = "from types import SimpleNamespace; from tfgpu_magic.notebook.publisher import parks"
OPEN = "c.TfGpuMagics.parking_on_open_module = True"


machine = machine_of("1x8GiB", scope="function")


@pytest.mark.parametrize(
    ("configured", "open_module", "parks"),
    [
        ({}, False, False),
        ({"parking": "off"}, False, False),
        ({"parking": " off "}, False, False),
        ({"parking": "ask"}, False, True),
        ({"parking": "auto 30m"}, False, True),
        ({"parking": "ask"}, True, False),
        ({"parking": "ask", "parking_on_open_module": True}, True, True),
        ({"parking_on_open_module": True}, True, False),
        ({"parking": "auto often"}, False, False),
    ],
)
def test_buttons_and_advice_are_for_what_the_configuration_allows(
    machine: Machine, configured: dict[str, Any], open_module: bool, parks: bool
) -> None:
    machine.set_driver("595.71.05", open_module=open_module)

    said, *rest = run(machine, _configured, configured)
    assert rest == [str(parks), ""]
    assert "Parking is off." in said if configured.get("parking") == "auto often" else said == ""


def test_a_cell_cannot_allow_it_under_the_open_module_and_can_take_that_back(machine: Machine) -> None:
    machine.set_driver("595.71.05", open_module=True)
    allow, take_back = ("%config TfGpuMagics.parking_on_open_module = " + value for value in ("True", "False"))
    refused = run(machine, _configured, {"parking": "ask"}, allow)
    lowered = run(machine, _configured, {"parking": "ask", "parking_on_open_module": True}, take_back)

    assert refused[1] == lowered[1] == "False"
    assert OPEN in refused[2]
    assert lowered[2] == ""


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("park --auto 20m", "This session is parked by itself when no cell has run for 20m."),
        ("park --auto off", "This session is not parked by itself any more."),
        ("unpark", "This session is not parked: what it holds of the GPUs is there."),
    ],
)
def test_a_session_in_a_terminal_is_not_called_a_notebook(machine: Machine, line: str, said: str) -> None:
    assert run(machine, _configured, {"parking": "ask"}, f"%tf_gpu {line}")[2] == f"{said}\n"


def test_a_kernel_whose_administrator_says_so_parks_itself(machine: Machine, tmp_path: Path) -> None:
    home = tmp_path / "home"
    configure(home, parking="auto 2s")
    environment = {"TFGPU_MAGIC_DIR": str(home / "board"), "PYTHONPATH": f"{ROOT}:{LEAN}"}
    with serving(machine, home, options=[ENABLED], environment=environment) as server:
        notebook = Notebook(server, "train.ipynb")
        notebook.run(f"from tests.simgpu.on_machine import allocate; allocate({GIB})")
        until(lambda: machine.held(pid=notebook.pid) == 0)
        held = "from tfgpu_magic.simgpu import Machine; print(Machine.current().held(pid=os.getpid()))"
        assert int(notebook.run(f"import os; {held}").split()[-1]) > GIB
        notebook.client.stop_channels()


def _configured(settings: Mapping[str, Any], line: str = "") -> list[str]:
    """Return what loading the extension says, whether the notebook lets itself be parked, and what a line says."""
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    InteractiveShell.instance(config=Config({"TfGpuMagics": dict(settings)}))
    loaded = loading()[0].text
    said = cells(line)[-1].text if line else ""
    assert cells(f"{ASKED}; print(parks(get_ipython()))")[-1].text == "False\n"  # nobody can ask a session
    kernel = "SimpleNamespace(kernel=None, magics_manager=get_ipython().magics_manager)"
    return [loaded, cells(f"{ASKED}; print(parks({kernel}))")[-1].text.strip(), said]
