"""What a server tells Prometheus: what only its user's kernels know, without a name of any."""

from __future__ import annotations

import os
import re
import threading
from dataclasses import replace
from pathlib import Path
from urllib.error import HTTPError

import pytest
import yaml  # type: ignore[import-untyped]
from prometheus_client import CollectorRegistry, generate_latest

from tests.figures import jax, pytorch
from tests.jupyter import Server, until
from tests.server.conftest import Serve
from tests.server.test_refused import NOT_THE_GPUS
from tests.sizes import GIB
from tfgpu_magic.lab.exporter import METRICS
from tfgpu_magic.model.report import GpuUse, HeldMemory, Parking, Report
from tfgpu_magic.model.snapshot import Gpu
from tfgpu_magic.monitor.table.fetch import Posted
from tfgpu_magic.parking import rows
from tfgpu_magic.server import metrics
from tfgpu_magic.server.metrics import KernelsFound, families
from tfgpu_magic.simgpu import Machine

PAGE = (Path(__file__).parents[2] / "docs" / "http.md").read_text()
(PROMETHEUS,) = yaml.safe_load(PAGE.partition("```yaml\n")[2].partition("```")[0])["scrape_configs"]
"""How the page has Prometheus ask a server."""
GPUS = (Gpu(index=0, uuid="GPU-0"), Gpu(index=1, uuid="GPU-1"))

Told = dict[tuple[str, ...], float]


def report(pid: int = 7, *uses: GpuUse, busy: bool | None = False, parked: Parking | None = None) -> Report:
    return Report(
        pid=pid, summary="", notebook=f"secret-{pid}.ipynb", kernel=f"k{pid}", uses=uses, busy=busy, parked=parked
    )


def use(gpu: str, size: int = GIB) -> GpuUse:
    return GpuUse(gpu=gpu, figures=pytorch(size, size))


def told(*reports: Report, gpus: tuple[Gpu, ...] = GPUS) -> Told:
    """Return the samples, by the metric's name and its labels' values."""
    fact = rows.read((), reports)
    found = KernelsFound(Posted(reports, (fact,) if fact else ()), gpus)
    samples = [sample for family in families(found, 2e9) for sample in family.samples]
    return {(one.name.removeprefix("tfgpu_magic_"), *one.labels.values()): one.value for one in samples}


def of_ours(server: Server) -> str:
    with server.open("metrics") as answer:
        return "\n".join(line for line in answer.read().decode().splitlines() if line.startswith("tfgpu_magic"))


def test_notebooks_are_told_as_numbers_and_what_they_use_by_gpu() -> None:
    program = replace(report(9, use("GPU-0")), kernel="")
    found = told(report(7, use("0"), use("1", 3), busy=True), report(8, use("GPU-0"), busy=None), program)

    assert found == {
        ("notebooks", "busy"): 1, ("notebooks", "idle"): 0, ("notebooks", "unknown"): 1,
        ("gpu_in_use_bytes", "0", "GPU-0"): 3 * GIB, ("gpu_in_use_bytes", "1", "GPU-1"): 3,
    }  # fmt: skip


def test_the_page_has_prometheus_keep_what_a_server_tells_and_nothing_of_the_exporters() -> None:
    (kept,) = PROMETHEUS["metric_relabel_configs"]
    names = {family.name for family in families(KernelsFound(Posted((report(7, use("0")),)), GPUS), 2e9)}

    assert kept["action"] == "keep"
    assert len(names) == 3
    assert all(re.fullmatch(kept["regex"], name) for name in names)
    assert not [name for name in METRICS if re.fullmatch(kept["regex"], f"tfgpu_magic_{name}")]


def test_several_frameworks_add_up_and_what_none_tells_is_left_out() -> None:
    both = GpuUse(gpu="0", figures=(*pytorch(2, 2), *jax(3, 3, 9)))

    assert told(report(7, both, GpuUse(gpu="1")))["gpu_in_use_bytes", "0", "GPU-0"] == 5
    assert ("gpu_in_use_bytes", "1", "GPU-1") not in told(report(7, GpuUse(gpu="1")))


def test_where_no_collector_has_told_of_the_gpus_they_have_the_name_that_kernels_give_them() -> None:
    found = told(report(7, use("GPU-5", 3), use("2", 4)), gpus=())

    assert {key[1:]: value for key, value in found.items() if key[0] == "gpu_in_use_bytes"} == {
        ("", "GPU-5"): 3, ("2", ""): 4,
    }  # fmt: skip


def test_what_is_parked_is_told_by_state_and_is_no_longer_in_use() -> None:
    here = os.getppid()  # of this process itself its own word counts
    parked = Parking(phase="parked", since=1.0, held=(HeldMemory("GPU-0", 5), HeldMemory("GPU-9", 2)))
    found = told(report(here, use("0"), parked=parked), report(here + 1, use("1", 3)))
    waits = told(report(here, parked=replace(parked, wanted=True)))

    assert {key[2:]: value for key, value in found.items() if key[0] == "gpu_parked_bytes" and value} == {
        ("GPU-0", "parked"): 5, ("GPU-9", "parked"): 2,
    }  # fmt: skip
    assert found["gpu_parked_bytes", "0", "GPU-0", "waiting"] == 0
    assert waits["gpu_parked_bytes", "0", "GPU-0", "waiting"] == 5
    assert {key[1:] for key in found if key[0] == "gpu_in_use_bytes"} == {("1", "GPU-1")}
    back = told(report(here, use("0"), parked=Parking(phase="back", since=1.0)))
    assert not any(key[0] == "gpu_parked_bytes" for key in back)
    assert back["gpu_in_use_bytes", "0", "GPU-0"] == GIB


def test_two_servers_in_one_process_say_it_once_and_leave_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = CollectorRegistry()
    monkeypatch.setattr(metrics, "_read", lambda: KernelsFound(Posted((report(7, use("0")),)), GPUS))
    metrics.start(registry)
    metrics.start(registry)
    text = generate_latest(registry).decode()
    metrics.stop(registry)
    still = generate_latest(registry).decode()
    metrics.stop(registry)

    assert text.count("tfgpu_magic_gpu_in_use_bytes{") == 1
    assert "secret" not in text
    assert still == text
    assert generate_latest(registry) == b""


def test_a_server_that_starts_reads_nothing_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = CollectorRegistry(auto_describe=True)  # as the one of the server
    monkeypatch.setattr(metrics, "_read", lambda: pytest.fail("it was read"))

    metrics.start(registry)
    metrics.stop(registry)


def test_a_home_that_hangs_holds_up_no_server_and_nothing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    never = threading.Event()
    monkeypatch.setattr(metrics, "READ_TIMEOUT", 0.01)
    monkeypatch.setattr(metrics, "_read", never.wait)
    hangs = metrics.KernelMetrics()
    found = [hangs.collect() for _ in range(3)]  # none waits for the end of it
    never.set()

    assert found == [[]] * 3


def test_a_scrape_asks_no_driver_and_needs_a_login(machine: Machine, server: Server) -> None:
    with machine.add_neighbour("2GiB@0"):
        said = until(lambda: of_ours(server))

        assert machine.calls() == {}
    assert re.findall(r"(?m)^(\w+)\{", said) == ["tfgpu_magic_notebooks"] * 3
    path, asked = PROMETHEUS["metrics_path"].removeprefix("/"), PROMETHEUS["authorization"]
    with server.open(path, headers={"Authorization": f"{asked['type']} {server.token}"}) as answer:
        assert answer.status == 200
    with pytest.raises(HTTPError, match="403"):
        server.open(path, headers={})


@pytest.mark.parametrize("options", [["metrics=False"], ["metrics=False", "floor=5s"], ["metrics=no"]])
def test_they_can_be_left_out_and_a_setting_that_is_wrong_does_not_bring_them_back(
    serve: Serve, options: list[str]
) -> None:
    server = serve(*(f"--TfGpuServer.{option}" for option in options))

    assert of_ours(server) == ""


def test_who_asks_without_a_token_is_not_told_and_starts_nothing(serve: Serve) -> None:
    server = serve("--ServerApp.authenticate_prometheus=False")

    with server.open("metrics", headers={}) as answer:
        assert "tfgpu_magic_" not in answer.read().decode()
    assert not (server.home / "board").exists()
    assert of_ours(serve(config=NOT_THE_GPUS)) == ""
