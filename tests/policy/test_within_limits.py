"""In a cgroup that the driver limits, and below one: policies stand on the limit, and nothing passes it.

The cgroups and the processes in them are real; the driver is a simulated 615.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pynvml
import pytest

import tfgpu_magic
from tests.cgroups import cgroup2
from tests.processes import PATIENCE, run
from tests.simgpu.on_machine import enter, get_limits, set_limits
from tests.sizes import GIB, MIB
from tests.tf.on_machine import fill, first_op, held, refused, status_text
from tfgpu_magic.engine import engine
from tfgpu_magic.errors import SimulatorError
from tfgpu_magic.machine.driver import limits
from tfgpu_magic.machine.see import DRIVER_TIMEOUT, look
from tfgpu_magic.simgpu import Machine

pytestmark = pytest.mark.skipif(
    not hasattr(pynvml, "nvmlDeviceSetMemoryLimits_v1"), reason="this pynvml is older than the limits"
)
HARD = 4 * GIB
CONTEXT = 256 * MIB
"""A simulated one."""
RESERVED = 256 * MIB
BY_HAND = """
import sys
from pathlib import Path
from tests.simgpu.on_machine import enter
enter(Path(sys.argv[1]))
import tensorflow as tf
kept = []
try:
    while True:
        kept.append(tf.Variable(tf.zeros(64 * 2**20 // 4)))
except tf.errors.ResourceExhaustedError:
    print(len(kept) * 64 * 2**20)
"""


class Site:
    """A machine of two GPUs with a cgroup that has 4 GiB of the first, and the folder for a process that it holds."""

    def __init__(self, machine: Machine, limited: Path, inside: Path) -> None:
        self.machine, self.limited, self.inside = machine, limited, inside
        self.limit(HARD)

    def limit(self, hard: int, *, gpu: int = 0) -> None:
        answer = run(self.machine, set_limits, self.limited, 0, hard, gpu)  # of a virgin cgroup, it may be refused once
        assert answer is None or run(self.machine, set_limits, self.limited, 0, hard, gpu) is None

    def do(self, function: Any, *args: Any, **env: str) -> Any:
        return run(self.machine, within, self.inside, function, args, env=env)

    @property
    def used(self) -> int:
        """What the driver accounts to the cgroup that is limited."""
        return int(run(self.machine, get_limits, self.limited)[2])


@pytest.fixture(params=["misc", "dmem"])
def dmem(request: pytest.FixtureRequest) -> bool:
    """Whether the kernel keeps the limits, or the driver itself."""
    return bool(request.param == "dmem")


@pytest.fixture(params=["the limited one", "one below it"])
def place(request: pytest.FixtureRequest) -> str:
    """In which cgroup the process is: in the first the limit seems to be all that the GPU has."""
    return str(request.param)


@pytest.fixture
def site(dmem: bool, place: str) -> Iterator[Site]:
    with cgroup2() as folder, Machine.create("2x16GiB") as machine:
        machine.set_driver("615.71.09", dmem=dmem)
        (below := folder / "below").mkdir()
        yield Site(machine, folder, folder if place == "the limited one" else below)


below = pytest.mark.parametrize("place", ["one below it"], indirect=True)
misc = pytest.mark.parametrize("dmem", [False], indirect=True)


def within(cgroup: Path, function: Any, args: tuple[Any, ...]) -> Any:
    enter(cgroup)
    return function(*args)


def planned(words: str, frameworks: Literal["tensorflow", "all"] = "tensorflow") -> str:
    """Return what the words would do, as text."""
    return repr(engine.answer(tfgpu_magic.plan(words, frameworks=frameworks), ""))


def gpu() -> tuple[int | None, ...]:
    """Return total, most, limit, used and free of the first GPU, as a process here sees them."""
    first = look(DRIVER_TIMEOUT).gpus[0]
    return first.total, first.capacity, first.limit, first.used, first.free


def why_not() -> str:
    """Have TensorFlow ask for more than there is, as it needs it, and return why it got none."""
    import tensorflow as tf

    tfgpu_magic.apply("growth")
    with pytest.raises(tf.errors.ResourceExhaustedError) as raised:
        tf.zeros(5 * GIB // 16 * 3)  # 3.75 GiB
    return repr(tfgpu_magic.why(raised.value))


def filled(words: str) -> tuple[int, list[int]]:
    """Have TensorFlow take all that it gets of the first GPU under a policy; return that, and what is held."""
    if words:
        tfgpu_magic.apply(words)
    return fill("GPU:0"), held()


def test_a_reader_has_the_limit_and_what_can_be_had_beside_what_the_gpu_shows(site: Site, place: str) -> None:
    site.machine.add_neighbour("1GiB@0", cgroup=site.inside)
    site.machine.add_neighbour("2GiB@0")
    room = 3 * GIB - limits.DRIVERS_PART

    if place == "the limited one":
        assert site.do(gpu) == (HARD, HARD, HARD, GIB, room)
    else:
        assert site.do(gpu) == (16 * GIB, HARD, HARD, 3 * GIB, room)
    site.machine.add_neighbour("12GiB@0")  # now the GPU itself is nearly full
    assert site.do(gpu)[-1] == 16 * GIB - 15 * GIB - RESERVED


def test_a_share_is_of_the_limit_and_says_so(site: Site, place: str) -> None:
    whole = "GPU: 16 GiB" if place == "one below it" else "the driver's limit"

    assert site.do(first_op, "limit 40%; limit 1=10%") == [1638 * MIB + CONTEXT, 1638 * MIB + CONTEXT]

    said = site.do(planned, "limit 40%")
    assert f"GPU 0: a share is of your 4 GiB ({whole}), which the driver allows all processes of this cgroup" in said
    assert "limit 1.6 GiB" in said
    assert "limit 6.4 GiB" in said  # of the other GPU, which is not limited
    assert f"4.0 GiB of your 4 GiB ({whole})" not in said
    assert f"of your 4 GiB ({whole}) are free" in site.do(refused, "limit 100%")
    assert f"the limit is 5 GiB, more than your 4 GiB ({whole})" in site.do(refused, "limit 5GiB")


@misc
def test_equal_parts_and_a_pick_stand_on_what_can_be_had(site: Site) -> None:
    site.limit(8 * GIB, gpu=1)
    site.machine.add_neighbour("10GiB@1")  # 6 GiB are free of the second GPU, and 4 may be had of the first

    assert "GPU 1" in site.do(planned, "pick")
    assert "GPU 0: 3.8 GiB free" in site.do(refused, "pick 2 --need 5GiB")
    assert "no GPU has it" in site.do(refused, "pick --need 90%")
    site.machine.add_neighbour("1GiB@0", cgroup=site.inside)
    context, libraries = 512 * MIB, 1536 * MIB
    part, room = int(site.do(first_op, "visible 0; split 2")[0]) - CONTEXT, 3 * GIB - limits.DRIVERS_PART - context
    assert (room - libraries) // 2 <= part <= room // 2


@pytest.mark.parametrize(
    ("words", "place", "dmem"),
    [  # each place by each back end once: TensorFlow waits ten seconds before it gives up
        ("limit 80%", "the limited one", False),
        ("limit 3GiB --grow", "one below it", True),
        ("growth", "the limited one", True),
        ("", "one below it", False),
    ],
    indirect=["place", "dmem"],
)
def test_tensorflow_never_passes_the_limit_by_our_words_or_without_them(site: Site, words: str) -> None:
    taken, at_last = site.do(filled, words)

    assert GIB < taken <= HARD - limits.DRIVERS_PART - CONTEXT
    assert at_last[0] <= HARD


@below
@misc
def test_nor_does_another_interpreter_beside_plain_cuda(site: Site) -> None:
    with pytest.raises(SimulatorError, match="out of memory"):
        site.machine.add_neighbour("5GiB@0", cgroup=site.inside)
    neighbour = site.machine.add_neighbour("1GiB@0", cgroup=site.inside)
    done = site.machine.run(
        [sys.executable, "-c", BY_HAND, site.inside],
        stdout=subprocess.PIPE, text=True, timeout=PATIENCE, cwd=Path(__file__).parents[2],
    )  # fmt: skip

    assert done.returncode == 0
    assert GIB < int(done.stdout.split()[-1]) <= 3 * GIB - limits.DRIVERS_PART - CONTEXT
    assert site.machine.held(pid=neighbour.pid) == site.used == GIB


def test_the_status_and_a_failure_name_what_the_figures_are_of(site: Site, place: str) -> None:
    limit = "16 GiB (your limit: 4 GiB)" if place == "one below it" else "4 GiB (your limit)"

    assert f" / {limit}" in site.do(status_text, "limit 1GiB")
    said = site.do(why_not)
    assert f" / {limit} held" in said
    sentence = "of GPU 0's 4 GiB (your limit) are free" if place == "one below it" else "TensorFlow's pool on GPU:0"
    assert sentence in said


@below
@misc
def test_a_limit_that_is_changed_or_ends_holds_at_the_next_reading(site: Site) -> None:
    site.limit(2 * GIB)
    assert site.do(gpu)[1] == 2 * GIB

    site.limit(limits.UNLIMITED)
    assert site.do(gpu)[1:3] == (16 * GIB, None)
    assert "your" not in site.do(planned, "limit 40%")


@below
@misc
def test_with_an_older_driver_all_is_as_it_was(site: Site) -> None:
    site.machine.set_driver("580.95.05")

    assert site.do(gpu) == (16 * GIB, 16 * GIB, None, 0, 16 * GIB - RESERVED)
    assert "your" not in site.do(planned, "limit 40%")
