"""What tests/gpu asks of a real GPU, on a simulated one: under the open kernel module it brings nothing back."""

from __future__ import annotations

import pytest

from tests.gpu import holding
from tests.machines import machine_of
from tests.processes import run
from tfgpu_magic.simgpu import Machine

apart = machine_of("1x3GiB", scope="function")


@pytest.mark.parametrize("open_module", [False, True])
def test_a_process_comes_back_but_under_the_open_module_where_it_ends_suspended(
    apart: Machine, open_module: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TFGPU_TEST_OPEN_MODULE", raising=False)
    apart.set_driver("595.71.05", open_module=open_module)
    if open_module:
        apart.fault("cuCheckpointProcessRestore", 999)  # which would be told
    seen: holding.Suspended = run(apart, holding.suspended, "plain", fresh=True)

    assert (seen.trouble, seen.held[1], seen.same) == ("", None, None if open_module else True)
    assert (seen.against, seen.mappings) == (("open-module",) if open_module else (), 1)
    assert (apart.hung(), apart.held()) == (False, 0)
