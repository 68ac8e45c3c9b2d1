"""What CUDA shows is foretold as CUDA then does it, on the simulated driver."""

from __future__ import annotations

import pytest

from tests.processes import run
from tfgpu_magic.ground.snapshot import Gpu
from tfgpu_magic.policy.process_state import predict_shown
from tfgpu_magic.simgpu import Machine

ENTRIES = [
    None, "", "0", "1,0", "2,0,1", "0,0", "0,7,1", "7", "-1", "-1,0", "0,-1", " 1 , 0 ", "none", "1,none,0",
    "{0}", "{1},{0}", "{0},1", "{short}", "{1},{1}", "GPU-", "GPU-ffffffff", "{upper}", "00", "1.5",
]  # fmt: skip


@pytest.mark.parametrize("gpus", ["3x8GiB", "8GiB,16GiB,4GiB"])
@pytest.mark.parametrize("order", [None, "PCI_BUS_ID", "FASTEST_FIRST"])
def test_what_cuda_shows_is_foretold_or_left_to_cuda(gpus: str, order: str | None) -> None:
    foretold = run(gpus, _compare, order)

    alike = gpus == "3x8GiB"
    assert (None in foretold) is (not alike and order != "PCI_BUS_ID")


@pytest.mark.parametrize("entry", ["", "-1", "GPU-1", "GPU-1,GPU-0"])
def test_cuda_is_not_asked_about_lists_that_need_no_order(entry: str) -> None:
    gpus = [Gpu(index=n, uuid=f"GPU-{n}", name=f"T{n}", total=n + 1) for n in range(2)]
    named = tuple(entry.split(",")) if entry.startswith("GPU") else ()

    assert predict_shown(gpus, {"CUDA_VISIBLE_DEVICES": entry}) == named


@pytest.mark.parametrize(("spec", "order"), [("8GiB,16GiB,4GiB", ["1", "0", "2"]), ("3x8GiB", ["0", "1", "2"])])
def test_gpu_numbers_are_nvidia_smis_whatever_cuda_counts(spec: str, order: list[str]) -> None:
    assert run(spec, _order) == order


def test_a_mig_instance_is_seen_by_its_own_uuid() -> None:
    label, sizes = run("1x16GiB:mig=2", _first_op_on_mig)

    assert label.startswith("0.")
    assert sizes > 2**30


def _compare(order: str | None) -> list[object]:
    import os

    from tfgpu_magic.frameworks import cuda
    from tfgpu_magic.machine.see import look
    from tfgpu_magic.policy.process_state import predict_shown

    gpus = look().gpus
    uuids = [str(gpu.uuid) for gpu in gpus]
    foretold: list[object] = []
    for entry in ENTRIES:
        env = {name: value for name, value in os.environ.items() if not name.startswith("CUDA_")}
        if order:
            env["CUDA_DEVICE_ORDER"] = order
        if entry is not None:
            env["CUDA_VISIBLE_DEVICES"] = entry.format(*uuids, short=uuids[1][:10], upper="GPU-" + uuids[1][4:].upper())
        told, shown = predict_shown(gpus, env), cuda.visible_gpus_with(env)
        assert told in (None, shown), f"{entry!r}: foretold {told}, shown {shown}"
        foretold.append(told)
    return foretold


def _order() -> list[str]:
    import tfgpu_magic

    return [device.gpu.label for device in tfgpu_magic.plan("growth").devices]


def _first_op_on_mig() -> tuple[str, int]:
    import tfgpu_magic
    from tests.tf.on_machine import touch_every_gpu

    plan = tfgpu_magic.apply("limit 1GiB")
    touch_every_gpu()
    machine = Machine.current()
    assert machine is not None
    return plan.devices[0].gpu.label, sum(process.held for process in machine.processes())
