"""Reports on a program that runs under a policy, as `reporter` does on a kernel: once at its start, then every second.

A program has no thread of this package before it imports a framework: one that forks, or uses no GPU, stays as it was.
One that starts kernels, as Jupyter Server, promises nothing before that either: they have the policy, and report it.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
import time

import wrapt

from tfgpu_magic import frameworks
from tfgpu_magic.monitor import claims
from tfgpu_magic.publisher import AT_LEAST_EVERY, Publisher
from tfgpu_magic.reporter import EVERY, PATIENCE, SHARE

AWAITED = ("tensorflow", "torch", "jax")
"""The frameworks whose figures are followed from their import on."""

KERNEL_MANAGER = "jupyter_client"
"""What a program imports that starts kernels."""


class ProgramReporter:
    """The reporter of this process.

    Args:
        name: what the program is called, or the path of a file that is called so; empty leaves it to its command line.
    """

    def __init__(self, name: str) -> None:
        self._publisher = Publisher(lambda: name)
        self._publishing = threading.Lock()  # the thread publishes, and whoever announces
        self._has_kernels = False
        self._pid = os.getpid()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="tfgpu_magic-reporter", daemon=True)
        claims.announced_by(self.announce)

    def start(self) -> None:
        """Report now, and follow each framework's figures once it is imported."""
        self.announce()
        atexit.register(self.stop)
        for framework in AWAITED:
            wrapt.when_imported(framework)(self._imported)
        wrapt.when_imported(KERNEL_MANAGER)(self._starts_kernels)

    def stop(self) -> None:
        """Stop reporting, and remove the last report."""
        if self._forked():
            return
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join(PATIENCE)
        if self._publishing.acquire(timeout=PATIENCE):
            self._publisher.close()
            self._publishing.release()

    def announce(self) -> None:
        """Report at once, and return when other processes can read the report."""
        if self._forked():
            return
        with self._publishing:
            if not self._ended.is_set():
                promises = not self._has_kernels or bool(frameworks.imported())
                self._publisher.publish(busy=None, active=None, promises=promises)

    def _starts_kernels(self, _: object) -> None:
        self._has_kernels = True
        self.announce()

    def _imported(self, _: object) -> None:
        if self._forked():
            return
        # Two threads may import one each, and where no thread can be started, an import goes on all the same.
        with self._publishing, contextlib.suppress(RuntimeError):
            if self._thread.ident is None:
                self._thread.start()

    def _forked(self) -> bool:
        """Tell whether this is a child, which has neither the thread nor the report, and whose lock may be held."""
        return os.getpid() != self._pid

    def _follow(self) -> None:
        pause = EVERY
        while not self._ended.wait(pause):
            begin = time.perf_counter()
            self.announce()
            pause = min(max(EVERY, (time.perf_counter() - begin) / SHARE), AT_LEAST_EVERY)
