"""Nothing that is unpickled imports TensorFlow, or wakes it; names alone, where it is imported, do no harm."""

from __future__ import annotations

import io
import pickle
import sys
from typing import Any
from unittest import mock

import cloudpickle
import numpy as np
import pytest

from tests.isolate.crossing import Sent, is_awake, packages, receive, send, told
from tests.processes import run
from tfgpu_magic.errors import Unpicklable
from tfgpu_magic.isolate.values.guard import ROOTS, Unpickler
from tfgpu_magic.simgpu import Machine


def things() -> dict[str, Sent]:
    """Return what a call's process may send, and tensors as TensorFlow itself pickles them, which it would not."""
    import keras
    import tensorflow as tf
    from tensorflow import nn

    namespace: dict[str, Any] = {"__name__": "__main__", "tf": tf, "keras": keras, "relu": nn.relu}
    exec(  # as a cell does
        "def by_module(x): return tf.nn.relu(x)\n"
        "def by_keras(): return keras.layers\n"
        "def by_name(x): return relu(x)\n"
        "class Mine(keras.layers.Layer):\n    units = 3\n",
        namespace,
    )
    ours = {name: send(namespace[name]) for name in ("by_module", "by_keras", "by_name", "Mine")}
    ours |= {"lazy module": send(tf.keras), "module": send(tf), "method": send(tf.keras.Model.predict)}
    theirs = {
        "tensor": cloudpickle.dumps(tf.constant([1.0, 2.0])),
        "variable": cloudpickle.dumps(tf.Variable(1.0)),
        "error": cloudpickle.dumps(tf.errors.NotFoundError(None, None, "not there")),
    }
    return ours | {name: (stream, []) for name, stream in theirs.items()}


def where_it_is_not_imported(sent: dict[str, Sent]) -> tuple[dict[str, str], frozenset[str]]:
    return {name: told(receive, one) for name, one in sent.items()}, packages()


def where_it_is_imported(sent: dict[str, Sent]) -> tuple[dict[str, str], bool, list[int]]:
    from tests.tf.on_machine import held

    answers = {name: told(receive, one) for name, one in sent.items()}
    assert receive(sent["Mine"]).units == 3
    assert str(receive(sent["error"])) == "not there"
    return answers, is_awake(), held()


def test_tensorflow_is_never_imported_and_never_woken() -> None:
    with Machine.create("1x8GiB") as machine:
        sent = run(machine, things)
        absent, imported = run(None, where_it_is_not_imported, sent, fresh=True)
        present, awake, held = run(machine, where_it_is_imported, sent)

    for name, answer in absent.items():
        assert answer.startswith("Unpicklable: "), name
        assert "would import" in answer
    assert not imported
    assert not awake
    assert held == [0]
    assert {name for name, answer in present.items() if answer == "nothing"} == {
        "by_module", "by_keras", "Mine", "error", "lazy module", "module",
    }  # fmt: skip
    assert "relu is of TensorFlow's or Keras' own functions" in present["by_name"]
    assert "convert_to_tensor" in present["tensor"]
    assert all(present[name].startswith("Unpicklable: ") for name in ("tensor", "variable", "method"))


def names_it(module: str, name: str) -> io.BytesIO:
    return io.BytesIO(f"c{module}\n{name}\n.".encode())


@pytest.mark.parametrize(("module", "name"), [("keras", "Model"), ("tf_keras.src", "Model"), ("tensorflow", "Tensor")])
def test_every_package_of_theirs_is_refused_by_name_where_it_is_not_imported(module: str, name: str) -> None:
    with mock.patch.dict(sys.modules):
        for root in ROOTS:
            sys.modules.pop(root, None)
        with pytest.raises(Unpicklable, match=f"{module}.{name} would import"):
            Unpickler(names_it(module, name)).load()


def test_a_package_that_only_begins_like_theirs_is_nobodys_business() -> None:
    with pytest.raises(ModuleNotFoundError):
        Unpickler(names_it("tensorflow_of_mine", "thing")).load()


def test_everything_else_is_unpickled_as_ever() -> None:
    values = [np.arange(5), {"a": {1, 2}}, ValueError("x"), pickle.PickleError, len]
    again = receive(send(values))

    assert again[0].tolist() == [0, 1, 2, 3, 4]
    assert str(again[2]) == "x"
    assert again[1::2] == [{"a": {1, 2}}, pickle.PickleError]
    assert receive(send(lambda: values[4]))() is len
