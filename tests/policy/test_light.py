"""The light classes do what the standard library's do, in all that this package uses of them."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import typing
from typing import Any, ClassVar

import pytest

from tfgpu_magic.model import light
from tfgpu_magic.policy.memory import Percentage
from tfgpu_magic.policy.policy import Policy
from tfgpu_magic.policy.requests.limit import Limit


class Base:
    __slots__ = ()

    grow: bool = True


def frozen(dataclass: Any) -> Any:
    @dataclass(frozen=True)
    class Made(Base):
        """Documented."""

        kind: ClassVar[int] = 7

        size: int
        gpu: str | None = None
        grow: bool = False

        def __str__(self) -> str:
            return f"{self.size} of {self.gpu}"

    Made.__qualname__ = "Made"
    return Made


@pytest.mark.parametrize("dataclass", [light.dataclass, dataclasses.dataclass])
def test_a_light_class_is_as_a_frozen_dataclass(dataclass: Any) -> None:
    made = frozen(dataclass)
    one = made(1, grow=True)

    assert (one.size, one.gpu, one.grow, one.kind, str(one), made.__doc__) == (
        1,
        None,
        True,
        7,
        "1 of None",
        "Documented.",
    )
    assert repr(one) == "Made(size=1, gpu=None, grow=True)"
    assert one == made(grow=True, size=1) != made(2)
    assert len({one, copy.copy(one), copy.deepcopy(one), made(2)}) == 2
    assert one != frozen(dataclass)(1, grow=True)
    for wrong in ((), (1, 2, 3, 4)):
        with pytest.raises(TypeError):
            made(*wrong)
    with pytest.raises(TypeError):
        made(1, unknown=2)
    with pytest.raises(AttributeError):
        one.size = 2
    with pytest.raises(AttributeError):
        del one.size


def test_a_light_instance_is_replaced_and_sent() -> None:
    limit = Limit(2**30, grow=True)
    policy = Policy((limit,))

    assert pickle.loads(pickle.dumps(policy)) == policy
    assert light.replace(policy, requests=()) == Policy()
    assert light.replace(limit, gpu=1) == Limit(2**30, 1, grow=True)
    assert Percentage.__mro__ == (Percentage, object)


@pytest.mark.parametrize("base", [light.NamedTuple, typing.NamedTuple])
def test_a_light_named_tuple_is_as_the_library_s(base: Any) -> None:
    class Made(base):  # type: ignore[misc]
        """Documented."""

        label: str
        free: int | None = None

        @property
        def known(self) -> bool:
            return self.free is not None

    one = Made("0")

    assert (one, one.known, one._replace(free=1).known, Made.__doc__) == (("0", None), False, True, "Documented.")
    assert (Made._fields, Made._field_defaults, list(Made.__annotations__)) == (
        ("label", "free"),
        {"free": None},
        ["label", "free"],
    )
    assert repr(one) == "Made(label='0', free=None)"
    assert one._asdict() == {"label": "0", "free": None}
    with pytest.raises(TypeError):
        Made()
