"""The line of a cell that is quoted as the one that woke TensorFlow."""

from __future__ import annotations

import pytest

from tfgpu_magic.notebook.cell_watches import QUOTE_LENGTH, _quote


@pytest.mark.parametrize(
    ("source", "quoted"),
    [
        ("import tensorflow as tf; x = tf.zeros(2)", " (x = tf.zeros(2))"),
        ("# a model\nmodel = tf.Variable(1.0)  # one\nmodel", " (model = tf.Variable(1.0))"),
        ("from keras import (\n    layers,\n    models,\n)\nmodel = build()", " (model = build())"),
        ('"""Text."""\ndef f():\n    return 1\nf()', " (f())"),
        ("%time\nx = f()", " (x = f())"),
        ("x = f()\n%tf_gpu", " (x = f())"),
        ("for step in range(2):\n    %time train()", " (for step in range(2):)"),
        ("y = !ls\nx = 1", ""),
        ("import tensorflow", ""),
        ("import os\nimport tensorflow as tf\nimport mylib", " (import mylib)"),
        ("from .models import best", " (from .models import best)"),
        ("import mylib\nimport another", ""),
        ("import os\nos.environ['TF_CPP_MIN_LOG_LEVEL'] = '2'\nmodel = build()", " (model = build())"),
        ("data = read()\nmodel = build(data)", ""),  # which of the two it was is not known
        ("print(tf.__version__)\ny = v @ v", ""),
        ("seed = 1\ny = v @ v", " (y = v @ v)"),
        ("", ""),
        ("x = " + "1 + " * 40 + "1", f" ({('x = ' + '1 + ' * 40)[: QUOTE_LENGTH - 1]}…)"),
    ],
)
def test_it_is_the_only_one_that_may_have(source: str, quoted: str) -> None:
    assert _quote(source) == quoted
