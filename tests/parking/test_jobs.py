"""Detached jobs and isolated calls make way at points of their own, and go on: real kernels with the real TensorFlow.

A synchronisation while the GPU state is away ends the process on the simulated machine, too: a job that goes on has its
state, and one digest shows that it is the same.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

import tfgpu_magic
from tests.jupyter import Notebook, serving
from tests.parking.conftest import PARKER, WORKER, helpers, kill
from tests.parking.notebooks import SIZE, Site, digest_in, home, park
from tests.sizes import CONTEXT
from tests.slack import SLACK
from tests.waiting import until
from tfgpu_magic.parking import client
from tfgpu_magic.parking.states import Phase
from tfgpu_magic.simgpu import Machine

JOB = """
%%tf_gpu isolate --detach limit 5GiB
from tests.parking.job_on_machine import work
work({end!r}, points={points}, thread={thread})
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with pytest.MonkeyPatch.context() as patch, Machine.create("1x8GiB") as machine:
        patch.setenv("TFGPU_MAGIC_DIR", str(tmp_path_factory.mktemp("board") / "board"))
        for name, value in machine.environ().items():
            patch.setenv(name, value)
        with serving(machine, home(tmp_path_factory.mktemp("home"))) as server:
            yield Site(machine, server)
        kill(*helpers(machine, PARKER), *helpers(machine, WORKER))


@pytest.fixture(scope="module")
def notebook(site: Site) -> Iterator[Notebook]:
    """Give a notebook that has jobs."""
    with site.notebook("jobs.ipynb") as found:
        found.run(f"%config TfGpuMagics.grace = {4 * SLACK}")
        yield found


class Job:
    """A detached cell that goes on until it is told to end."""

    def __init__(self, site: Site, notebook: Notebook, end: Path, *, points: bool = True, thread: bool = False) -> None:
        self.site, self.notebook, self.end = site, notebook, end
        notebook.run(JOB.format(end=str(end), points=points, thread=thread))
        self.number = int(notebook.run("job = _; print(job.number)"))
        self.pid = until(self._process)

    def row(self) -> str:
        """Return its row in the list."""
        return self.do("")

    def do(self, verb: str) -> str:
        """Say a word about it, and return what is said, its row at the end."""
        said = self.notebook.run(f"%tf_gpu jobs {verb and f'{verb} {self.number}'}")
        return next((line for line in said.splitlines() if re.match(rf" *{self.number} ", line)), said)

    def park(self) -> str:
        """Have it parked, and return its row then; a busy machine comes to the next point later than is waited for."""
        return until(lambda: self.do("park"), lambda row: " parked, " in row)

    def holds(self) -> bool:
        return self.site.machine.held(pid=self.pid) == SIZE + CONTEXT

    def is_parked(self) -> bool:
        entry = client.parked(self.pid)
        return entry is not None and entry.phase is Phase.PARKED and self.site.machine.held(pid=self.pid) == 0

    def _process(self) -> int:
        return int(self.notebook.run("print(job.pid or 0)"))


@contextmanager
def job(site: Site, notebook: Notebook, end: Path, **options: bool) -> Iterator[Job]:
    """Begin a job, wait until it holds its memory, and kill it in the end if it is still there."""
    one = Job(site, notebook, end, **options)
    try:
        until(lambda: one.holds() and Path(f"{end}-begun").exists())  # from now on it comes to its points
        yield one
    finally:
        with contextlib.suppress(psutil.NoSuchProcess):
            psutil.Process(one.pid).kill()
        until(lambda: not psutil.pid_exists(one.pid) and site.machine.held(pid=one.pid) == 0)


@pytest.fixture(scope="module")
def undisturbed(site: Site, notebook: Notebook, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the digest of a job's model that was never parked."""
    end = tmp_path_factory.mktemp("end") / "end"
    end.touch()
    notebook.run(JOB.format(end=str(end), points=True, thread=False))
    said = notebook.run("print(_.result())")
    assert said.endswith(", 0)\n")
    return digest_in(said)


def test_a_job_makes_way_for_a_notebook_and_goes_on_when_there_is_room(
    site: Site, notebook: Notebook, undisturbed: str, tmp_path: Path
) -> None:
    with site.trained("other.ipynb") as (other, digest):
        park(other)
        with job(site, notebook, tmp_path / "end") as one:
            assert digest_in(other.run("print(digest())")) == digest  # it waits until the job has made way
            assert site.holds(other)
            row = until(one.row, lambda row: "waits for room" in row)
            assert " parked, 5.2 GiB in host memory, since " in row
            assert one.is_parked()
            table = until(lambda: other.run("%tf_gpu"), lambda text: "jobs.ipynb's isolated call" in text)
            assert "parked, 5.2 GiB in host memory, since " in table

            kill(*helpers(site.machine, PARKER))  # what waits asks the next one
            park(other)
            until(one.holds)
            one.end.touch()
            said = notebook.run("print(job.result())")

    assert digest_in(said) == undisturbed
    assert said.endswith(", 1)\n")


def test_a_user_parks_a_job_until_they_say_otherwise(
    site: Site, notebook: Notebook, undisturbed: str, tmp_path: Path
) -> None:
    with job(site, notebook, tmp_path / "end") as one:
        assert " parked, 5.2 GiB in host memory, since " in one.park()
        assert one.is_parked()
        with site.trained("between.ipynb"):  # which finds room
            assert " parked " in one.row()
        assert one.is_parked()  # also when there is room

        one.do("unpark")
        until(one.holds)
        one.park()
        one.end.touch()  # seen when it is back
        notebook.run(f"%tf_gpu unpark {one.pid}")  # by which anybody brings anything back
        said = notebook.run("print(job.result())")

    assert digest_in(said) == undisturbed
    assert said.endswith(", 2)\n")


def test_a_parked_job_that_is_stopped_saves_what_it_has_first(site: Site, notebook: Notebook, tmp_path: Path) -> None:
    with job(site, notebook, tmp_path / "end") as one:
        one.park()
        site.machine.set_checkpoints(out=0.0, back=2.0)  # it is interrupted while it is copied back, at the latest
        one.do("stop")
        site.machine.set_checkpoints(out=0.0, back=0.0)
        said = notebook.run("error = job.exception(60); print(type(error).__name__)")

    assert said.splitlines()[-1] == "KeyboardInterrupt"
    assert " stopped " in one.row()
    assert Path(f"{one.end}-saved").read_text() == Path(f"{one.end}-begun").read_text()


def test_a_parked_job_that_finds_no_room_ends_when_it_is_stopped_twice(
    site: Site, notebook: Notebook, tmp_path: Path
) -> None:
    with job(site, notebook, tmp_path / "end") as one:
        one.park()
        with site.trained("between.ipynb"):
            assert " parked, " in one.do("stop")
            one.do("stop")
            notebook.run("ended = job.exception(60)")
            assert " stopped " in one.row()
            assert client.parked(one.pid) is None


@pytest.mark.parametrize("dies", ["job", "kernel"])
def test_nothing_is_left_of_a_parked_job_that_dies(site: Site, notebook: Notebook, tmp_path: Path, dies: str) -> None:
    if dies == "job":
        with job(site, notebook, tmp_path / "end") as one:
            one.park()
            psutil.Process(one.pid).kill()
            assert "WorkerDied" in notebook.run("print(type(job.exception(60)).__name__)")
    else:
        with site.notebook("short.ipynb") as short, job(site, short, tmp_path / "end") as one:
            one.park()
            psutil.Process(short.pid).kill()
            until(lambda: not psutil.pid_exists(one.pid))

    assert site.machine.held(pid=one.pid) == 0
    assert client.parked(one.pid) is None


def test_a_job_without_a_point_is_not_parked_and_hears_how_to_give_it_one(
    site: Site, notebook: Notebook, tmp_path: Path
) -> None:
    with job(site, notebook, tmp_path / "end", points=False) as one:
        said = one.do("park")
        assert "Not parked. It has come to no point at which it can be parked" in said
        assert "tfgpu_magic.make_way()" in said
        assert one.holds()


def test_a_job_with_a_thread_that_cannot_be_held_is_not_parked(site: Site, notebook: Notebook, tmp_path: Path) -> None:
    with job(site, notebook, tmp_path / "end", thread=True) as one:
        said = until(lambda: one.do("park"), lambda text: "`my-thread`" in text)
        assert "This call is not parked, and goes on." in said
        assert one.holds()


def test_a_call_makes_way_for_another_one_which_has_its_room(
    site: Site, notebook: Notebook, undisturbed: str, tmp_path: Path
) -> None:
    end = tmp_path / "end"
    said = notebook.run(f"""
import time, tfgpu_magic
from pathlib import Path
from tests.parking.job_on_machine import fill, work
executor = tfgpu_magic.IsolatedExecutor(2, policy="limit 5GiB")
first = executor.submit(work, {str(end)!r})
while not Path({str(end) + "-begun"!r}).exists(): time.sleep(0.05)
second = executor.submit(fill)
print(len(second.result()))
Path({str(end)!r}).touch()
print(first.result())
executor.shutdown()
""")

    assert digest_in(said.splitlines()[-1]) == undisturbed
    assert said.endswith(", 1)\n")
    assert site.machine.held() == 0


def test_nothing_is_parked_where_parking_is_off(notebook: Notebook, site: Site, tmp_path: Path) -> None:
    notebook.run("%config TfGpuMagics.parking = 'off'")
    try:
        with job(site, notebook, tmp_path / "end") as one:
            assert "Not parked. Parking is off here" in one.do("park")
    finally:
        notebook.run("%config TfGpuMagics.parking = 'ask'")


def test_outside_of_isolated_calls_nothing_makes_way() -> None:
    assert tfgpu_magic.make_way() is False
