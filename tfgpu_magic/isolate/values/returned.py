"""The values that a call returns, pickled in its worker process: only what the caller's process can unpickle."""

from __future__ import annotations

import functools

from tfgpu_magic.errors import Unpicklable
from tfgpu_magic.isolate.values import pickling, plain
from tfgpu_magic.isolate.values.guard import Unpickler
from tfgpu_magic.isolate.values.pickling import Pickled


def give(value: object, name: str, imported: frozenset[str]) -> Pickled:
    """Pickle a value for the caller: TensorFlow's objects in plain form, and only what can be unpickled there.

    Args:
        value: what to pickle.
        name: its name for people, for the error.
        imported: which of TensorFlow's packages the caller has imported.

    Raises:
        Unpicklable: it cannot be pickled, or not be unpickled there.
    """
    pickled = pickling.dump_self_contained(value, name, reduce=plain.reduce)
    try:
        pickling.load(pickled.parts, functools.partial(Unpickler, modules=imported))
    except Unpicklable as error:
        raise Unpicklable(f"{name}: {error}", what=name) from None
    except Exception as error:  # whatever an object's own __setstate__ raises
        kind = type(value).__qualname__
        message = f"{name}, a {kind}, can be pickled and not be made again of that ({error})."
        raise Unpicklable(message, what=name) from error
    return pickled
