"""Runs functions of the tests in processes of their own on a simulated machine; TensorFlow is imported only there."""

from __future__ import annotations

import ast
import contextlib
import ctypes
import errno
import functools
import multiprocessing
import os
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from multiprocessing.util import get_temp_dir
from pathlib import Path
from types import ModuleType
from typing import Any, ParamSpec
from unittest import mock

import psutil
import pytest
from _pytest.assertion.rewrite import rewrite_asserts

from tests.apart import CGROUP
from tests.slack import SLACK
from tfgpu_magic.errors import SimulatorError
from tfgpu_magic.simgpu import Machine
from tfgpu_magic.simgpu.build import libraries

P = ParamSpec("P")

NOBODYS_PID = 2**22
"""The largest pid that the driver's lists may have; Linux gives smaller ones only."""

PATIENCE = 120.0 * SLACK
"""Seconds in which a process must answer: TensorFlow's import is a few, a full GPU blocks for ten."""

_PRELOAD = ["tensorflow", "IPython", "tests.processes", "tests.fork_template"]

ENVIRONMENT = threading.RLock()
"""Taken while this process's environment is another one, or is read for a process that starts."""

QUIET = {"TF_CPP_MIN_LOG_LEVEL": "2", "TF_ENABLE_ONEDNN_OPTS": "0"}


def runs(process: psutil.Process) -> bool:
    """Tell whether a process is there and no zombie; it may end while that is found out."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def ours(machine: Machine, module: str, name: str = "") -> list[psutil.Process]:
    """Return the living processes of a machine that run a module of ours, by the beginning of its name.

    Of them, only those that have called themselves by a name, where one is given.
    """
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            there = process.environ().get("TFGPU_SIMGPU") == str(machine.path)
            told = there and any(module in word for word in process.cmdline()) and name in ("", process.name())
            if told and runs(process):
                found.append(process)
    return found


def among_own_pids(function: Callable[[], object]) -> None:
    """Call a function as the first process of a pid namespace, with which all ends that it starts.

    Only root can, and not in each container: where the system refuses it, the test is skipped, as no pid can be chosen.
    """
    child = os.fork()
    if not child:
        status = 1
        try:
            _libc("unshare", 0x20020000)  # CLONE_NEWPID | CLONE_NEWNS
            if first := os.fork():
                os._exit(os.waitstatus_to_exitcode(os.waitpid(first, 0)[1]) & 0xFF)
            _libc("mount", None, b"/", None, 0x44000, None)  # MS_PRIVATE | MS_REC
            _libc("mount", b"proc", b"/proc", b"proc", 0, None)
            function()
            status = 0
        except BaseException:  # whatever it is, it is shown
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status == _REFUSED:
        pytest.skip("no pid can be chosen here: that takes a pid namespace, which root is refused, as in a container")
    assert status == 0, "what it has printed says why"


_REFUSED = 77


def _libc(name: str, *args: object) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*args):
        if ctypes.get_errno() == errno.EPERM:
            os._exit(_REFUSED)
        raise OSError(ctypes.get_errno(), name)


def choose_pid(pid: int) -> None:
    """Have the next process get a pid; in `among_own_pids`, where nobody else's can get it before."""
    Path("/proc/sys/kernel/ns_last_pid").write_text(str(pid - 1))


def kill(*processes: psutil.Process) -> None:
    """Kill processes, some of which may have ended by themselves when others did."""
    for process in processes:
        with suppress(psutil.Error):
            process.kill()


def share_template() -> None:
    """Start what `program` forks from, for this process and for those that are forked from it."""
    home = get_temp_dir()
    with suppress(SimulatorError), mock.patch.dict(os.environ, QUIET, HOME=home, LD_LIBRARY_PATH=str(libraries())):
        multiprocessing.set_forkserver_preload(_PRELOAD)
        forkserver.ensure_running()
        vars(forkserver._forkserver)["ensure_running"] = lambda: None  # else a fork would start its own


@dataclass(frozen=True, slots=True)
class Program:
    """A process that has answered, and keeps what it holds until it is told to end."""

    answer: Any
    pid: int


@contextmanager
def program(
    machine: Machine | None,
    function: Callable[..., Any],
    *args: Any,
    env: Mapping[str, str] | None = None,
    imported: bool = True,
    fresh: bool = False,
) -> Iterator[Program]:
    """Run a function on the machine, and keep its process until the block ends.

    Args:
        machine: where it runs; None is the machine that we are on.
        function: a module's function; what it returns must pickle.
        args: what it is called with.
        env: variables that it finds set.
        imported: whether TensorFlow is imported there. If not, its import finds the modules again that the process was
            forked with: it takes milliseconds and runs none of TensorFlow's code, and all else that waits for it.
        fresh: a process in which nothing is imported; else one that was forked when TensorFlow was imported, and
            nothing more (a hundred times faster; TensorFlow may be forked as long as CUDA was not started).
    """
    with ENVIRONMENT:
        outside = {**os.environ, **QUIET}
    if machine is not None:
        outside = machine.environ(outside)
    variables = {**outside, **(env or {})}
    if machine is None and not fresh:  # it may be the first, and what is forked has this path as long as it lives
        outside["LD_LIBRARY_PATH"] = str(libraries())
    context: Any = multiprocessing.get_context("spawn" if fresh else "forkserver")
    context.set_forkserver_preload(_PRELOAD)
    ours, theirs = context.Pipe()
    process = context.Process(target=_child, args=(theirs, variables, imported or fresh, function, args))
    with ENVIRONMENT, mock.patch.dict(os.environ, variables if fresh else outside, clear=True):
        process.start()
    theirs.close()
    try:
        if not ours.poll(PATIENCE):
            raise TimeoutError(f"{function.__name__} did not answer within {PATIENCE} s")
        answer, trouble = ours.recv()
        if trouble:
            raise AssertionError(f"in the process of {function.__name__}:\n{trouble}")
        yield Program(answer, process.pid)
    finally:
        ours.close()  # which ends the child
        process.join(10)
        if process.is_alive():
            process.kill()
            process.join()
        process.close()


def run(machine: Machine | str | None, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Run a function to its end on the machine, or on one of its own of these GPUs, and return what it returns."""
    with contextlib.ExitStack() as stack:
        where = stack.enter_context(Machine.create(machine)) if isinstance(machine, str) else machine
        return stack.enter_context(program(where, function, *args, **options)).answer


def on(gpus: str, *neighbours: str, **options: Any) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """Have a test run in a process of its own, on a machine of its own; what it is called with must pickle.

    Args:
        gpus: the machine's GPUs, as `Machine.create` takes them.
        neighbours: what others hold there, as `Machine.add_neighbour` takes it.
        options: those of `program`.
    """

    def decorate(test: Callable[P, None]) -> Callable[P, None]:
        @functools.wraps(test)
        def there(*_: P.args, **given: P.kwargs) -> None:
            with Machine.create(gpus) as machine:
                for neighbour in neighbours:
                    machine.add_neighbour(neighbour)
                run(machine, _test, test.__module__, test.__name__, given, **options)

        return there

    return decorate


def _test(module: str, name: str, given: dict[str, Any]) -> None:
    """Run a test of a module whose assertions say what they compare, as pytest has them."""
    spec = find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    source = Path(spec.origin).read_bytes()
    tree = ast.parse(source)
    rewrite_asserts(tree, source)
    sys.modules[module] = made = module_from_spec(spec)
    exec(compile(tree, spec.origin, "exec", dont_inherit=True), vars(made))
    getattr(made, name).__wrapped__(**given)


def _child(
    pipe: Connection,
    variables: Mapping[str, str],
    imported: bool,
    function: Callable[..., Any],
    args: tuple[Any, ...],
) -> None:
    os.environ.clear()
    os.environ.update(variables)
    if folder := variables.get(CGROUP):
        Path(folder, "cgroup.procs").write_text(str(os.getpid()))
    if not imported:
        sys.meta_path.insert(1, Again())  # behind the hook of imports, which may be there
    try:
        pipe.send((function(*args), None))
    except BaseException:  # whatever it is, the test must be told
        pipe.send((None, traceback.format_exc()))
    try:
        pipe.recv()
    except EOFError:
        os._exit(0)  # TensorFlow's own end takes a second, and proves nothing


class Again(MetaPathFinder, Loader):
    """Takes TensorFlow's modules away, and gives them back when it is imported."""

    def __init__(self) -> None:
        names = [name for name in sys.modules if name.partition(".")[0] in ("tensorflow", "keras")]
        self._modules = {name: sys.modules.pop(name) for name in names}

    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        module = self._modules.get(name)
        if module is None:
            return None
        return spec_from_file_location(
            name, module.__file__, loader=self, submodule_search_locations=getattr(module, "__path__", None)
        )

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return self._modules[spec.name]

    def exec_module(self, _: ModuleType) -> None:
        for name, other in self._modules.items():
            sys.modules.setdefault(name, other)
