"""What these tests run in processes on the simulated machine: cells in a real IPython, with the real TensorFlow."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from tests.magic.shell import Seen, cells
from tfgpu_magic.frameworks import tensorflow_arrays
from tfgpu_magic.frameworks.objects import Objects
from tfgpu_magic.insight.accounts import Account
from tfgpu_magic.insight.fold import Row
from tfgpu_magic.insight.search import Search
from tfgpu_magic.insight.tensors import Inventory, holders, inventory
from tfgpu_magic.views.tensors import called

SETUP = "%tf_gpu growth"
TENSORFLOW = "import tensorflow as tf"


@dataclass(frozen=True)
class Found:
    """What an inventory has: each array as it is called and its MiB, and the account of each GPU."""

    arrays: dict[str, int]
    accounts: tuple[Account, ...]

    @property
    def share(self) -> float:
        """The least part of what is in use on a GPU that is accounted for."""
        return min(account.found / account.in_use for account in self.accounts if account.in_use)


def found(*sources: str) -> Found:
    """Run cells, and return what holds memory then."""
    cells(SETUP, TENSORFLOW, *sources)
    return _found(inventory(everything=True))


def in_training(model: str) -> list[Found]:
    """Train the model that a cell makes, as TensorFlow is by default, and return what holds memory at each step."""
    import keras
    import numpy as np
    from IPython.core.interactiveshell import InteractiveShell

    looks: list[Found] = []

    class Look(keras.callbacks.Callback):  # type: ignore[misc]  # mypy does not know it
        def on_train_batch_end(self, *_: object, **__: object) -> None:
            looks.append(_found(inventory(everything=True)))

    cells(TENSORFLOW, model)
    made = InteractiveShell.instance().user_ns["model"]
    made.fit(np.zeros((64, 1024)), np.zeros((64, 10)), batch_size=16, verbose=0, callbacks=[Look()])
    return looks


def gone(model: str) -> Found:
    """Train the model that a cell makes, let go of it, and return what holds memory then."""
    cells(TENSORFLOW, model)
    train = "model.fit(np.zeros((16, 1024)), np.zeros((16, 10)), verbose=0); None"
    cells(train, "del model; keras.utils.clear_session()")
    gc.collect()
    return _found(inventory(everything=True))


def _found(taken: Inventory) -> Found:
    return Found({called(one.name, one.others): one.size >> 20 for one in taken.holdings}, taken.accounts)


def bounds() -> list[int]:
    """Return the bytes that iterators have at most: of five pairs, of as many as TensorFlow likes, of batches."""
    import tensorflow as tf

    cells(SETUP)
    pairs = tf.data.Dataset.range(99).map(lambda _: (tf.zeros([256, 1024]), tf.zeros([10])))
    found = []
    for dataset, number in ((pairs, 5), (pairs, None), (pairs.batch(3), 5)):
        iterator = iter(dataset.apply(tf.data.experimental.prefetch_to_device("GPU:0", number)))
        found += [one.size for one in tensorflow_arrays.arrays(Objects([iterator])) if one.rest]
    return found


def evaluated(*sources: str) -> dict[str, bool]:
    """Run cells; for each array that a name leads to, return whether the name gives it when it is evaluated."""
    from IPython.core.interactiveshell import InteractiveShell

    cells(SETUP, TENSORFLOW, *sources)
    names = InteractiveShell.instance().user_ns
    search = Search()
    rows = [Row(members=(one,)) for one in search.buffers]
    checked = {}
    for row, one in zip(rows, search.holdings(rows), strict=True):
        if one.name.inner or one.name.scopes or not one.name.parts:
            continue
        value = eval(one.name.expression, names)
        value = value.value if hasattr(value, "path") else value  # of a variable of Keras
        checked[one.name.expression] = value is search._arrays[row.members[0].arrays[0]][1].thing
    return checked


def shown(*sources: str) -> list[Seen]:
    """Run cells after those that set TensorFlow up, and return what they show."""
    return cells(SETUP, TENSORFLOW, *sources)[2:]


def in_a_program() -> Found:
    """Return what holds memory in a program without IPython."""
    import tensorflow as tf

    main: Any = sys.modules["__main__"]
    main.x = [tf.zeros([1024, 1024])]
    return _found(inventory(everything=True))


def in_threads_and_modules() -> Found:
    """Return what holds memory where a thread and a module of the user's hold some."""
    import tensorflow as tf

    own = ModuleType("own_module")
    own.__file__ = "/home/me/own_module.py"
    own.CACHE = {"a": tf.zeros([1024, 1024])}  # type: ignore[attr-defined]
    sys.modules["own_module"] = own
    begun, over = threading.Event(), threading.Event()

    def train() -> None:
        batch = [tf.zeros([2, 1024, 1024])]
        begun.set()
        over.wait()
        del batch

    thread = threading.Thread(target=train)
    thread.start()
    begun.wait()
    seen = _found(inventory(everything=True))
    over.set()
    thread.join()
    return seen


def before_and_after() -> tuple[list[int], list[int], bool, int]:
    """Return references to arrays and what leads to them before and after, whether one goes, and what is in use."""
    import tensorflow as tf

    arrays = [tf.zeros([1024, 1024]), tf.Variable(tf.zeros([1024, 1024]))]
    box = {"a": arrays}
    gone = weakref.ref(arrays[0])
    inventory()  # what is made once is made
    before = [sys.getrefcount(one) for one in (*arrays, arrays, box)]
    taken = inventory()
    after = [sys.getrefcount(one) for one in (*arrays, arrays, box)]
    del arrays, box
    assert len(taken.holdings) == 2
    return before, after, gone() is None, tf.config.experimental.get_memory_info("GPU:0")["current"]


def asleep(imported: str) -> tuple[str, str, bool]:
    """Ask where TensorFlow is not imported, or not started; return what is shown, its stage, and if it is imported."""
    from tfgpu_magic.config.runtime import current_stage

    seen = cells(*([TENSORFLOW] if imported else []), "%tf_gpu tensors", "%tf_gpu free")
    return seen[-2].text + seen[-1].text, current_stage().name, "tensorflow" in sys.modules


def within_an_errors_handler() -> tuple[list[str], str]:
    """Run out of memory, and return what `holders` says in the error's handler, and the error."""
    import tensorflow as tf

    def fill() -> None:
        batches = []
        for size in (16, 8, 4, 2, 16384):
            batches += [tf.zeros([size, 256, 1024])]

    try:
        fill()
    except tf.errors.ResourceExhaustedError as error:
        return [called(one.name) for one in holders(2)], type(error).__name__
    raise AssertionError
