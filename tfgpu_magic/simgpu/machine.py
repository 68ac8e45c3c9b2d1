"""A simulated GPU machine for Python: makes it, runs programs on it, reads it, and sets its faults."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from tfgpu_magic.errors import SimulatorError
from tfgpu_magic.ground.process_kind import SIMULATED
from tfgpu_magic.ground.units import MIB
from tfgpu_magic.simgpu import figures
from tfgpu_magic.simgpu.build import PYTHON, libraries
from tfgpu_magic.simgpu.figures import SimGpu, SimProcess
from tfgpu_magic.simgpu.native import ANY_DEVICE, Fault, MachineState
from tfgpu_magic.simgpu.neighbours import NOBODY, Holder, Neighbour, Row
from tfgpu_magic.simgpu.spec import parse_driver, parse_gpus, parse_share, size_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

_Held = TypeVar("_Held", bound=Holder)

ENVIRONMENT = SIMULATED
"""The variable that puts a process on a machine: the path of the machine's state."""

LIBRARIES = "libraries"
"""The folder beside the state that has the libraries, where several users share the machine: a cache is one user's."""


class Machine:
    """A machine with simulated GPUs. As a context manager it is closed at the end of its block.

    Programs run on it only through `run`, `popen` or the environment that `environ` gives. Kernels do nothing there:
    memory behaves as on real GPUs, and results mean nothing.
    """

    def __init__(self, path: Path, state: MachineState, folder: Path | None) -> None:
        self.path = path
        self._state = state
        self._folder = folder  # to be removed here; None for a machine that another process made
        self._holders: list[Holder] = []
        self._labels: list[str] = []  # of its devices, once they were asked for

    @classmethod
    def create(cls, gpus: str = "1x8GiB", *, context: int = 256 * MIB, shared: bool = False) -> Machine:
        """Make a machine in a private temporary folder.

        Args:
            gpus: its GPUs, as `spec.parse_gpus` reads them: ``4x16GiB,80GiB:sm=108``.
            context: bytes that a CUDA context costs each process on each GPU that it uses.
            shared: whether programs of all users can run on it, in the environment that `environ` gives.

        Raises:
            SimulatorError: the text is no list of GPUs, or the simulator could not be compiled.
        """
        specs = parse_gpus(gpus)
        libraries()
        folder = Path(tempfile.mkdtemp(prefix="tfgpu-simgpu-"))
        path = folder / "machine"
        try:
            machine = cls(path, MachineState.create(path, specs, context), folder)
            machine.set_driver("580.00.00")
            if shared:
                shutil.copytree(libraries(), folder / LIBRARIES)
                for part, mode in ((path, 0o666), (folder, 0o755)):
                    part.chmod(mode)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        return machine

    @classmethod
    def attach(cls, path: str | os.PathLike[str]) -> Machine:
        """Return the machine at a path that another process made; closing it here leaves it running.

        Raises:
            SimulatorError: there is none.
        """
        path = Path(path)
        return cls(path, MachineState.open(path), None)

    @classmethod
    def current(cls) -> Machine | None:
        """Return the machine that this process runs on, or None. Closing it here leaves it running."""
        path = os.environ.get(ENVIRONMENT)
        return cls.attach(path) if path else None

    # --- running programs on it ---

    def environ(self, base: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return the environment of a program on this machine: `base` (the process's own) with three changes."""
        environment = dict(os.environ if base is None else base)
        shared = self.path.with_name(LIBRARIES)
        own = shared if shared.exists() else libraries()
        for name, folder in (("LD_LIBRARY_PATH", own), ("PYTHONPATH", own / PYTHON)):
            others = [part for part in environment.get(name, "").split(":") if part and part != str(folder)]
            environment[name] = ":".join([str(folder), *others])
        environment[ENVIRONMENT] = str(self.path)
        return environment

    def popen(self, command: Sequence[str | os.PathLike[str]], **kwargs: Any) -> subprocess.Popen[Any]:
        """Start a program on this machine, as `subprocess.Popen`; ``env`` is added to the process's environment."""
        return subprocess.Popen(command, **self._with_environment(kwargs))

    def run(self, command: Sequence[str | os.PathLike[str]], **kwargs: Any) -> subprocess.CompletedProcess[Any]:
        """Run a program on this machine, as `subprocess.run`; ``env`` is added to the process's environment."""
        return subprocess.run(command, **self._with_environment({"check": False} | kwargs))

    def _with_environment(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        return kwargs | {"env": self.environ({**os.environ, **(kwargs.get("env") or {})})}

    # --- looking at it ---

    def gpus(self) -> list[SimGpu]:
        """Return the GPUs in NVML's order, each one's MIG instances after it."""
        devices = self._state.report()["devices"]
        gpus = [figures.gpu(number, device) for number, device in enumerate(devices)]
        return sorted(gpus, key=lambda gpu: (gpu.index, gpu.instance or 0))

    def processes(self) -> list[SimProcess]:
        """Return a row for each process and GPU, without those of dead processes."""
        report = self._state.report()
        rows = []
        for row in report["rows"]:
            index, instance = figures.place(row["device"], report["devices"][row["device"]])
            rows.append(SimProcess(pid=row["pid"], gpu=index, instance=instance, held=row["held"], kind=row["kind"]))
        return rows

    def held(self, *, gpu: int | None = None, pid: int | None = None) -> int:
        """Return the bytes that processes hold by the driver's account, on one GPU or all, by one process or all.

        A process in the compute and the graphics list is counted once.
        """
        report = self._state.report()
        return sum(
            row["held"]
            for row in report["rows"]
            if not row["echo"]
            and gpu in (None, figures.place(row["device"], report["devices"][row["device"]])[0])
            and pid in (None, row["pid"])
        )

    def calls(self) -> dict[str, int]:
        """Return how often each NVML function was called on this machine so far, by any process."""
        calls: dict[str, int] = self._state.report()["calls"]
        return calls

    # --- its driver ---

    def set_driver(self, version: str, *, dmem: bool = False) -> None:
        """Set the driver's version (580.00.00 at first).

        From 615 on, root can limit what the processes of a cgroup hold of a GPU (`nvmlDeviceSetMemoryLimits_v1`).

        Args:
            version: such as ``595.84``.
            dmem: limits are kept by the kernel's dmem controller, where they nest; otherwise the driver keeps them, and
                only the nearest one counts.
        """
        self._state.driver(parse_driver(version), dmem)
        text = f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {version}  Release Build  (simulated)\n"
        self.path.with_name(f"{self.path.name}.nvidia-version").write_text(text)

    # --- its faults ---

    def fault(self, function: str, code: int, *, gpu: int | None = None) -> None:
        """Make an NVML function return an error code from now on; 0 ends it. CUDA driver functions can fail too.

        Args:
            function: a name without a version means every version: ``nvmlDeviceGetMemoryInfo`` is also ``..._v2``, and
                ``nvmlInit`` also ``nvmlInitWithFlags``.
            code: NVML's (or CUDA's) number of the error.
            gpu: only where the call is about this GPU.
        """
        self._state.fault(function, self._gpu(gpu), code, 0.0)

    def hang(self, function: str, seconds: float, *, gpu: int | None = None) -> None:
        """Make each call of a function take that long before it returns, unless 0 or `clear_faults` ends it before."""
        self._state.fault(function, self._gpu(gpu), 0, seconds)

    def set_sensors(
        self, gpu: int, *, utilisation: int | None = None, celsius: int | None = None, watts: float | None = None
    ) -> None:
        """Set a GPU's utilisation, temperature and power, as NVML returns them.

        Args:
            gpu: NVML's index.
            utilisation: percent of the time in which kernels run; None follows from the kernels that are launched.
            celsius: the temperature in degrees; None is a GPU without that sensor, and all are made so.
            watts: the power; None as for the temperature.
        """
        self._state.set_sensors(self._gpu(gpu), utilisation, celsius, None if watts is None else round(1000 * watts))

    def use(self, pid: int, utilisation: int | None) -> None:
        """Set what NVML tells of the utilisation by a process, in percent; None follows from what it launches."""
        self._state.use(pid, utilisation)

    def lose(self, gpu: int) -> None:
        """Lose a GPU: NVML calls on it return 15, CUDA calls fail with 999, new processes do not see it."""
        self._state.lose(self._gpu(gpu), True)

    def restore(self, gpu: int) -> None:
        """Restore a lost GPU."""
        self._state.lose(self._gpu(gpu), False)

    def hide_memory(self, on: bool = True) -> None:
        """Make NVML hide what a process holds (2**64-1, as on WSL and vGPUs)."""
        self._state.flag(Fault.HIDE_MEMORY, on)

    def host_pids(self, on: bool = True) -> None:
        """Make NVML list pids of another namespace, as in a container under an older driver: none exists here."""
        self._state.flag(Fault.HOST_PIDS, on)

    def remove_driver(self, on: bool = True) -> None:
        """Remove the driver: `nvmlInit` and every NVML call return 9, `cuInit` in new processes returns 100."""
        self._state.flag(Fault.NO_DRIVER, on)

    def clear_faults(self) -> None:
        """End all faults: error codes, hangs, lost GPUs, hidden memory, foreign pids, no driver."""
        self._state.clear_faults()

    # --- other processes on it ---

    def add_neighbour(
        self, spec: str, *, name: str = "neighbour", user: int | None = None, cgroup: Path | None = None
    ) -> Neighbour:
        """Start a process that holds memory, such as ``9GiB@0``: 9 GiB in all, its context included, on GPU 0.

        Args:
            spec: size and GPU; ``@0.1`` is the MIG instance 1 of GPU 0.
            name: its command line, as process lists show it.
            user: the uid that it runs as, where this process is root; None is the process's own.
            cgroup: the folder of a cgroup that it is in from its start; None is the process's own.

        Raises:
            SimulatorError: the GPU or the cgroup's limit has no room for it, or it is less than a context takes.
            OSError: it cannot be put into the cgroup.
        """
        held, label = parse_share(spec)
        return self._keep(Neighbour(self.environ(), self._device(label), held, name, user=user, cgroup=cgroup))

    def add_foreign(self, spec: str, *, name: str = "neighbour") -> Neighbour | Row:
        """Add memory of another user: as root a process of the user 65534 (`nobody`), else a row of process 1."""
        held, label = parse_share(spec)
        if os.geteuid() == 0:
            return self.add_neighbour(spec, name=name, user=NOBODY)
        return self._keep(Row(self._state, 1, self._device(label), held, "C"))

    def add_row(self, pid: int, gpu: int, held: int | str, kind: str = "C") -> Row:
        """Add a row that stays until stopped, whether or not there is such a process, and even if the GPU has no room.

        Args:
            pid: any number; a second row of one pid on one GPU is listed, but not counted as used again.
            gpu: NVML's index.
            held: bytes, or a size such as ``2GiB``.
            kind: the list it is in: ``C`` compute, ``G`` graphics, ``M`` MPS.
        """
        if kind not in ("C", "G", "M"):
            raise SimulatorError(f"{kind!r} is no list of processes: C, G or M.")
        return self._keep(Row(self._state, pid, self._gpu(gpu), size_of(held), kind))

    def _keep(self, holder: _Held) -> _Held:
        self._holders.append(holder)
        return holder

    # --- names of devices ---

    def _gpu(self, index: int | None) -> int:
        return ANY_DEVICE if index is None else self._device(str(index))

    def _device(self, label: str) -> int:
        if not self._labels:
            devices = self._state.report()["devices"]
            self._labels = [figures.gpu(number, device).label for number, device in enumerate(devices)]
        if label not in self._labels:
            raise SimulatorError(f"there is no GPU {label}: the machine has {', '.join(self._labels)}.")
        return self._labels.index(label)

    # --- the end ---

    def close(self) -> None:
        """End the neighbours that were added here, and remove the machine if it was made here. Twice is fine."""
        while self._holders:
            with contextlib.suppress(SimulatorError):
                self._holders.pop().stop()
        self._state.close()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Machine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
