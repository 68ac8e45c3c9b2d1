"""What goes along to an isolated cell, in a real kernel with real TensorFlow: one odd value takes no other along."""

from __future__ import annotations

from tests.isolate.notebook import Notebook

LAYER = """
import keras
@keras.saving.register_keras_serializable()
class Scale(keras.layers.Layer):
    def call(self, x): return 2 * x
custom = keras.Sequential([keras.Input((3,)), Scale()])
"""


def test_what_cannot_be_made_again_there_is_an_error_only_where_it_is_used_and_is_named(book: Notebook) -> None:
    book.run(
        "class Odd:\n    def __reduce__(self):\n        return int, ('x',)\nodd = Odd(); shared = [1]; also = [shared]"
    )
    unused = book.isolated("if len('ab') == 3: print(odd)\nalso[0] is shared")
    used = book.isolated("if len('ab') == 2: print(odd)")
    surely = book.isolated("print('ran')\nodd, shared")

    assert unused.value == "True", unused.text
    assert used.error["ename"] == "Unpicklable"
    assert used.error["evalue"].startswith("odd cannot be made again in the cell's process (ValueError: invalid lit")
    assert "odd cannot be made again in the cell's process" in surely.stream("stderr")
    assert "Make it in the cell" in surely.stream("stderr")
    assert "ran\n" not in surely.stream()


def test_cached_functions_go_along_and_come_home(book: Notebook) -> None:
    book.run(
        "import functools\nfrom tfgpu_magic import isolated\n"
        "@functools.cache\ndef fib(n):\n    return n if n < 2 else fib(n - 1) + fib(n - 2)\n"
        "class Kind:\n    @functools.lru_cache(maxsize=7)\n    def size(self):\n        'Its size.'\n        return 3\n"
        "def train(): return fib(10)\nkind = Kind()"
    )
    ran = book.isolated(
        "@functools.lru_cache\ndef mine(): return fib(9)\n"
        "train(), fib(11), kind.size(), Kind.size.__doc__, Kind.size.cache_parameters()['maxsize']",
        "-o mine",
    )
    call = book.run("isolated(train)()").value

    assert ran.value == "(55, 89, 3, 'Its size.', 7)", ran.text
    assert call == "55"
    assert book.run("mine(), mine(), mine.cache_info().hits").value == "(34, 34, 1)"


def test_a_function_of_tensorflows_that_has_run_goes_along_as_one_that_has_not(book: Notebook) -> None:
    with Notebook(book.server) as one:
        one.run("%tf_gpu growth")
        one.run("import tensorflow as tf\n@tf.function(reduce_retracing=True)\ndef step(x):\n    return tf.shape(x)")
        one.run("step(tf.zeros([2])); step(tf.zeros([3]))")
        ran = one.isolated("step(tf.zeros([4])).numpy().tolist(), step.function_spec is not None")
        after = one.run("step.experimental_get_tracing_count()").value

    assert ran.value == "([4], True)", ran.text
    assert after == "2"


def test_a_model_that_was_trained_only_there_is_named_and_one_that_was_used_is_not(book: Notebook) -> None:
    with Notebook(book.server) as one:
        one.run("%tf_gpu growth\nimport keras\nnet = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2000)])")
        one.run("net.compile('sgd', 'mse'); large = keras.Sequential([keras.Input((3,)), keras.layers.Dense(10)])")
        used = one.isolated(
            "net.predict(keras.ops.ones((1, 3)), verbose=0).shape, large.count_params()", "visible none"
        ).closing
        trained = one.isolated(
            "net.fit(keras.ops.ones((1, 3)), keras.ops.ones((1, 2000)), verbose=0);", "visible none"
        ).closing

    assert "Changed" not in used
    assert "Changed only there: net. To bring back: -o net" in trained


def test_a_model_with_a_layer_of_the_notebook_goes_along(book: Notebook) -> None:
    with Notebook(book.server) as one:
        one.run("%tf_gpu growth")
        one.run(f"{LAYER}\nfrom tfgpu_magic import isolated")
        ran = one.isolated("type(custom.layers[-1]).__name__, custom.layers[-1].__class__ is Scale")
        call = one.run("isolated(lambda model: model.count_params())(custom)").text

    assert ran.value == "('Scale', True)", ran.text
    assert call == "0"
