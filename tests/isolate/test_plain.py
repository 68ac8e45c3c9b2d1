"""What TensorFlow makes in one process arrives in another as plain values, where TensorFlow is not even imported."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

from tests.isolate.crossing import Sent, on_cpu, packages, receive, send, told
from tests.processes import run
from tfgpu_magic.isolate.values import plain
from tfgpu_magic.isolate.values.keras_objects import TrainingHistory
from tfgpu_magic.simgpu import Machine

BIG = 2**18
"""Numbers in an array that is to travel apart."""


def many_kinds() -> dict[str, Sent]:
    import keras
    import tensorflow as tf

    with tf.distribute.MirroredStrategy(["CPU:0"]).scope():
        mirrored = tf.Variable([1.0, 2.0])
    module = tf.Module()
    module.kept = [1, {"a": (2, 3)}]
    layer = keras.layers.Dense(1)
    layer.kept = [1, {"a": (2, 3)}]
    shared = tf.constant([1, 2])
    values = {
        "tensor": tf.constant([[1.0, 2.0]]),
        "number": tf.constant(3),
        "empty": tf.zeros((0, 3)),
        "text": tf.constant("à"),
        "texts": tf.constant(["a", "b"]),
        "bfloat16": tf.cast([1.5, 2.5], tf.bfloat16),
        "a bfloat16": tf.cast(1.5, tf.bfloat16),
        "float8": tf.cast([1.5, 2.5], tf.dtypes.experimental.float8_e4m3fn),
        "complex": tf.constant([1j]),
        "variable": tf.Variable([1, 2]),
        "mirrored": mirrored,
        "keras": keras.Variable([1.0, 2.0]),
        "ragged": tf.ragged.constant([[1], [2, 3]]),
        "shape": tf.TensorShape([None, 2]),
        "no shape": tf.TensorShape(None),
        "dtype": tf.float32,
        "bfloat16 dtype": tf.bfloat16,
        "tracked": module.kept,
        "tracked by keras": layer.kept,
        "nested": {"deep": [(tf.constant(1.0), {tf.constant("k").numpy(): tf.constant(2)})]},
        "twice": [shared, shared],
        "others": [np.arange(3), {"a": 1}, "text", 1.5, None, len, ValueError("x")],
    }
    return {name: send(value) for name, value in values.items()}


def as_received(sent: dict[str, Sent]) -> tuple[dict[str, Any], frozenset[str]]:
    values = {name: receive(one) for name, one in sent.items()}
    values["is one"] = values["twice"][0] is values["twice"][1]
    values["writable"] = values["tensor"].flags.writeable
    return values, packages()


def test_values_arrive_equal_and_plain_where_tensorflow_is_not_imported() -> None:
    sent = on_cpu(many_kinds)
    values, imported = run(None, as_received, sent, fresh=True)

    assert not imported
    for name, expected in {
        "tensor": np.array([[1, 2]], np.float32),
        "number": np.int32(3),
        "empty": np.zeros((0, 3), np.float32),
        "texts": np.array([b"a", b"b"], object),
        "complex": np.array([1j]),
        "variable": np.array([1, 2], np.int32),
        "mirrored": np.array([1, 2], np.float32),
        "keras": np.array([1, 2], np.float32),
    }.items():
        assert type(values[name]) is type(expected), name
        assert values[name].dtype == expected.dtype, name
        assert values[name].tolist() == expected.tolist(), name
    for name in ("bfloat16", "float8"):
        assert values[name].dtype.name == {"float8": "float8_e4m3fn"}.get(name, name)
        assert values[name].astype(float).tolist() == [1.5, 2.5]
    assert float(values["a bfloat16"]) == 1.5
    assert values["text"] == "à".encode()
    assert values["ragged"] == [[1], [2, 3]]
    assert (values["shape"], values["no shape"]) == ((None, 2), None)
    assert values["dtype"] == np.dtype("float32")
    assert values["bfloat16 dtype"].name == "bfloat16"
    for name in ("tracked", "tracked by keras"):
        assert (type(values[name]), type(values[name][1])) == (list, dict)
        assert values[name] == [1, {"a": (2, 3)}]
    assert values["nested"] == {"deep": [(1.0, {b"k": 2})]}
    assert values["is one"]
    assert values["writable"]
    assert values["others"][3:6] == [1.5, None, len]


def big_ones() -> dict[str, tuple[int, list[int], bool]]:
    """Return the lengths of the stream and of what is apart from it, and whether that is the tensor's own memory."""
    import io

    import tensorflow as tf

    from tests.isolate.crossing import Pickler

    answers = {}
    for name, value in {
        "tensor": tf.zeros(BIG),
        "bfloat16": tf.zeros(BIG, tf.bfloat16),
        "variable": tf.Variable(tf.zeros(BIG)),
    }.items():
        stream, apart = io.BytesIO(), list[pickle.PickleBuffer]()
        Pickler(stream, protocol=5, buffer_callback=apart.append).dump(value)
        theirs = np.frombuffer(apart[0].raw(), np.uint8)
        own = np.shares_memory(theirs, np.asarray(value.read_value() if name == "variable" else value).view(np.uint8))
        answers[name] = len(stream.getvalue()), [buffer.raw().nbytes for buffer in apart], bool(own)
    return answers


def test_a_large_tensor_is_its_own_memory_apart_from_the_stream() -> None:
    answers = on_cpu(big_ones)

    for name, (stream, apart, own) in answers.items():
        assert stream < 1000, name
        assert apart == [BIG * (2 if name == "bfloat16" else 4)], name
        assert own, name


def on_a_gpu() -> tuple[Sent, str]:
    import tensorflow as tf

    with tf.device("GPU:0"):
        tensor = tf.constant([1.0, 2.0])
    return send(tensor), tensor.device


def test_a_tensor_of_a_gpu_is_read_from_it() -> None:
    with Machine.create("1x8GiB") as machine:
        sent, device = run(machine, on_a_gpu)

    assert device.endswith("GPU:0")
    assert receive(sent).tolist() == [1.0, 2.0]


def every_refusal() -> dict[str, str]:
    import keras
    import tensorflow as tf

    function = tf.function(lambda x: x)
    inside = []
    tf.function(lambda x: inside.append(told(send, x)))(tf.constant(1))

    class Mine(keras.callbacks.Callback):  # type: ignore[misc]
        pass

    values = {
        "dataset": tf.data.Dataset.range(3),
        "iterator": iter(tf.data.Dataset.range(3)),
        "numpy iterator": tf.data.Dataset.range(3).as_numpy_iterator(),
        "function": function,
        "concrete": function.get_concrete_function(tf.TensorSpec([])),
        "strategy": tf.distribute.MirroredStrategy(["CPU:0"]),
        "sparse": tf.sparse.from_dense([0, 1]),
        "slices": tf.IndexedSlices(tf.constant([1.0]), tf.constant([0])),
        "array": tf.TensorArray(tf.float32, 1),
        "resource": tf.Variable(1).handle,
        "symbolic": keras.Input((2,)),
        "layer": keras.layers.Dense(1),
        "optimizer": keras.optimizers.Adam(),
        "metric": keras.metrics.Mean(),
        "callback": Mine(),
        "module": tf.Module(),
        "loss": keras.losses.MeanSquaredError(),
        "tape": tf.GradientTape(),
        "deep": [{"a": (tf.data.Dataset.range(3),)}],
        "closure": (lambda one: lambda: one)(tf.data.Dataset.range(3)),
    }
    return {"in a function": inside[0]} | {name: told(send, value) for name, value in values.items()}


def test_what_has_no_plain_form_is_refused_by_name() -> None:
    refusals = on_cpu(every_refusal)
    symbolic, resource = refusals.pop("in a function"), refusals.pop("resource")

    assert "is symbolic" in symbolic
    assert "Return it" in symbolic
    assert "A tf.Tensor cannot be read" in resource
    for what, said in refusals.items():
        assert said.startswith("Unpicklable: "), what
        assert "cannot leave the process that made it. Bring back numpy arrays" in said, what


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


def an_error() -> Any:
    import tensorflow as tf

    return plain.reduce(tf.errors.ResourceExhaustedError(None, None, "full")) is NotImplemented


def test_tensorflows_exceptions_are_left_to_others() -> None:
    assert on_cpu(an_error)


@pytest.mark.parametrize("thing", [1, "a", [1], len, int, pickle, np.arange(3), np.float32(1), ValueError("x"), Sent])
def test_what_is_not_tensorflows_is_left_alone(thing: object) -> None:
    assert plain.reduce(thing) is NotImplemented
