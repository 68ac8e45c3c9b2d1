"""What TensorFlow and Keras make arrives in another process as plain values or as bytes, and wakes nothing there."""

from __future__ import annotations

import io
import pickle
import resource
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias
from unittest import mock

import cloudpickle
import ml_dtypes
import numpy as np
import pytest

from tests.processes import run
from tests.tf.on_machine import held
from tfgpu_magic.isolate.values import pickling, plain
from tfgpu_magic.isolate.values.keras_objects import ModelHandle, TrainingHistory
from tfgpu_magic.machine import host_memory
from tfgpu_magic.simgpu import Machine

Sent: TypeAlias = tuple[bytes, list[bytes]]
"""A stream, and the memory that was pickled apart from it."""


class Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # it has no types
    def reducer_override(self, obj: Any) -> Any:
        reduced = plain.reduce(obj)
        return super().reducer_override(obj) if reduced is NotImplemented else reduced


def on_cpu(function: Callable[..., Any], *args: Any) -> Any:
    """Run a function with TensorFlow imported and no GPU for it: the simulated ones' arithmetic gives zeros."""
    with Machine.create("1x8GiB") as machine:
        return run(machine, function, *args, env={"CUDA_VISIBLE_DEVICES": "-1"})


def send(value: object) -> Sent:
    stream, apart = io.BytesIO(), list[pickle.PickleBuffer]()
    Pickler(stream, protocol=5, buffer_callback=apart.append).dump(value)
    return stream.getvalue(), [bytes(buffer.raw()) for buffer in apart]


def receive(sent: Sent) -> Any:
    stream, apart = sent
    return pickling.GuardedUnpickler(io.BytesIO(stream), buffers=[bytearray(part) for part in apart]).load()


def packages() -> frozenset[str]:
    """Return which of the packages that take the GPU this process has imported."""
    return pickling.ROOTS & set(sys.modules)


def is_awake() -> bool:
    """Tell whether TensorFlow, imported here, has made its context, and with it one on every GPU."""
    from tensorflow.python.eager import context

    return bool(context.context()._initialized)


def told(function: Callable[..., object], *args: object) -> str:
    """Return what a function's error says."""
    try:
        function(*args)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


BIG = 2**18
"""Numbers in an array that is to travel apart."""


# What a cell may make of TensorFlow's and Keras', as it is typed, and what arrives.

MADE = """
import keras, tensorflow as tf
with tf.distribute.MirroredStrategy(["CPU:0"]).scope():
    mirrored = tf.Variable([1.0, 2.0])
module, layer, shared = tf.Module(), keras.layers.Dense(1), tf.constant([1, 2])
module.kept = layer.kept = [1, {"a": (2, 3)}]
"""

KINDS: list[tuple[str, Any]] = [
    ("tf.constant([[1.0, 2.0]])", np.array([[1, 2]], np.float32)),
    ("tf.constant(3)", np.int32(3)),
    ("tf.zeros((0, 3))", np.zeros((0, 3), np.float32)),
    ("tf.constant('à')", "à".encode()),
    ("tf.constant(['a', 'b'])", np.array([b"a", b"b"], object)),
    ("tf.cast([1.5, 2.5], tf.bfloat16)", np.array([1.5, 2.5], ml_dtypes.bfloat16)),
    ("tf.cast(1.5, tf.bfloat16)", ml_dtypes.bfloat16(1.5)),
    ("tf.cast([1.5], tf.dtypes.experimental.float8_e4m3fn)", np.array([1.5], ml_dtypes.float8_e4m3fn)),
    ("tf.constant([1j])", np.array([1j])),
    ("tf.Variable([1, 2])", np.array([1, 2], np.int32)),
    ("mirrored", np.array([1, 2], np.float32)),
    ("keras.Variable([1.0, 2.0])", np.array([1, 2], np.float32)),
    ("tf.ragged.constant([[1], [2, 3]])", [[1], [2, 3]]),
    ("tf.TensorShape([None, 2])", (None, 2)),
    ("tf.TensorShape(None)", None),
    ("tf.float32", np.dtype("float32")),
    ("tf.bfloat16", np.dtype(ml_dtypes.bfloat16)),
    ("module.kept", [1, {"a": (2, 3)}]),
    ("layer.kept", [1, {"a": (2, 3)}]),
    ("{'deep': [(tf.constant(1.0), {tf.constant('k').numpy(): tf.constant(2)})]}", {"deep": [(1.0, {b"k": 2})]}),
    ("[{'a': 1}, 'text', 1.5, None, len]", [{"a": 1}, "text", 1.5, None, len]),
    ("[shared, shared]", None),
]


def typed(codes: list[str], given: str = MADE) -> dict[str, Sent | str]:
    """Return what is typed as it is sent, or why it is not."""
    space: dict[str, Any] = {"__name__": "__main__"}
    exec(given, space)
    return {code: sent_or_why(eval(code, space)) for code in codes}


def sent_or_why(value: object) -> Sent | str:
    try:
        return send(value)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def as_received(sent: dict[str, Sent]) -> tuple[dict[str, Any], frozenset[str]]:
    return {name: receive(one) for name, one in sent.items()}, packages()


def test_values_arrive_equal_and_plain_where_tensorflow_is_not_imported() -> None:
    sent = on_cpu(typed, [code for code, _ in KINDS])
    values, imported = run(None, as_received, sent, fresh=True)
    one, other = values.pop("[shared, shared]")

    assert not imported
    assert one is other
    assert one.flags.writeable
    for code, expected in KINDS[:-1]:
        value = values[code]
        assert type(value) is type(expected), code
        if isinstance(expected, np.ndarray):
            assert (value.dtype, value.tolist()) == (expected.dtype, expected.tolist()), code
        else:
            assert value == expected, code
    assert type(values["module.kept"][1]) is type(values["layer.kept"][1]) is dict


def large() -> list[tuple[int, list[int], bool]]:
    """Return the lengths of the stream and of what is apart from it, and whether that is the tensor's own memory."""
    import tensorflow as tf

    answers = []
    for value in (tf.zeros(BIG), tf.zeros(BIG, tf.bfloat16), tf.Variable(tf.zeros(BIG))):
        stream, apart = io.BytesIO(), list[pickle.PickleBuffer]()
        Pickler(stream, protocol=5, buffer_callback=apart.append).dump(value)
        own = np.asarray(value.read_value() if isinstance(value, tf.Variable) else value).view(np.uint8)
        shared = bool(np.shares_memory(np.frombuffer(apart[0].raw(), np.uint8), own))
        answers.append((len(stream.getvalue()) // 1000, [buffer.raw().nbytes for buffer in apart], shared))
    return answers


def test_a_large_tensor_is_its_own_memory_apart_from_the_stream() -> None:
    assert on_cpu(large) == [(0, [BIG * size], True) for size in (4, 2, 4)]


def on_a_gpu() -> tuple[Sent, str, bool]:
    import tensorflow as tf

    with tf.device("GPU:0"):
        tensor = tf.constant([1.0, 2.0])
    with mock.patch.object(host_memory, "check_room") as demand:
        return send(tensor), tensor.device, mock.call(8) in demand.mock_calls


def test_a_tensor_of_a_gpu_is_read_from_it() -> None:
    with Machine.create("1x8GiB") as machine:
        sent, device, demanded = run(machine, on_a_gpu)

    assert demanded  # room for it, before it is copied
    assert device.endswith("GPU:0")
    assert receive(sent).tolist() == [1.0, 2.0]


REFUSED = [
    "tf.data.Dataset.range(3)",
    "iter(tf.data.Dataset.range(3))",
    "tf.data.Dataset.range(3).as_numpy_iterator()",
    "tf.function(len)",
    "tf.function(lambda x: x).get_concrete_function(tf.TensorSpec([]))",
    "tf.distribute.MirroredStrategy(['CPU:0'])",
    "tf.sparse.from_dense([0, 1])",
    "tf.IndexedSlices(tf.constant([1.0]), tf.constant([0]))",
    "tf.TensorArray(tf.float32, 1)",
    "keras.Input((2,))",
    "keras.layers.Dense(1)",
    "keras.optimizers.Adam()",
    "keras.metrics.Mean()",
    "type('Mine', (keras.callbacks.Callback,), {})()",
    "tf.Module()",
    "keras.losses.MeanSquaredError()",
    "tf.GradientTape()",
    "[{'a': (tf.data.Dataset.range(3),)}]",
    "(lambda one: lambda: one)(tf.data.Dataset.range(3))",
]


def symbolic_and_resource() -> tuple[Any, Any]:
    import tensorflow as tf

    inside = []
    tf.function(lambda x: inside.append(sent_or_why(x)))(tf.constant(1))
    return inside[0], sent_or_why(tf.Variable(1).handle)


def test_what_has_no_plain_form_is_refused_by_name() -> None:
    refusals = on_cpu(typed, REFUSED)
    symbolic, resource = on_cpu(symbolic_and_resource)

    assert "is symbolic" in symbolic
    assert "Return it" in symbolic
    assert "A tf.Tensor cannot be read" in resource
    for code, said in refusals.items():
        assert said.startswith("Unpicklable: "), code
        assert "cannot leave the process that made it. Bring back numpy arrays" in said, code


def a_history() -> tuple[Sent, int]:
    import keras

    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1000)])
    model.compile("sgd", "mse")
    history = model.fit(np.ones((4, 2)), np.ones((4, 1000)), epochs=3, verbose=0)
    sent = send(history)
    return sent, len(sent[0]) + sum(map(len, sent[1]))


def a_received_history(sent: Sent) -> tuple[TrainingHistory, str, frozenset[str]]:
    history = receive(sent)
    return history, told(lambda: history.model), packages()


def test_what_fit_returns_arrives_with_its_numbers_and_without_its_model() -> None:
    sent, size = on_cpu(a_history)
    history, about_model, imported = run(None, a_received_history, sent, fresh=True)

    assert not imported
    assert history.epoch == [0, 1, 2]
    assert len(history.history["loss"]) == 3
    assert history.params["epochs"] == 3
    assert size < 1000
    assert "Bring back the model beside it" in about_model


THINGS = """
import keras, tensorflow as tf
from tensorflow.nn import relu
def by_module(x): return tf.nn.relu(x)
def by_keras(): return keras.layers
def by_name(x): return relu(x)
class Mine(keras.layers.Layer):
    units = 3
"""


def things() -> dict[str, Any]:
    """Return what a call's process may send, and tensors as TensorFlow itself pickles them, which it would not."""
    import tensorflow as tf

    ours = typed(["by_module", "by_keras", "by_name", "Mine", "tf.keras", "tf", "tf.keras.Model.predict"], THINGS)
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
    works = {name for name, answer in present.items() if answer == "nothing"}
    assert works == {"by_module", "by_keras", "Mine", "error", "tf.keras", "tf"}
    assert "relu is of TensorFlow's or Keras' own functions" in present["by_name"]
    assert "convert_to_tensor" in present["tensor"]
    assert all(present[name].startswith("Unpicklable: ") for name in ("tensor", "variable", "tf.keras.Model.predict"))


INPUT = np.arange(6, dtype=np.float32).reshape(3, 2)
STAND_IN = ModelHandle("mine", 3, b"new bytes", pickle.dumps({}))
"""Bytes are bytes: writing them does not look into them."""


def as_seen(model: Any) -> dict[str, Any]:
    """Return everything of a model that must survive."""
    return {
        "name": model.name,
        "weights": [weight.tolist() for weight in model.get_weights()],
        "answers": model.predict(INPUT, verbose=0).tolist(),
        "optimizer": [np.asarray(value).tolist() for value in model.optimizer.variables],
        "iterations": int(model.optimizer.iterations),
        "loss": model.evaluate(INPUT, INPUT[:, :1], verbose=0),
    }


CELL = """
def sharp(x): return 3 * keras.ops.relu(x)
def odd(y, p): return 3 * keras.ops.mean(abs(y - p))
class Twice(keras.layers.Layer):
    def call(self, x): return x * 2
class Half(keras.regularizers.Regularizer):
    def __call__(self, x): return 3 * keras.ops.sum(x)
    def get_config(self): return {}
@keras.saving.register_keras_serializable("mine")
class Marked(keras.layers.Layer):
    def call(self, x): return x + 3
def local():
    class Inside(keras.layers.Layer):
        def call(self, x): return x * 3
    return Inside()
class Net(keras.Model):
    def __init__(self, units, activation=None, **rest):
        super().__init__(**rest)
        self.inner = keras.layers.Dense(units, activation)
        self.out = [Twice(), keras.layers.Dense(1)]
    def get_config(self):
        return super().get_config() | {"units": self.inner.units, "activation": self.inner.activation}
    @classmethod
    def from_config(cls, config):
        return cls(**config | {"activation": keras.saving.deserialize_keras_object(config["activation"])})
    def call(self, x):
        x = self.inner(x)
        for layer in self.out:
            x = layer(x)
        return x
"""

MODELS = {
    "of Keras' own": "keras.Sequential([entry, keras.layers.Dense(300), keras.layers.Dense(1)], name='mine'), 'mse'",
    "of a class": "Net(4, sharp, name='net'), odd",
    "of a graph": """keras.Model(
        entry,
        keras.layers.Dense(1)(keras.layers.Concatenate()([
            keras.layers.Lambda(lambda x: x + 1)(local()(Marked()(
                keras.layers.Dense(4, activation=sharp, kernel_regularizer=Half())(entry)
            ))),
            entry,
        ])),
    ), odd""",
}


def made(kind: str) -> tuple[Sent, dict[str, Any]]:
    """Return a model of what a cell has defined, and since then defined otherwise."""
    import keras

    space: dict[str, Any] = {"__name__": "__main__", "keras": keras, "entry": keras.Input((2,))}
    exec(CELL, space)
    model, loss = eval(MODELS[kind], space)
    model.compile("adam", loss, metrics=["mae"])
    model.fit(INPUT, INPUT[:, :1], epochs=2, batch_size=1, verbose=0)
    exec(CELL.replace("3", "7"), space)
    return send({"model": model, "again": model}), as_seen(model)


def loaded(sent: Sent) -> dict[str, Any]:
    values = receive(sent)
    assert values["model"] is values["again"]
    return as_seen(values["model"].load())


@pytest.mark.parametrize("kind", MODELS)
def test_a_model_is_the_same_when_it_is_loaded_in_another_process(kind: str) -> None:
    sent, before = on_cpu(made, kind)
    after = on_cpu(loaded, sent)

    assert after.pop("answers") == pytest.approx(np.array(before.pop("answers")))
    assert after.pop("loss") == pytest.approx(before.pop("loss"))
    assert after == before
    assert before["iterations"] == 6


def kept(sent: Sent, path: str) -> dict[str, Any]:
    handle = receive(sent)["model"]
    handle.save(path)
    again = pickle.loads(pickle.dumps(handle, protocol=4))
    stream, apart = send(handle)
    return {
        "imported": packages(),
        "told": [handle.name, handle.parameters, handle.size],
        "repr": repr(handle),
        "same": again.load.__doc__ and bytes(again.archive) == bytes(handle.archive) == apart[0],
        "stream": len(stream),
    }


def read(path: str) -> dict[str, Any]:
    import keras

    return as_seen(keras.saving.load_model(path))


def test_a_handle_is_kept_sent_on_and_saved_without_tensorflow(tmp_path: Path) -> None:
    path = tmp_path / "mine.keras"
    sent, before = on_cpu(made, "of Keras' own")
    facts = run(None, kept, sent, str(path), fresh=True)
    after = on_cpu(read, str(path))

    assert not facts["imported"]
    assert facts["told"] == ["mine", 2 * 300 + 300 + 300 + 1, path.stat().st_size]
    assert facts["repr"].startswith(
        "<Keras model 'mine' of another process: 1,201 parameters, below 1 MiB. load() makes"
    )
    assert facts["same"]
    assert facts["stream"] < 1000
    assert [len(part) for part in sent[1]] == [path.stat().st_size]  # once, apart from the stream
    assert after["weights"] == before["weights"]
    assert after["optimizer"] == before["optimizer"]


def around_load(sent: Sent) -> list[tuple[bool, bool]]:
    def state() -> tuple[bool, bool]:
        return is_awake(), any(held())

    handle = receive(sent)
    before = state()
    handle.load()
    return [before, state()]


def an_unfitted_model() -> Sent:
    import keras

    return send(keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)]))


def test_only_load_takes_the_gpu() -> None:
    with Machine.create("1x8GiB") as machine:
        sent = run(machine, an_unfitted_model)

        assert run(machine, around_load, sent) == [(False, False), (True, True)]


def with_a_lock() -> tuple[Sent, list[Any]]:
    import threading

    import keras

    namespace: dict[str, Any] = {"__name__": "__main__", "keras": keras, "lock": threading.Lock()}
    exec("class Locked(keras.layers.Layer):\n    def call(self, x):\n        with lock: return x", namespace)
    model = keras.Sequential([keras.Input((2,)), namespace["Locked"](), keras.layers.Dense(1)], name="mine")
    return send(model), model.get_weights()


def given_the_lock(sent: Sent) -> tuple[str, list[Any]]:
    import keras

    class Locked(keras.layers.Layer):  # type: ignore[misc]
        pass

    handle = receive(sent)
    return told(handle.load), handle.load({"Locked": Locked}).get_weights()


def test_a_class_that_cannot_be_sent_is_asked_for_by_name() -> None:
    sent, before = on_cpu(with_a_lock)
    asked, after = on_cpu(given_the_lock, sent)

    assert asked.startswith("Unpicklable: Locked, of which the model 'mine' is made, could not be brought along.")
    assert "load(custom_objects={'Locked': …})" in asked
    assert [weight.tolist() for weight in after] == [weight.tolist() for weight in before]


def hard_ones() -> tuple[str, Any]:
    import keras

    class Odd(keras.Model):  # type: ignore[misc]
        def __init__(self, _: object) -> None:
            super().__init__(name="odd")

        def call(self, x: Any) -> Any:
            return x

    unbuilt = receive(send(keras.Sequential([keras.layers.Dense(1)], name="unbuilt")))
    return told(send, Odd(object())), (unbuilt.parameters, unbuilt.load().name)


def test_a_model_that_keras_cannot_save_is_refused_with_its_reason_and_an_unbuilt_one_is_not() -> None:
    refused, unbuilt = on_cpu(hard_ones)

    assert refused.startswith("Unpicklable: The Keras model 'odd' cannot be saved whole")
    assert "must override `get_config()`" in refused
    assert "Send model.get_weights(), or give" in refused
    assert unbuilt == (0, "unbuilt")


@pytest.mark.parametrize("name", ["mine", "mine.h5", "mine.keras.zip", ".keras"])
def test_a_name_that_keras_would_not_read_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"does not end in \.keras"):
        STAND_IN.save(tmp_path / name)

    assert not list(tmp_path.iterdir())


def test_a_file_is_replaced_through_a_link_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    file, link = tmp_path / "file.keras", tmp_path / "link.keras"
    file.write_bytes(b"old bytes")
    link.symlink_to(file)

    STAND_IN.save(link)

    assert file.read_bytes() == b"new bytes"
    assert link.is_symlink()
    assert {path.name for path in tmp_path.iterdir()} == {"file.keras", "link.keras"}


def save_where_little_can_be_written(path: str) -> str:
    resource.setrlimit(resource.RLIMIT_FSIZE, (4, 4))
    return told(lambda: STAND_IN.save(path))


def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "mine.keras"
    path.write_bytes(b"old bytes")

    error = on_cpu(save_where_little_can_be_written, str(path))

    assert "the model 'mine' (9 B) was not saved: File too large" in error
    assert str(path) in error
    assert path.read_bytes() == b"old bytes"
    assert list(tmp_path.iterdir()) == [path]
