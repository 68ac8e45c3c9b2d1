"""A cause is proved, or not named: other people's reports of drivers, containers, schedulers and memory of nobody's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.frameworks.cells_on_machine import stage
from tests.lab.users import root_only
from tests.machine.boards import end_collectors
from tests.machines import machine_of
from tests.magic.cells import NOT, Cells
from tests.processes import NOBODYS_PID
from tests.sizes import GIB
from tests.waiting import until
from tfgpu_magic.doctor.checks.driver import cuda, gpus
from tfgpu_magic.doctor.checks.table import run_check
from tfgpu_magic.doctor.finding import REPORT
from tfgpu_magic.doctor.machine import ThisMachine
from tfgpu_magic.engine.status import status
from tfgpu_magic.ground import phrases
from tfgpu_magic.ground.answer import _width
from tfgpu_magic.ground.snapshot import Gpu, Snapshot
from tfgpu_magic.lab.exporter import MachineSeen, make_metrics
from tfgpu_magic.machine.see import DRIVER_TIMEOUT, Watch, look
from tfgpu_magic.simgpu import Machine

apart = machine_of("2x8GiB")


@pytest.fixture
def machine(apart: Machine, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    """A machine that the tests' own process is on; it is well again after each."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    for name, value in apart.environ().items():
        monkeypatch.setenv(name, value)
    yield apart
    apart.clear_faults()
    end_collectors(apart)  # one that has begun NVML sees no fault of its beginning


HIDDEN = """
import ctypes, encodings.idna, os, subprocess, traceback  # as root: another user may not reach this Python
from pathlib import Path
from tests.magic.test_server_client import listening, tell
from tfgpu_magic.machine.owners.attribution import Owners
from tfgpu_magic.notebook import server_client

subprocess.run(["mount", "-t", "proc", "-o", "hidepid=1", "proc", "/proc"], check=True)
os.setgroups([])
os.setresgid(12345, 12345, 12345)
os.setresuid(12345, 12345, 12345)
ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)
"""
"""Begins a user's program, started by root, where /proc shows nobody others' processes."""

LEFT = """
left = subprocess.Popen(["sleep", "3600"], env={"JPY_SESSION_NAME": "/home/ann/train.ipynb"})
(owner,) = Owners(0).find((), here=[left.pid]).values()
print(owner.who, owner.text)
left.kill()
"""
"""What started this program of a notebook's is hidden."""

SERVER = """
with listening() as ours:
    tell(Path(os.environ["JUPYTER_RUNTIME_DIR"]), ours.port)
    kernel = os.fork()
    if not kernel:
        try:
            found = server_client.find("0123-abc")
            print(found if isinstance(found, str) else found.token, flush=True)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)
    os.waitpid(kernel, 0)
"""


@root_only
@pytest.mark.parametrize(
    ("program", "found"),
    [(LEFT, "mine sleep, started from train.ipynb\n"), (SERVER, "the-token\n")],
    ids=["an own process is not another user's", "a kernel finds its server"],
)
def test_jupyter_8_what_is_below_hidden_processes_is_found(program: str, found: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        command = ["unshare", "--mount", sys.executable, "-c", HIDDEN + program]
        env = {**os.environ, "JUPYTER_RUNTIME_DIR": folder}
        done = subprocess.run(command, env=env, capture_output=True, text=True)

    assert (done.stdout, done.stderr) == (found, "")


def test_jupyter_14_what_other_programs_use_of_unified_memory_is_not_the_drivers(machine: Machine) -> None:
    machine.fault("nvmlDeviceGetMemoryInfo", 3)  # as a GB10 answers
    neighbour = machine.add_neighbour("1GiB@0")
    shown, seen = status(DRIVER_TIMEOUT), look(DRIVER_TIMEOUT)
    neighbour.stop()
    gpu = shown.table.gpus[0]
    told = {
        sample.name: sample.value
        for one in make_metrics(MachineSeen("lab1", seen), seen.time)
        for sample in one.samples
    }

    assert (gpu.gpu.unified, gpu.gpu.used) == (True, GIB)
    assert "kept by the driver" not in shown._repr_html_()
    # The alert is by what is in use by anyone: nobody finds room in what a program of the processor's has.
    free, total = seen.gpus[-1].free or 0, seen.gpus[-1].total or 0
    assert told["tfgpu_magic_gpu_memory_used_bytes"] == total - free > 0


@pytest.mark.parametrize("name", ["می\u200cشود.ipynb", "\U0001f469\u200d\U0001f52c.ipynb"])
def test_jupyter_16_the_joiners_of_persian_and_of_emoji_stay_in_names(name: str) -> None:
    assert phrases.clean(name) == name
    assert _width(name) == _width(name.replace("\u200c", "").replace("\u200d", ""))


def test_jupyter_27_in_a_job_without_a_gpu_nobody_is_told_to_take_one(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "NoDevFiles")
    (job,) = run_check(cuda, ThisMachine())
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    (own,) = run_check(cuda, ThisMachine())

    assert REPORT.found(job) == "Slurm gave this job no GPU: CUDA_VISIBLE_DEVICES is `NoDevFiles`."
    assert "--gres=gpu:1" in job.next
    assert "unset" not in job.next
    assert own.next.startswith("Unless a scheduler such as Slurm has set it, ")


@pytest.mark.parametrize(
    ("container", "excluded", "denied", "missing"),
    [
        (False, "No", [], True),
        (True, "No", [], False),  # it was given one of the machine's two
        (False, "No", ["nvidia1"], False),  # as a job's cgroup denies it
        (False, "Yes", [], False),
    ],
)
def test_jupyter_15_a_gpu_that_the_driver_no_longer_lists_is_a_fault_unless_it_is_kept_away(
    container: bool, excluded: str, denied: list[str], missing: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "dev").mkdir()
    for minor in range(2):
        (tmp_path / f"dev/nvidia{minor}").touch()
        folder = tmp_path / f"proc/driver/nvidia/gpus/0000:{minor}1:00.0"
        folder.mkdir(parents=True)
        (folder / "information").write_text(
            f"Model: \t\t NVIDIA A100\nGPU UUID: \t GPU-{minor}\nBus Location: \t 0000:{minor}1:00.0\n"
            f"Device Minor: \t {minor}\nGPU Excluded:\t {excluded if minor else 'No'}\n"
        )
    if container:
        (tmp_path / ".dockerenv").touch()
    monkeypatch.setattr(os, "access", lambda path, _: Path(path).name not in denied)
    machine = ThisMachine(tmp_path, {})
    seen = Snapshot(time=1e9, driver="570", gpus=(Gpu(index=0, uuid="GPU-0", name="NVIDIA A100", total=1, free=1),))
    vars(machine)["snapshot"] = seen
    told = run_check(gpus, machine)

    assert [one.name for one in told] == ["gpus.works", *(["gpus.unlisted"] if missing else [])]
    assert not missing or REPORT.found(told[1]).endswith("Missing is the NVIDIA A100 at 0000:11:00.0.")


def seen_by(machine: Machine, *words: str, module: str = "tfgpu_magic") -> str:
    """Return what `tfgpu` prints on the machine, as one line."""
    done = machine.run([sys.executable, "-m", module, *words], capture_output=True, text=True)
    return " ".join(done.stdout.split())


@pytest.mark.parametrize(
    ("call", "code", "words"),
    [
        ("nvmlInit", 999, "NVML does not start: Unknown Error (error 999)."),
        ("nvmlInit", 8, "NVML does not start: Simulated error (error 8)."),
        ("nvmlDeviceGetMemoryInfo", 18, "Driver/library version mismatch (error 18)"),
    ],
)
def test_jupyter_12_an_error_has_nvmls_words(call: str, code: int, words: str, machine: Machine) -> None:
    machine.fault(call, code, **({} if call == "nvmlInit" else {"gpu": 1}))
    told = seen_by(machine, "status")

    assert words in told
    assert "container" not in told


@pytest.mark.parametrize("code", [999, 8, 9, 4])
def test_jupyter_12_a_container_that_lost_its_devices_is_told_so_by_proof(code: int, machine: Machine) -> None:
    machine.fault("nvmlInit", code)
    words = ("status",) if code in (999, 8) else ("doctor", "--quick")
    told = seen_by(machine, *words, module="tests.reports.denied")

    assert f"The kernel denies this process {machine.path} (Operation not permitted), as in a container" in told
    assert "Restart the container." in told
    assert "modprobe" not in told


def test_jupyter_12_a_container_without_the_devices_is_not_told_to_load_the_module(tmp_path: Path) -> None:
    with Machine.create("8GiB") as machine:
        machine.path.rename(tmp_path / "machine")
        told = seen_by(machine, "status")
        doctor = seen_by(machine, "doctor", "--quick")
        (tmp_path / "machine").rename(machine.path)

    sentence = f"The NVIDIA driver is loaded, and this process has no {machine.path}. In a container"
    assert sentence in told
    assert "modprobe" not in told
    assert sentence in doctor


WORKER = "import ctypes; ctypes.CDLL('libcuda.so.1').cuInit(0); print('ready', flush=True); input()"


@pytest.fixture
def unlisted(machine: Machine) -> Iterator[None]:
    """6 GiB of the first GPU for which no process is listed: they are in a list that the driver does not give."""
    row = machine.add_row(NOBODYS_PID, 0, "6GiB", kind="G")
    machine.fault("nvmlDeviceGetGraphicsRunningProcesses", 3)
    yield
    row.stop()


@pytest.mark.usefixtures("unlisted")
def test_jupyter_13_memory_without_a_process_is_told_as_that_with_own_processes_that_have_the_driver_open(
    machine: Machine,
) -> None:
    workers = [machine.popen([sys.executable, "-c", WORKER], stdin=-1, stdout=-1) for _ in range(2)]
    for worker in workers:
        assert worker.stdout
        worker.stdout.readline()
    told = seen_by(machine, "status")
    for worker in workers:
        worker.communicate(b"\n")
    after = seen_by(machine, "status")

    assert "no process listed 6.0 GiB" in told
    assert not {"others", "Attribution", "container"} & set(told.split())
    assert "GPU 0: no process is listed for 6 GiB. Of your processes, these have the driver open" in told
    assert all(f"python ({worker.pid})" in told for worker in workers)
    assert not any(f"python ({worker.pid})" in after for worker in workers)


@pytest.mark.usefixtures("unlisted")
def test_jupyter_13_a_refusal_has_a_line_for_it(machine: Machine) -> None:
    done = machine.run(
        [sys.executable, "-m", "tfgpu_magic", "plan", "visible 0; limit 4GiB"], capture_output=True, text=True
    )

    assert "6 GiB  no process is listed for it" in done.stderr


MOVES = """
from tfgpu_magic.machine.collector import read
from tfgpu_magic.machine.driver.nvml import NvmlReader
from tfgpu_magic.tell.tabulate import ProcessFacts, make_table
from tfgpu_magic.machine.see import Watch
from tfgpu_magic.simgpu import Machine

machine, reader = Machine.current(), NvmlReader()
listed = read(reader, None, "graphics")
neighbour = machine.add_neighbour("6GiB@0")
for kind in ("memory", "lists"):
    listed = read(reader, listed, kind)
    made = make_table(listed, ProcessFacts())
    owners = [row.owner.text for row in made.processes if not row.process.pid]
    print(owners, made.gpus[0].others.text)
machine.close()
"""


def test_machine_11_memory_that_came_since_the_lists_is_nobodys_yet(machine: Machine) -> None:
    done = machine.run([sys.executable, "-c", MOVES], capture_output=True, text=True)

    assert done.stdout.splitlines() == [
        "['not listed yet'] not listed yet",
        "[] others",
    ], done.stderr


def test_machine_8_status_waits_for_a_driver_that_is_slow_to_start(machine: Machine) -> None:
    machine.hang("nvmlInit", 4)
    done = machine.run([sys.executable, "-m", "tfgpu_magic", "status"], capture_output=True, text=True)

    assert done.returncode == 0, done.stdout
    assert "7.9 GiB" in done.stdout
    assert done.stderr == "tfgpu: waiting for the NVIDIA driver, which is slow to answer…\n"


def test_machine_8_beside_a_live_view_its_figures_are_shown_at_once(machine: Machine, tmp_path: Path) -> None:
    with Watch(linger=600) as live:
        until(lambda: live.wait().snapshot.gpus)
        machine.hang("nvmlInit", 3600)
        sent = json.loads(seen_by(machine, "status", "--json"))["state"]

    assert ("error" in sent, sent["gpus"]["0"]["total"]) == (False, 8 * GIB)
    assert "notes" not in sent  # they are of this second


@pytest.mark.usefixtures("unlisted")
def test_jupyter_13_who_says_of_itself_what_it_has_is_no_suspect_nor_what_it_started(machine: Machine) -> None:
    worker = f"subprocess.Popen([sys.executable, '-c', {WORKER!r}], stdin=-1, stdout=-1)"
    told = "%tf_gpu", "no process listed", NOT + "this notebook"
    with stage(machine) as play:
        Cells("start_cuda()", f"import subprocess; w = {worker}", "w.stdout.readline()", told).play(play)
