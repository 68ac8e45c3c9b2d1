"""The plain forms of Keras' own objects: a model as the bytes of its archive, a history as its numbers.

Neither imports TensorFlow before `ModelHandle.load` is called. Other plain forms are in `plain`.
Source: Keras pickles a model as the archive that `model.save` writes, made in memory (`KerasSaveable`, Keras 3.4).
"""

from __future__ import annotations

import contextlib
import gc
import io
import json
import math
import os
import pickle
import sys
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType
from typing import Any, NoReturn, SupportsIndex

import cloudpickle

from tfgpu_magic.errors import Unpicklable
from tfgpu_magic.ground import units
from tfgpu_magic.ground.message import join_commas, msg
from tfgpu_magic.isolate.values import pickling
from tfgpu_magic.isolate.values.pickling import ROOTS


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class ModelHandle:
    """A Keras model of another process, as it was there: weights, compile settings, the optimizer's state.

    It consists of bytes: it holds no GPU memory, and TensorFlow need not be imported.

    Attributes:
        name: the model's name.
        parameters: how many numbers its weights have.
        archive: the bytes of a ``.keras`` file; they travel apart from a pickle's stream and are not copied.
        customs: a pickle of the user's classes and functions that the archive names.
        left_out: the names of those that could not be pickled.
    """

    name: str
    parameters: int
    archive: bytes | bytearray | memoryview
    customs: bytes
    left_out: tuple[str, ...] = ()

    @classmethod
    def of(cls, model: Any) -> ModelHandle:
        """Take a model as it is now; its archive is made in memory, and no file is written.

        Raises:
            Unpicklable: Keras cannot save it whole.
        """
        what = f"The Keras model {model.name!r}"
        weights = "Send model.get_weights()"
        kind = sys.modules["keras"].Model
        if not hasattr(kind, "_unpickle_model"):
            text = "{model} needs Keras 3.4 or later to leave its process. {weights}."
            raise Unpicklable(msg(text, model=what, weights=weights), what=what)
        try:
            _, (archive,) = kind.__reduce__(model)  # Keras' own method, whatever a subclass has in its place
            view = archive.getbuffer()
            names = set(_texts(json.loads(zipfile.ZipFile(archive).read("config.json"))))
        except Exception as error:  # whatever a get_config of the user's raises
            reason = " ".join(str(error).split()).rstrip(".") or type(error).__name__
            text = (
                "{model} cannot be saved whole, and so cannot leave its process: {reason}. {weights}, or give {type} a "
                "get_config()."
            )
            facts = {"model": what, "reason": reason[:300], "weights": weights, "type": type(model).__qualname__}
            raise Unpicklable(msg(text, **facts), what=what) from error
        parts = _parts(model, names)
        brought = {name: part for name, part in parts.items() if _pickles(part)}
        parameters = sum(math.prod(weight.shape) for weight in model.weights)
        left_out = tuple(sorted(parts.keys() - brought.keys()))
        return cls(model.name, parameters, view, cloudpickle.dumps(brought), left_out)

    @property
    def size(self) -> int:
        """The size of the archive in bytes."""
        return memoryview(self.archive).nbytes

    def load(self, custom_objects: Mapping[str, Any] | None = None) -> Any:
        """Make the model in this process: this imports Keras and initializes TensorFlow, which takes the GPU.

        Args:
            custom_objects: classes and functions by the names under which Keras registers them; they take precedence
                over those in `customs`. Only those that `left_out` names are needed.

        Raises:
            Unpicklable: a name of `left_out` is missing in `custom_objects`.
        """
        given = dict(custom_objects or {})
        missing = [name for name in self.left_out if name not in given]
        if missing:
            text = (
                "{missing}, of which the model {name} is made, could not be brought along. Define it here, and call "
                "load(custom_objects={dict})."
            )
            facts = {"missing": join_commas(missing), "name": repr(self.name), "dict": f"{{{missing[0]!r}: …}}"}
            raise Unpicklable(msg(text, **facts), what=", ".join(missing))
        import keras

        with keras.saving.custom_object_scope({**pickling.load([memoryview(self.customs)]), **given}):
            # The public load_model takes only a path, and there may be no disk to write a file to. Every pickle of a
            # Keras model contains this name, so Keras will keep it.
            return keras.Model._unpickle_model(io.BytesIO(self.archive))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the ``.keras`` file that `keras.saving.load_model` reads, without TensorFlow.

        An existing file is replaced in one step, when the new one is complete on the disk.

        Raises:
            ValueError: the name does not end in ``.keras``.
            OSError: it could not be written; an existing file is unchanged.
        """
        if Path(path).suffix != ".keras":
            raise ValueError(f"{os.fspath(path)!r} does not end in .keras, and Keras reads a model from no other name.")
        target = Path(path).resolve()  # through a link, as any other writer would
        part = target.with_name(f".{target.name}.{os.getpid()}.part")
        try:
            with part.open("wb") as file:
                file.write(self.archive)
                file.flush()
                os.fsync(file.fileno())
            part.replace(target)
        except OSError as error:
            reason = f"the model {self.name!r} ({units.rounded(self.size)}) was not saved: {error.strerror}"
            raise OSError(error.errno, reason, os.fspath(path)) from error
        finally:
            with contextlib.suppress(OSError):
                part.unlink()

    def __getattr__(self, name: str) -> NoReturn:
        """Refuse an attribute of the model, and tell the user how to get the model itself.

        Raises:
            AttributeError: always; the handle's own attributes are found before.
        """
        raise AttributeError(
            f"This is a handle, and has no {name!r}: the model {self.name!r} is in another process's archive. "
            "load() makes the model here, in an isolated cell as in the notebook."
        )

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:
        apart = protocol.__index__() >= 5
        archive = pickle.PickleBuffer(self.archive) if apart else bytes(self.archive)
        return ModelHandle, (self.name, self.parameters, archive, self.customs, self.left_out)

    def __repr__(self) -> str:
        size = units.rounded(self.size) if self.size >= units.MIB else "below 1 MiB"
        return (
            f"<Keras model {self.name!r} of another process: {self.parameters:,} parameters, "
            f"{size}. load() makes it here and takes the GPU, save('….keras') writes it>"
        )


@dataclass(frozen=True, slots=True)
class TrainingHistory:
    """The numbers that `keras.Model.fit` returned in another process. The model is left out: it is large.

    Attributes:
        history: the value of each measure after each epoch.
        epoch: the numbers of the epochs.
        params: the arguments of the training: ``epochs``, ``steps``, ``verbose``.
    """

    history: dict[str, list[Any]]
    epoch: list[int]
    params: dict[str, Any]

    @property
    def model(self) -> Any:
        """The model, which is not sent with each history: reading it raises."""
        raise AttributeError("A training's history comes back without its model. Bring back the model beside it.")


def _texts(node: Any) -> Iterator[str]:
    """Yield every string in parsed JSON."""
    if isinstance(node, str):
        yield node
    elif isinstance(node, list | dict):
        for inside in node.values() if isinstance(node, dict) else node:
            yield from _texts(inside)


def _parts(model: Any, names: set[str]) -> dict[str, Any]:
    """Return the user's classes and functions that a model consists of and its archive names, by Keras' names.

    The archive has their names only, and Keras looks a name up in no module but its own. The objects themselves are
    found by way of the model: after its cell has run again, a class of the notebook is not the one that the model has.
    """
    name_of = sys.modules["keras"].saving.get_registered_name
    found: dict[str, Any] = {}
    seen = {id(model): model}  # kept, so that no id is used twice
    todo = [model]
    while todo:
        for part in gc.get_referents(todo.pop()):
            if id(part) in seen:
                continue
            seen[id(part)] = part
            for thing in (part, type(part)):
                if isinstance(thing, type | FunctionType) and _is_users(thing) and name_of(thing) in names:
                    found[name_of(thing)] = thing
            if isinstance(part, dict | list | tuple | set) or (_is_keras(part) and not isinstance(part, type)):
                todo.append(part)
    return found


def _is_users(thing: type | FunctionType) -> bool:
    return _root(thing) not in ROOTS | {"builtins"}


def _is_keras(part: object) -> bool:
    return any(_root(base) == "keras" for base in type(part).__mro__)


def _root(thing: Any) -> str:
    return str(thing.__module__).partition(".")[0]


def _pickles(part: Any) -> bool:
    try:
        cloudpickle.dumps(part)
    except Exception:  # its code refers to a lock or a data set
        return False
    return True
