"""A display of an isolated cell: interrupted or not, it is shown before what is printed after it."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from tfgpu_magic.isolate.cells.displays import DisplayChannel
from tfgpu_magic.isolate.process import wire
from tfgpu_magic.isolate.process.order import SHOWN


def test_an_interrupt_of_a_display_is_raised_once_it_is_shown() -> None:
    ours, kernels = wire.pair()
    order: list[str] = []

    def kernel() -> None:
        message = wire.receive(kernels)
        assert message is not None
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.3)
        order.append("shown")
        wire.send(kernels, SHOWN, message.parts[1:])

    thread = threading.Thread(target=kernel)
    with ours, kernels:
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            DisplayChannel(ours).show({})
        order.append("interrupted")
        thread.join()

    assert order == ["shown", "interrupted"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
