"""What a test finds in its process: our package as if it had imported it itself, and TensorFlow, or not yet."""

from __future__ import annotations

import subprocess
import sys

from tests.machines import machine_of
from tests.processes import Again, run
from tests.sizes import GIB
from tfgpu_magic.simgpu import Machine

machine = machine_of("1x8GiB")

WHO_READS = """
import os, sys
import IPython
reads = []
class Watched(type(os.environ)):
    def __getitem__(self, key):
        frame = sys._getframe(1)
        while frame.f_globals["__name__"] in ("os", "_collections_abc"):
            frame = frame.f_back
        if frame.f_globals["__name__"].startswith("tfgpu_magic"):
            reads.append((frame.f_globals["__name__"], key))
        return super().__getitem__(key)
os.environ.__class__ = Watched
import tests.fork_template
print(reads)
exec('os.environ["HOME"]', {"__name__": "tfgpu_magic", "os": os})
print(reads)
"""


def test_what_is_imported_before_tests_are_forked_reads_no_environment() -> None:
    done = subprocess.run([sys.executable, "-c", WHO_READS], capture_output=True, text=True, check=True)

    assert done.stdout == "[]\n[('tfgpu_magic', 'HOME')]\n"


def test_tensorflow_can_be_imported_again_with_all_that_waits_for_it(machine: Machine) -> None:
    stages, again, sizes = run(machine, _imports, imported=False)

    assert stages == ["ABSENT", "LISTED", "READY"]
    assert again
    assert sizes[0] > GIB


def _imports() -> tuple[list[str], bool, list[int]]:
    """Import TensorFlow; return its stages, whether its modules are those from before, and what is held."""
    import tfgpu_magic
    from tests.tf.on_machine import held, touch_every_gpu
    from tfgpu_magic.frameworks.tensorflow.devices import current_stage

    tfgpu_magic.apply("limit 1GiB")
    stages = [current_stage().name]
    (before,) = (finder._modules for finder in sys.meta_path if isinstance(finder, Again))
    import tensorflow.keras.layers

    again = all(sys.modules[name] is module for name, module in before.items())
    stages.append(current_stage().name)
    assert tensorflow.keras.layers.Dense is sys.modules["keras"].layers.Dense
    touch_every_gpu()
    return [*stages, current_stage().name], again, held()
