"""A policy that no file of the house has holds in real TensorFlow, and in isolated calls, once a table lists it."""

from __future__ import annotations

import os
from pathlib import Path

import tfgpu_magic
from tests.policy import half
from tests.processes import on
from tests.sizes import CONTEXT, GIB, MIB
from tests.tf.on_machine import first_op, held, touch_every_gpu
from tests.waiting import until
from tfgpu_magic.policy import requests

KEPT = 128 * MIB
"""What the driver keeps of each GPU."""
HALF = (8 * GIB - KEPT - CONTEXT - 1536 * MIB) // 2
"""Half of what is free on a GPU of 8 GiB, beside CUDA's context and what TensorFlow leaves to its libraries."""


@on("2x8GiB")
def test_half_of_what_is_free_is_taken() -> None:
    requests.REQUESTS = (*requests.REQUESTS, half)

    assert first_op("half --gpu 0; visible 0") == [HALF + CONTEXT, 0]


@on("2x8GiB")
def test_isolated_calls_have_half_of_a_gpu_of_their_own(tmp_path: Path) -> None:
    requests.REQUESTS = (*requests.REQUESTS, half)
    call = tfgpu_magic.isolated(policy="half")(_take)

    first, second = [one.result() for one in [call.submit(tmp_path), call.submit(tmp_path)]]

    assert sorted([first, second]) == [[0, HALF + CONTEXT], [HALF + CONTEXT, 0]]


def _take(folder: Path) -> list[int]:
    touch_every_gpu()
    (folder / str(os.getpid())).touch()
    until(lambda: len(list(folder.iterdir())) == 2)  # the other call is there at the same time
    return held()
