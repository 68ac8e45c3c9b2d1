"""Objects that the walk passes in its tests, and how it calls what it finds there."""

from __future__ import annotations

import sys
from collections.abc import Generator

from tfgpu_magic.insight.names import Step
from tfgpu_magic.insight.walk import NOWHERE, Walk
from tfgpu_magic.views.tensors import called


class Array:
    """What is looked for."""


class Box:
    """A class of a user's, with attributes."""

    shared: object = None

    def __init__(self, **attributes: object) -> None:
        vars(self).update(attributes)


def found(array: object, **names: object) -> str | None:
    """Return how the array is called, found from these names."""
    walk = Walk({id(array)}, [sys.modules])
    walk.start((Step(name), value) for name, value in names.items())
    walk.run(to_the_end=True)
    place = walk.place(array)
    return None if place == NOWHERE else called(walk.name(place))


def generating(array: object) -> Generator[object, None, None]:
    """Return a generator that has a local variable."""
    batch = [array]
    yield len(batch)
