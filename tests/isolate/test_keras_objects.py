"""A Keras model comes back as bytes, which wake nothing until they are asked to, and then it is the same model."""

from __future__ import annotations

import pickle
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.isolate.crossing import Sent, is_awake, on_cpu, packages, receive, send, told
from tests.processes import run
from tests.tf.on_machine import held
from tfgpu_magic.isolate.values.keras_objects import ModelHandle
from tfgpu_magic.simgpu import Machine

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


def fitted(model: Any, loss: Any = "mse") -> Any:
    model.compile("adam", loss, metrics=["mae"])
    model.fit(INPUT, INPUT[:, :1], epochs=2, batch_size=1, verbose=0)
    return model


def plain_model() -> tuple[Sent, dict[str, Any]]:
    import keras

    model = fitted(keras.Sequential([keras.Input((2,)), keras.layers.Dense(300), keras.layers.Dense(1)], name="mine"))
    return send({"model": model, "again": model}), as_seen(model)


def cell_model() -> tuple[Sent, dict[str, Any]]:
    """Return a model whose class, and all that it is made of, a notebook defined."""
    import keras

    namespace: dict[str, Any] = {"__name__": "__main__", "keras": keras}
    cell = """
def sharp(x): return 3 * keras.ops.relu(x)
def odd(y, p): return 3 * keras.ops.mean(abs(y - p))
class Twice(keras.layers.Layer):
    def call(self, x): return x * 2
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
    exec(cell, namespace)
    model = fitted(namespace["Net"](4, namespace["sharp"], name="net"), namespace["odd"])
    return send({"model": model, "again": model}), as_seen(model)


def functional_model() -> tuple[Sent, dict[str, Any]]:
    """Return a graph of Keras' own layers and a notebook's, which the notebook has since defined otherwise."""
    import keras

    namespace: dict[str, Any] = {"__name__": "__main__", "keras": keras}
    cell = """
def sharp(x): return 3 * keras.ops.relu(x)
def odd(y, p): return 3 * keras.ops.mean(abs(y - p))
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
"""
    exec(cell, namespace)
    entry = keras.Input((2,))
    x = keras.layers.Dense(4, activation=namespace["sharp"], kernel_regularizer=namespace["Half"]())(entry)
    x = keras.layers.Lambda(lambda x: x + 1)(namespace["local"]()(namespace["Marked"]()(x)))
    x = keras.layers.Dense(1)(keras.layers.Concatenate()([x, entry]))
    model = fitted(keras.Model(entry, x), namespace["odd"])
    exec(cell.replace("3", "7"), namespace)
    return send({"model": model, "again": model}), as_seen(model)


def loaded(sent: Sent) -> dict[str, Any]:
    values = receive(sent)
    assert values["model"] is values["again"]
    return as_seen(values["model"].load())


@pytest.mark.parametrize("make", [plain_model, cell_model, functional_model])
def test_a_model_is_the_same_when_it_is_loaded_in_another_process(make: Callable[..., Any]) -> None:
    sent, before = on_cpu(make)
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
    sent, before = on_cpu(plain_model)
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
    assert "Bring back model.get_weights(), or give" in refused
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


def test_a_folder_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="was not saved: No such file or directory"):
        STAND_IN.save(tmp_path / "nowhere" / "mine.keras")
