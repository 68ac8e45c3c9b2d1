"""The command line: run a program on a simulated machine; from inside, set its faults or show its processes."""

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from tfgpu_magic.errors import SimulatorError, TfGpuError
from tfgpu_magic.ground.units import rounded
from tfgpu_magic.simgpu.machine import ENVIRONMENT, Machine
from tfgpu_magic.simgpu.spec import parse_fault, size_of

PROGRAM = "python -m tfgpu_magic.simgpu"

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)

_LAUNCH = f"""\
Run a command on a machine with simulated GPUs: TensorFlow, gpustat, nvitop, Jupyter, pytest, unchanged. Only the
command and what it starts see the machine. Memory behaves as on real GPUs; kernels do nothing, so all RESULTS ARE
ZEROS.

  {PROGRAM} --gpus 2x16GiB --neighbour 9GiB@0 -- jupyter lab
  {PROGRAM} set --lose 1        from inside: something goes wrong
  {PROGRAM} show                from inside: who holds what
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line says, and return the exit status: the command's own, or 2 for a mistake."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        match words[:1]:
            case ["set"]:
                return _set(words[1:])
            case ["show"]:
                return _show(words[1:])
            case _:
                return _launch(words)
    except TfGpuError as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


# --- running a command ---


def _launch(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        PROGRAM,
        usage=f"{PROGRAM} [OPTION ...] -- COMMAND ...",
        description=_LAUNCH,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--gpus", default="1x8GiB", metavar="GPUS", help="8GiB, 4x16GiB, 2x8GiB:sm=4,80GiB:cc=9.0, ...")
    parser.add_argument("--context", default="256MiB", metavar="SIZE", help="what a CUDA context costs (256MiB)")
    parser.add_argument(
        "--neighbour", action="append", default=[], metavar="SIZE@GPU", help="a process that holds memory: 9GiB@0"
    )
    parser.add_argument(
        "--foreign", action="append", default=[], metavar="SIZE@GPU", help="the same, of another user: 3GiB@1"
    )
    parser.add_argument("--shared", action="store_true", help="programs of all users can run on it")
    _add_faults(parser)
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND ...", help="what to run")
    options = parser.parse_args(words)
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not command:
        parser.error("there is no command to run: write it after --")
    for number in _SIGNALS:
        if number != signal.SIGINT:  # until the command runs they end this process, which removes the machine
            signal.signal(number, lambda number, _frame: sys.exit(128 + number))
    with Machine.create(options.gpus, context=size_of(options.context), shared=options.shared) as machine:
        for spec in options.neighbour:
            machine.add_neighbour(spec)
        for spec in options.foreign:
            machine.add_foreign(spec)
        _apply_faults(machine, options)
        return _run(machine, command)


def _run(machine: Machine, command: list[str]) -> int:
    """Run the command to its end, passing signals on, and return its status as a shell does: 128 + n for a signal."""
    early: list[int] = []
    handlers = {number: signal.signal(number, lambda number, _frame: early.append(number)) for number in _SIGNALS}
    try:
        process = machine.popen(command)
    except OSError as error:
        raise SimulatorError(f"{command[0]!r} cannot be run: {error.strerror}.") from None

    def pass_on(number: int, _frame: FrameType | None) -> None:
        # A terminal's Ctrl-C reaches the command by itself: twice would be once too many.
        if not (number == signal.SIGINT and _in_foreground()):
            process.send_signal(number)

    for number in _SIGNALS:
        signal.signal(number, pass_on)
    for missed in early:
        pass_on(missed, None)
    status = process.wait()
    for number, handler in handlers.items():
        signal.signal(number, handler)
    return status if status >= 0 else 128 - status


def _in_foreground() -> bool:
    try:
        with Path(os.ctermid()).open("rb", buffering=0) as terminal:
            return os.tcgetpgrp(terminal.fileno()) == os.getpgrp()
    except OSError:
        return False


# --- from inside ---


def _attach(path: str | None) -> Machine:
    machine = Machine.attach(path) if path else Machine.current()
    if machine is None:
        raise SimulatorError(f"this is no simulated machine ({ENVIRONMENT} is not set). Name one with --machine PATH.")
    return machine


def _set(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(f"{PROGRAM} set", description="Change what goes wrong on this machine, at once.")
    parser.add_argument("--machine", metavar="PATH", help=f"the machine's state file (default: ${ENVIRONMENT})")
    parser.add_argument("--clear", action="store_true", help="first end all that goes wrong")
    parser.add_argument("--restore", action="append", default=[], type=int, metavar="GPU", help="have a lost GPU back")
    _add_faults(parser)
    options = parser.parse_args(words)
    with _attach(options.machine) as machine:
        if options.clear:
            machine.clear_faults()
        for gpu in options.restore:
            machine.restore(gpu)
        _apply_faults(machine, options)
    return 0


def _show(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(f"{PROGRAM} show", description="Print this machine's GPUs and who holds them.")
    parser.add_argument("--machine", metavar="PATH", help=f"the machine's state file (default: ${ENVIRONMENT})")
    with _attach(parser.parse_args(words).machine) as machine:
        for gpu in machine.gpus():
            lost = "  LOST" if gpu.lost else ""
            print(f"GPU {gpu.label:4} {gpu.name}: {rounded(gpu.used)} used, {rounded(gpu.free)} free{lost}")
        for row in machine.processes():
            label = row.gpu if row.instance is None else f"{row.gpu}.{row.instance}"
            print(f"GPU {label:<4} pid {row.pid} {row.kind} {rounded(row.held)}")
    return 0


# --- what goes wrong: the same words for both ---


def _add_faults(parser: argparse.ArgumentParser) -> None:
    faults = parser.add_argument_group("what goes wrong")
    faults.add_argument(
        "--fault",
        action="append",
        default=[],
        metavar="FUNCTION=CODE[@GPU]",
        help="an NVML function answers this error: nvmlDeviceGetMemoryInfo=999@0; 0 ends it",
    )
    faults.add_argument(
        "--hang",
        action="append",
        default=[],
        metavar="FUNCTION=SECONDS[@GPU]",
        help="an NVML function takes that long at each call; 0 ends it",
    )
    faults.add_argument("--lose", action="append", default=[], type=int, metavar="GPU", help="a GPU is lost")
    faults.add_argument("--hide-memory", action="store_true", help="NVML does not tell what a process holds")
    faults.add_argument("--host-pids", action="store_true", help="NVML lists pids of another namespace")
    faults.add_argument("--no-driver", action="store_true", help="there is no driver")
    driver = parser.add_argument_group("its driver")
    driver.add_argument(
        "--driver", metavar="VERSION", help="its version (580.00.00); 615 and later have limits by cgroup"
    )
    driver.add_argument("--dmem", action="store_true", help="with --driver: limits of GPU memory by cgroup nest")


def _apply_faults(machine: Machine, options: argparse.Namespace) -> None:
    for text in options.fault:
        function, value, gpu = parse_fault(text)
        if not value.isdecimal():
            raise SimulatorError(f"{value!r} in {text!r} is no error code: NVML's are whole numbers, such as 999.")
        machine.fault(function, int(value), gpu=gpu)
    for text in options.hang:
        function, value, gpu = parse_fault(text)
        machine.hang(function, float(value), gpu=gpu)
    for gpu in options.lose:
        machine.lose(gpu)
    for wanted, change in (
        (options.hide_memory, machine.hide_memory),
        (options.host_pids, machine.host_pids),
        (options.no_driver, machine.remove_driver),
    ):
        if wanted:
            change()
    if options.dmem and not options.driver:
        raise SimulatorError("--dmem says what --driver VERSION is like: name that too.")
    if options.driver:
        machine.set_driver(options.driver, dmem=options.dmem)


if __name__ == "__main__":
    sys.exit(main())
