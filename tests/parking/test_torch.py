"""The storages of the real PyTorch go away and come back in place; `scripts/frameworks` has the environment.

Its build for the CPU computes, and its storages are emptied and filled as those on a GPU are. `test_cuda_torch` has the
same on the build for CUDA, which computes nothing on a simulated machine.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tfgpu_magic.engine import room
from tfgpu_magic.errors import Refused
from tfgpu_magic.frameworks import registry
from tfgpu_magic.frameworks.torch.framework import FRAMEWORK
from tfgpu_magic.ground.message import Message, msg
from tfgpu_magic.parking import arrays, host_memory
from tfgpu_magic.parking.arrays import MovedArrays, survey
from tfgpu_magic.parking.frameworks import torch as parked
from tfgpu_magic.policy.process_state import Stage

pytestmark = [pytest.mark.frameworks, pytest.mark.filterwarnings("ignore:Sparse")]


class World:
    """The CPU's storages, as if they were on a GPU, and what its allocator would list."""

    def __init__(self) -> None:
        self.unlisted: set[int] = set()
        self.pool = (0, 0)
        self.without_tensor = 0

    def snapshot(self) -> list[dict[str, Any]]:
        found = {one.data_ptr(): one.nbytes() for _, one in parked._storages(gc.get_objects())}
        listed = [(address, size) for address, size in found.items() if address not in self.unlisted]
        listed += [(1 << 60, self.without_tensor)] * bool(self.without_tensor)
        blocks = [{"address": address, "size": size, "state": "active_allocated"} for address, size in listed]
        return [{"stream": 0, "segment_pool_id": self.pool, "blocks": blocks}]


@pytest.fixture(autouse=True)
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    pytest.importorskip("torch")
    gc.collect()  # garbage leaves, too
    made = World()
    monkeypatch.setattr(parked, "DEVICE", "cpu")
    monkeypatch.setattr(parked, "_snapshot", made.snapshot)
    monkeypatch.setattr(parked, "_stream", lambda *_: contextlib.nullcontext())
    monkeypatch.setattr(parked, "_synchronize", lambda _: None)
    monkeypatch.setattr(FRAMEWORK, "allocator", lambda: "native")
    monkeypatch.setattr(FRAMEWORK, "stage", lambda: Stage.READY)
    monkeypatch.setattr(FRAMEWORK, "pools", list)
    monkeypatch.setattr(registry, "FRAMEWORKS", (FRAMEWORK,))
    return made


def torch() -> Any:
    return importlib.import_module("torch")


def raw(storage: Any) -> bytes:
    """Return all bytes of a storage."""
    return ctypes.string_at(storage.data_ptr(), storage.nbytes()) if storage.nbytes() else b""


class Model:
    """A model with what notebooks have, in training, with all that its tensors are made of."""

    def __init__(self) -> None:
        t = torch()
        t.manual_seed(7)
        first, second = t.nn.Linear(64, 64), t.nn.Linear(64, 64)
        second.weight = first.weight  # tied
        self.net = t.nn.Sequential(t.nn.Embedding(50, 64), first, t.nn.Tanh(), second, t.nn.Linear(64, 1))
        self.optimizer = t.optim.Adam(self.net.parameters(), lr=0.01)
        self.x = t.randint(0, 50, (32,))
        base = t.randn(1000)
        self.others = [
            base, base[10:500], base[400:900], base.view(10, 100).t(), t.randn(9, 9)[::2, ::3],
            t.randn(100).to(t.bfloat16), t.rand(100) > 0.5, t.empty(0), t.randn(()), t.randint(0, 99, (7,)),
            t.randn(5, dtype=t.complex64),
        ]  # fmt: skip
        self.sparse = [t.eye(40).to_sparse(), t.eye(40).to_sparse_csr(), t.eye(40).to_sparse_csc()]
        self.storage = t.randn(50).untyped_storage()
        self.many = [t.randn(30) for _ in range(200)]

    def step(self) -> float:
        self.optimizer.zero_grad()
        loss = self.net(self.x).pow(2).sum()
        loss.backward()
        self.optimizer.step()
        return float(loss.detach())

    def content(self) -> list[bytes]:
        states = [one for state in self.optimizer.state.values() for one in state.values()]
        grads = [one.grad for one in self.net.parameters() if one.grad is not None]
        parts = [part for one in self.sparse for _, part in parked._of_tensor(one)]
        tensors = [*self.net.parameters(), *states, *grads, *self.others, *self.many, self.x]
        return list(map(raw, [*(one.untyped_storage() for one in tensors), *parts, self.storage]))


def there_and_back() -> int:
    """Park and come back; return the bytes that were away."""
    moves = MovedArrays()
    left = [one._storage for one in survey().leaves]  # type: ignore[attr-defined]  # a storage's
    moves.move_out()
    size = moves.size
    assert {one.nbytes() for one in left} == {0}
    moves.move_back()
    assert not moves.any_moved()
    return size


def test_everything_comes_back_bit_for_bit_and_training_goes_on_as_if_nothing_had_been() -> None:
    never, parks = Model(), Model()
    never.step()
    parks.step()
    pending = parks.net(parks.x).pow(2).sum()  # a graph that keeps tensors of its own
    before, versions = parks.content(), [one._version for one in parks.net.parameters()]
    size = there_and_back()

    assert parks.content() == before
    assert versions == [one._version for one in parks.net.parameters()]
    assert size > sum(map(len, before)) // 2
    parks.optimizer.zero_grad()
    pending.backward()
    parks.optimizer.step()
    never.step()
    assert [parks.step() for _ in range(3)] == [never.step() for _ in range(3)]


def test_each_storage_leaves_once_whatever_views_it_has() -> None:
    base = torch().randn(1000)
    views = [base[number:] for number in range(100)]

    assert [one.size for one in survey().leaves].count(4000) == 1
    assert len(views) == 100


def why(size: int) -> list[Message]:
    """Return why storages of a size stay."""
    return [one.why for one in survey().stays if one.size == size]


def test_what_another_library_has_lent_stays(world: World) -> None:
    keeps, tensor = torch().randn(50_000), torch().randn(1234)
    world.unlisted.add(tensor.data_ptr())
    lent = torch().from_numpy(importlib.import_module("numpy").zeros(4321, "float32"))

    assert why(1234 * 4) == [parked._LENT]
    assert why(4321 * 4) == [parked._LENT]
    assert there_and_back() >= keeps.nbytes
    assert (tensor.untyped_storage().nbytes(), lent.untyped_storage().nbytes()) == (1234 * 4, 4321 * 4)


def test_memory_to_which_no_tensor_leads_is_named(world: World) -> None:
    world.without_tensor = 4096
    keeps = torch().randn(50_000)

    assert why(4096) == [parked._ONLY_C]
    assert there_and_back() >= keeps.nbytes


def test_what_two_storages_share_stays() -> None:
    keeps, tensor = torch().randn(50_000), torch().randn(1234)
    alias = torch().from_dlpack(tensor)

    assert {*why(1234 * 4)} <= {parked._SHARED, parked._LENT}
    assert len(why(1234 * 4)) == 2
    assert there_and_back() >= keeps.nbytes
    tensor.fill_(3)
    assert float(alias[7]) == 3


def test_what_another_framework_has_by_its_address_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    tensor = torch().randn(1234)
    monkeypatch.setattr(arrays, "_addresses", lambda *_: [tensor.data_ptr() + 16])
    other: Any = type("Other", (registry.Framework,), {"name": "Other", "stage": lambda _: Stage.READY})()
    monkeypatch.setattr(registry, "FRAMEWORKS", (FRAMEWORK, other))

    assert why(1234 * 4) == [parked._FOREIGN]


def test_what_keeps_addresses_keeps_everything_where_it_is(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    model = Model()
    world.pool = (0, 1)
    with pytest.raises(Refused, match="CUDA graph"):
        MovedArrays().move_out()
    world.pool = (0, 0)
    monkeypatch.setitem(importlib.import_module("sys").modules, "cupy", object())
    with pytest.raises(Refused, match="CuPy may use it by its address"):
        MovedArrays().move_out()
    monkeypatch.undo()

    assert all(one.untyped_storage().nbytes() for one in model.net.parameters())


def test_what_another_process_may_have_keeps_everything_and_what_is_gone_or_elsewhere_does_not() -> None:
    keeps, tensor = torch().randn(50_000), torch().randn(1234)
    reductions = importlib.import_module("torch.multiprocessing.reductions")
    reductions.reduce_storage(tensor.untyped_storage())
    with pytest.raises(Refused, match="sent to another process"):
        MovedArrays().move_out()
    del tensor

    assert there_and_back() >= keeps.nbytes
    reductions.shared_cache.clear()


@pytest.mark.parametrize("when", ["before", "copied", "emptied"])
def test_where_a_storage_fails_what_had_left_is_back(when: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = Model()
    model.step()
    before = model.content()
    real: Callable[[Any], None] = parked.Storage.take_out
    total = len(survey().leaves)
    assert total > 200
    for fails in range(0, total, total // 8):
        count = iter(range(total))

        def take_out(self: Any, last: int = fails, count: Iterator[int] = count) -> None:
            if next(count) != last:
                real(self)
                return
            if when == "copied":
                self._host = torch().UntypedStorage(self.size)
                self._host.copy_(self._storage)
            elif when == "emptied":
                real(self)
            raise RuntimeError("it broke")

        monkeypatch.setattr(parked.Storage, "take_out", take_out)
        moves = MovedArrays()
        with pytest.raises(Refused, match=r"it broke Everything is back on the GPU\."):
            moves.move_out()
        assert not moves.any_moved()
        assert model.content() == before


def test_what_does_not_come_back_is_still_in_host_memory_and_comes_at_the_next_try(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = Model()
    model.step()
    before = model.content()
    moves = MovedArrays()
    moves.move_out()
    real, count = parked.Storage.put_back, iter(range(1000))

    def put_back(self: Any) -> None:
        number = next(count)
        if number % 5 == 3:
            self._storage.resize_(self.size)  # it was begun
            raise RuntimeError("the GPU is lost")
        if number % 5 == 4:
            raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        real(self)

    monkeypatch.setattr(parked.Storage, "put_back", put_back)
    monkeypatch.setattr(room, "TRY_EVERY", 0.0)
    lost = 0
    while moves.any_moved():
        try:
            moves.move_back()
        except RuntimeError:
            lost += 1

    assert lost > 3
    assert model.content() == before


def test_a_gpu_that_has_no_room_for_what_is_taken_back_says_what_is_in_host_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = Model()
    before = model.content()
    count, real = iter(range(1000)), parked.Storage.put_back

    def shortage(_: int) -> Message | None:
        return msg("No room.") if next(count) == 9 else None

    def no_room(_: Any) -> None:
        raise RuntimeError("CUDA out of memory.")

    monkeypatch.setattr(arrays, "_BATCH", 1)
    monkeypatch.setattr(host_memory, "shortage", shortage)
    monkeypatch.setattr(parked.Storage, "put_back", no_room)
    moves = MovedArrays()
    with pytest.raises(Refused, match="are safe in host memory, and come back before the next cell"):
        moves.move_out()
    assert moves.any_moved()
    monkeypatch.setattr(parked.Storage, "put_back", real)
    moves.move_back()
    assert model.content() == before


def test_without_its_gpu_every_value_is_an_array_by_its_name() -> None:
    t, model = torch(), Model()
    model.step()
    small = t.randn(9).to(t.float8_e4m3fn)
    complex_view = model.others[-1].conj()
    tensors = [one for one in model.others if one.dtype not in (t.bfloat16,)]
    before = {name: one.numpy().copy() for name, one in model.net.state_dict().items()}
    values, conjugated = [one.numpy().copy() for one in tensors], complex_view.resolve_conj().numpy().copy()
    raw_bfloat, raw_small = (one.view(kind).numpy().copy() for one, kind in (
        (model.others[5], t.uint16), (small, t.uint8)
    ))  # fmt: skip
    steps = [one["exp_avg"].numpy().copy() for one in model.optimizer.state.values()]
    moves = MovedArrays()
    moves.move_out()
    assert {one.untyped_storage().nbytes() for one in model.many} == {0}

    with t.device("meta"):  # whatever a notebook has for its new tensors
        state, count, errors = moves.in_host_memory(model.net)
    assert (count, errors) == (len(before), [])
    assert state.keys() == before.keys()
    assert all((state[name] == array).all() for name, array in before.items())
    made, count, _ = moves.in_host_memory([*tensors, complex_view, model.others[5], small, model.sparse[0], "text"])
    assert count == len(tensors) + 4
    for number, array in enumerate([*values, conjugated]):
        assert (made[str(number)] == array).all()
    bits = [array for name, array in made.items() if name not in map(str, range(len(tensors) + 1))]
    assert (bits[0]["bfloat16"] == raw_bfloat).all()
    assert (bits[1]["float8_e4m3fn"] == raw_small).all()
    assert (bits[2]["values"] == 1).all()
    assert bits[3] == "text"
    made, _, _ = moves.in_host_memory(model.optimizer)
    assert all((made[f"state.{number}.exp_avg"] == array).all() for number, array in enumerate(steps))
    assert made["param_groups.0.lr"] == 0.01
