"""`NamedTuple` and a frozen `dataclass` as the standard library's, in a tenth of the time that those take to define.

A first `%tf_gpu` line waits for thirty such classes, and for a process that looks at the GPUs: the library compiles
code for each, and `typing` takes that process longer than the look.
"""

from __future__ import annotations

from collections import namedtuple

TYPE_CHECKING = False

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
    from dataclasses import replace as replace
    from typing import NamedTuple as NamedTuple
else:

    class _Definition(type):
        def __new__(cls, name, bases, space):
            if not bases:
                return super().__new__(cls, name, bases, space)
            fields = space["__annotations__"]
            defaults = [space.pop(field) for field in fields if field in space]
            made = namedtuple(name, fields, defaults=defaults)  # this is what gives the fields their types
            made.__new__.__annotations__ = fields
            for key, value in space.items():
                setattr(made, key, value)
            return made

    class NamedTuple(metaclass=_Definition):
        """A tuple of the fields that a class annotates."""

    class _Frozen:
        """What a class has of `dataclass`, where it has none of its own."""

        def __init__(self, *values, **named):
            given = {**self._defaults, **dict(zip(self._fields, values, strict=False)), **named}
            if len(values) > len(self._fields) or given.keys() != set(self._fields):
                raise TypeError(f"{type(self).__name__} has the fields {', '.join(self._fields)}")
            vars(self).update((field, given[field]) for field in self._fields)

        def __repr__(self):
            return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"

        def __eq__(self, other):
            return vars(self) == vars(other) if type(other) is type(self) else NotImplemented

        def __hash__(self):
            return hash(tuple(vars(self).values()))

        def __setattr__(self, name, value=None):
            raise AttributeError(f"{type(self).__name__} is frozen: {name!r} cannot be set")

        __delattr__ = __setattr__

    def dataclass(**_):
        """Give a class what a frozen dataclass has; its instances are made of its own annotated fields."""

        def define(cls):
            fields = [name for name, kind in cls.__annotations__.items() if not kind.startswith("ClassVar")]
            cls._fields, cls._defaults = fields, {name: vars(cls)[name] for name in fields if name in vars(cls)}
            for name, method in vars(_Frozen).items():
                if name not in vars(cls):
                    setattr(cls, name, method)
            return cls

        return define

    def replace(record, /, **changes):
        """Return an instance of such a class with some fields replaced."""
        return type(record)(**{**vars(record), **changes})
