"""What is said at the end of an isolated cell: figures that were seen, and N/A where they were not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.sizes import GIB, MIB
from tfgpu_magic.ground.message import msg
from tfgpu_magic.ground.report import Figure, GpuUse
from tfgpu_magic.ground.snapshot import Gpu, Process, Snapshot
from tfgpu_magic.isolate.call import Outcome
from tfgpu_magic.isolate.cells.summary import summarise

PID = 42


def machine(*held: int, used: int = 0, error: str | None = None) -> Snapshot:
    """Return a machine with as many GPUs as there are figures, of which our process holds so much."""
    return Snapshot(
        time=0.0,
        gpus=tuple(Gpu(index=n, uuid=f"GPU-{n}", used=used + size) for n, size in enumerate(held)),
        processes=tuple(Process(gpu=str(n), pid=PID, kind="C", held=size) for n, size in enumerate(held)),
        error=error,
    )


def use(*peaks: int | None, gpu: int = 0) -> GpuUse:
    what = "peaks" if len(peaks) > 1 else "peak"
    figure = Figure(framework="TensorFlow", what=what, size=sum(peak or 0 for peak in peaks), peak=True)
    return GpuUse(gpu=f"GPU-{gpu}", figures=(figure,))


JAX = GpuUse(gpu="GPU-0", figures=(Figure(framework="JAX", what="peak", size=GIB, peak=True),))


@pytest.mark.parametrize(
    ("uses", "before", "after", "said"),
    [
        ([JAX], machine(4 * GIB), machine(0), "JAX's peak 1 GiB in use on GPU 0, 4 GiB of GPU 0 given back"),
        ([use(3 * GIB)], machine(4 * GIB), machine(0), "peak 3 GiB in use on GPU 0, 4 GiB of GPU 0 given back"),
        ([use(GIB, GIB)], machine(3 * GIB), machine(0), "peaks 2 GiB in use on GPU 0, 3 GiB of GPU 0 given back"),
        (
            [use(1)],
            machine(GIB, 256 * MIB),
            machine(0, 0),
            "peak below 1 MiB in use on GPU 0, 1 GiB of GPU 0 and 256 MiB",
        ),
        (
            [],
            machine(GIB, 2 * GIB, 256 * MIB, 256 * MIB),
            machine(0, 0, 0, 0),
            "1 GiB of GPU 0, 2 GiB of GPU 1 and 512 MiB of 2 other GPUs given back",
        ),
        ([], machine(3 * GIB, 0), machine(0, 0), "3 GiB of GPU 0 given back"),
        ([], machine(0), None, "no GPU memory held"),
        ([], machine(GIB), machine(GIB), "and its process still holds 1 GiB of GPU 0"),
        ([], None, machine(0), "no GPU memory held any more"),
        ([use(GIB)], machine(0, used=3 * GIB), machine(0, used=GIB), "about 2 GiB of GPU 0 given back"),
        ([use(GIB)], machine(0, used=GIB), machine(0, used=GIB), "what it gave back is N/A"),
        (
            [use(GIB)],
            machine(0, error="NVML did not answer"),
            machine(0),
            "what it held is N/A: the driver was not heard",
        ),
        ([], machine(GIB), machine(0, error="NVML did not answer"), "what it held is N/A: the driver was not heard"),
    ],
)
def test_what_was_used_and_given_back(
    uses: list[GpuUse], before: Snapshot | None, after: Snapshot | None, said: str
) -> None:
    assert said in repr(summarise(Outcome(uses=tuple(uses), seconds=1.5), before, after, PID))


def test_what_stayed_behind_is_named_with_the_way_to_bring_it() -> None:
    kept = {"ds": msg("it cannot be sent.")}
    outcome = Outcome(seconds=90, stays=("x", "model"), kept=kept, changed=("log", "rng"))

    assert repr(summarise(outcome, machine(0), None, PID)).splitlines() == [
        "Isolated: 1 min 30 s, no GPU memory held.",
        "ds stays in its process: it cannot be sent.",
        "Gone with its process: x, model. To bring back: -o x,model",
        "Changed only there: log, rng. To bring back: -o log,rng",
    ]
    failed = replace(outcome, failure=(memoryview(b""),))
    assert "Gone" not in repr(summarise(failed, machine(0), None, PID))
