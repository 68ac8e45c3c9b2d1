"""What a caller is to get of a call, pickled in the call's process: only what can be had in the caller's."""

from __future__ import annotations

import functools

from tfgpu_magic.errors import Unpicklable
from tfgpu_magic.isolate.values import pickling, plain
from tfgpu_magic.isolate.values.guard import Unpickler
from tfgpu_magic.isolate.values.pickling import Pickled


def give(value: object, name: str, imported: frozenset[str]) -> Pickled:
    """Pickle what the caller is to get: TensorFlow's objects as plain ones, and only what can be had there.

    Args:
        value: what to pickle.
        name: what people call it.
        imported: which of TensorFlow's packages the caller has imported.

    Raises:
        Unpicklable: it cannot be sent, or nothing could be made of it.
    """
    pickled = pickling.dump_whole(value, name, reduce=plain.reduce)
    try:
        pickling.load(pickled.parts, functools.partial(Unpickler, modules=imported))
    except Unpicklable as error:
        raise Unpicklable(f"{name}: {error}", what=name) from None
    except Exception as error:  # whatever an object's own __setstate__ raises
        kind = type(value).__qualname__
        message = f"{name}, a {kind}, can be pickled and not be made again of that ({error})."
        raise Unpicklable(message, what=name) from error
    return pickled
