"""A policy that stands until another is said, as calls have it: none is refused for it; what is nearest holds."""

from __future__ import annotations

import pytest

import tfgpu_magic
from tests.processes import run
from tfgpu_magic import IsolatedExecutor, isolated
from tfgpu_magic.engine import enforcement, engine
from tfgpu_magic.isolate.leasing import LEASES, LeaseRequest
from tfgpu_magic.isolate.process.forkserver_client import FORK_SERVER
from tfgpu_magic.policy import parser
from tfgpu_magic.simgpu import Machine

KEPT = 128  # MiB: what the driver keeps of each GPU
ROOM = (3 << 10) - KEPT - 256  # MiB: what 5 GiB of a neighbour leave of 8 GiB, beside a context


@pytest.mark.parametrize(
    ("policy", "neighbours", "held"),
    [
        ("limit 60%", ["5GiB@0", "5GiB@1"], f"visible 0; limit {ROOM}MiB --grow"),
        ("limit 60%", ["5GiB@0"], f"visible 1; limit {((8 << 10) - KEPT) * 60 // 100 - 256}MiB"),
        ("limit 12GiB", [], "visible 0; growth"),
        ("visible 1,7; growth", [], "visible 1; growth"),
        ("pick 3; limit 1GiB", [], "visible 0; limit 1GiB"),
        ("split 4GiB 2GiB", ["5GiB@0", "5GiB@1"], "visible 0; growth"),
    ],
)
def test_a_call_with_gpus_of_its_own_has_what_is_nearest(policy: str, neighbours: list[str], held: str) -> None:
    with Machine.create("2x8GiB") as machine:
        for neighbour in neighbours:
            machine.add_neighbour(neighbour)

        assert run(machine, _in_calls, policy, imported=False) == [held] * 3


def test_words_of_a_call_go_before_it() -> None:
    with Machine.create("2x8GiB") as machine:
        said = run(machine, _with_words, "visible 1,7; limit 40%", imported=False)

    assert said == ["visible 1; limit 1GiB", "visible 1; limit 1GiB"]


def test_what_no_policy_makes_possible_is_refused_in_the_words_of_what_was_said() -> None:
    with Machine.create("2x8GiB") as machine:
        machine.add_neighbour("7.8GiB@1")
        told = run(machine, _refused, "limit 40%", imported=False)

    assert "The call needs 2 GPUs, and 1 has room for it." in told
    assert "40% of the 7.9 GiB that processes can have is 3.1 GiB" in told


def test_where_there_is_no_gpu_none_is_named() -> None:
    with Machine.create("1x8GiB") as machine:
        machine.remove_driver()

        assert run(machine, _anywhere, "visible 0; growth", imported=False) == ["growth", "growth"]


def _stand(policy: str) -> None:
    FORK_SERVER.preload = ("numpy", "tfgpu_magic.engine.engine")  # no call uses TensorFlow
    enforcement.enforce_configured(policy, "the configuration", warn=lambda _: None)


def _said() -> str:
    return str(engine.current().asked)


def _in_calls(policy: str) -> list[str]:
    """Return what holds in a call of an executor, in one that asks for a GPU, and in the next."""
    _stand(policy)
    with IsolatedExecutor(1) as executor:
        first = executor.submit(_said).result()
    one = isolated(gpus=1)(_said)
    return [first, one(), one()]


def _with_words(policy: str) -> list[str]:
    """Return what holds in a call that has a limit of its own, and what a cell that has one is to apply."""
    _stand(policy)
    with LEASES.lease(LeaseRequest(parser.parse("limit 1GiB"), for_all=True)) as lease:
        shared = str(lease.policy)
    return [isolated(policy="limit 1GiB")(_said)(), shared]


def _refused(policy: str) -> str:
    _stand(policy)
    try:
        isolated(gpus=2)(_said)()
    except tfgpu_magic.Refused as error:
        return str(error)
    raise AssertionError


def _anywhere(policy: str) -> list[str]:
    """Return what holds in a call of an executor, and in a plain one."""
    _stand(policy)
    with IsolatedExecutor(1) as executor:
        return [executor.submit(_said).result(), isolated(_said)()]
