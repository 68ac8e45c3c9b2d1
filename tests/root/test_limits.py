"""The administrator's limits reach the driver: on real cgroups with real processes, and a simulated driver 615."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cgroups import cgroup2
from tests.processes import PATIENCE, run
from tests.simgpu.on_machine import get_limits
from tests.sizes import GIB
from tests.slack import SLACK
from tests.waiting import until
from tfgpu_magic.root import driver
from tfgpu_magic.simgpu import Machine

NONE = (0, 2**64 - 1)
NOBODY = 65534
FILE = '[limits]\nhard = "50%"\nsoft = "1GiB"\n'
CODE = """
import sys
from pathlib import Path
from tfgpu_magic.root import __main__ as limits, cgroups, file, trust
cgroups.mount, file.FILE, limits.STATE = lambda: (Path({root!r}),) * 2, Path({file!r}), Path({state!r})
trust.flaw = lambda: ""
limits.TICK, limits.AGAIN = 0.05, 10
sys.exit(limits.main())
"""


class Site:
    """A machine with a file, cgroups of two users, and the program that limits them."""

    def __init__(self, machine: Machine, root: Path, folder: Path) -> None:
        self.machine, self.root = machine, root
        self.file, self.state = folder / "tfgpu_magic.toml", folder / "run/limits.json"
        self.write(FILE)
        self.ann, self.bob = (self.make(f"user.slice/user-{uid}.slice") for uid in (70001, 70002))

    def write(self, text: str) -> None:
        new = self.file.with_suffix(".new")
        new.write_text(text)
        new.replace(self.file)

    def make(self, name: str) -> Path:
        folder = self.root / name
        folder.mkdir(parents=True)
        return folder

    def popen(self, action: str, **options: Any) -> subprocess.Popen[str]:
        code = CODE.format(root=str(self.root), file=str(self.file), state=str(self.state))
        return self.machine.popen(
            [sys.executable, "-c", code, action], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options
        )

    def do(self, action: str, **options: Any) -> tuple[int, str]:
        with self.popen(action, **options) as process:
            said = process.communicate(timeout=PATIENCE * SLACK)[0]
        return process.returncode, said

    def once(self) -> tuple[int, str]:
        """Set the limits; a virgin cgroup may take a second try."""
        self.do("--once")
        return self.do("--once")

    def limits(self, cgroup: Path, gpu: int = 0) -> tuple[int, ...]:
        """Return the soft and the hard limit of a cgroup by the driver's account, or the code of its error."""
        answer = run(self.machine, get_limits, cgroup, gpu)
        return (answer,) if isinstance(answer, int) else tuple(answer[:2])

    def in_force(self) -> dict[str, Any]:
        state: dict[str, Any] = json.loads(self.state.read_text())
        return state


@pytest.fixture(params=["misc", "dmem"])
def dmem(request: pytest.FixtureRequest) -> bool:
    """Whether the kernel keeps the limits, or the driver itself."""
    return bool(request.param == "dmem")


@contextmanager
def limited(folder: Path, *, dmem: bool = False) -> Iterator[Site]:
    """Give a site whose files are in a folder; or skip the test."""
    if os.getuid():
        pytest.skip("only root may set limits")
    with cgroup2() as root, Machine.create("16GiB,8GiB") as machine:
        machine.set_driver("615.71.09", dmem=dmem)
        yield Site(machine, root, folder)


@contextmanager
def watching(site: Site) -> Iterator[Site]:
    """Have the service run there."""
    with site.popen("--watch") as process:
        try:
            until(lambda: site.limits(site.ann) == (GIB, 8 * GIB))
            yield site
        finally:
            process.terminate()


@pytest.fixture
def site(dmem: bool, tmp_path: Path) -> Iterator[Site]:
    with limited(tmp_path, dmem=dmem) as site:
        yield site


kernels = pytest.mark.parametrize("dmem", [False], indirect=True)
"""One back end is enough."""


@pytest.fixture
def watched(site: Site) -> Iterator[Site]:
    with watching(site):
        yield site


def test_each_user_is_held_to_the_file_on_each_gpu_and_all_can_read_it(site: Site) -> None:
    status, said = site.once()

    assert status == 0, said
    assert [site.limits(site.ann, gpu) for gpu in (0, 1)] == [(GIB, 8 * GIB), (GIB, 4 * GIB)]
    assert site.limits(site.bob) == (GIB, 8 * GIB)
    assert site.in_force()["driver"] == "615.71.09"
    assert [*site.in_force()["limits"][str(site.bob)].values()] == [[GIB, 8 * GIB, ""], [GIB, 4 * GIB, ""]]
    assert site.state.stat().st_mode & 0o777 == 0o644
    assert site.state.with_name("lock").stat().st_mode & 0o777 == 0o600


def test_what_a_user_runs_together_is_held_by_the_driver(site: Site) -> None:
    site.once()
    first = site.machine.add_neighbour("5GiB@0", cgroup=site.ann)

    with pytest.raises(Exception, match="out of memory"):
        site.machine.add_neighbour("4GiB@0", cgroup=site.ann)
    assert site.machine.held(gpu=0, pid=first.pid) == 5 * GIB
    assert site.machine.add_neighbour("7GiB@0", cgroup=site.bob)


@kernels
def test_who_comes_later_and_who_comes_again_is_limited_and_a_changed_file_holds(watched: Site) -> None:
    eve = watched.make("user.slice/user-70003.slice")
    until(lambda: watched.limits(eve) == (GIB, 8 * GIB))
    eve.rmdir()
    eve.mkdir()
    until(lambda: watched.limits(eve) == (GIB, 8 * GIB))

    watched.write('[limits]\nhard = "25%"\nusers.70003 = { hard = "none" }\n')

    until(lambda: watched.limits(watched.ann) == (0, 4 * GIB))
    until(lambda: watched.limits(eve) == NONE)


@kernels
@pytest.mark.parametrize("damage", ["a mistake", "a user's"])
def test_a_file_with_a_mistake_or_of_a_users_leaves_the_old_limits(watched: Site, damage: str) -> None:
    if damage == "a mistake":
        watched.write('[limits]\nhard = "90%"\nsoft = 7\n')
    else:
        os.chown(watched.file, NOBODY, 0)
    until(lambda: watched.in_force()["flaw"])
    eve = watched.make("user.slice/user-70003.slice")

    until(lambda: watched.limits(eve) == (GIB, 8 * GIB))  # who comes now has the old ones too
    assert watched.limits(watched.ann) == (GIB, 8 * GIB)


@kernels
def test_a_file_that_is_taken_away_takes_no_limit_away_and_clear_does(site: Site) -> None:
    site.once()
    site.file.unlink()
    site.do("--once")
    assert site.limits(site.ann) == (GIB, 8 * GIB)

    assert site.do("--clear")[0] == 0

    assert site.limits(site.ann) == site.limits(site.bob) == NONE
    assert site.in_force()["limits"] == {}


@kernels
def test_a_unit_is_limited_as_the_user_who_runs_there_first_whatever_runs_there_later(watched: Site) -> None:
    watched.write(f'{FILE}users.{NOBODY} = {{ hard = "2GiB" }}\nusers.70002 = {{ hard = "12GiB" }}\n')
    unit = watched.make("system.slice/jupyter-ann-singleuser.service")
    given = watched.make("batch.slice")
    with watched.machine.popen(["sleep", "600"], user=NOBODY) as server:
        try:
            (unit / "cgroup.procs").write_text(str(server.pid))
            until(lambda: watched.limits(unit) == (GIB, 2 * GIB))
            with watched.machine.popen(["sleep", "600"], user=70002) as other:
                try:
                    (unit / "cgroup.procs").write_text(str(other.pid))
                    server.kill()
                    watched.write(f'{watched.file.read_text()}paths."{given}" = {{ hard = "1GiB" }}\n')
                    until(lambda: watched.limits(given) == (0, GIB))
                    assert watched.limits(unit) == (GIB, 2 * GIB)
                finally:
                    other.kill()
        finally:
            server.kill()


@kernels
def test_two_never_set_limits_and_a_user_cannot_keep_the_first_from_it(watched: Site) -> None:
    status, said = watched.do("--once")

    assert (status, "another one does it already" in said) == (1, True)
    assert watched.do("--show")[0] == 0


@kernels
def test_a_dry_run_says_what_would_change_and_changes_nothing(site: Site) -> None:
    status, said = site.do("--dry-run")

    assert status == 0
    assert f"{site.ann} of 70001, GPU 1: hard none, soft none" in said
    assert "by the file hard 4 GiB, soft 1 GiB" in said
    assert site.limits(site.ann) == NONE
    assert not site.state.exists()
    site.once()
    assert site.do("--dry-run")[1] == ""
    assert f"{site.bob} of 70002, GPU 0: hard 8 GiB, soft 1 GiB; 0 GiB are held" in site.do("--show")[1]


@kernels
def test_an_older_driver_has_no_limits_and_that_is_said(site: Site) -> None:
    site.machine.set_driver("580.95.05")

    for action in ("--once", "--watch"):
        assert site.do(action) == (
            0,
            "No limit is set: the driver is older than 615, the first that has limits.\n",
        )


@pytest.mark.parametrize("bindings", [None, object()])
def test_without_bindings_or_with_old_ones_that_is_said(bindings: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "pynvml", bindings)

    with pytest.raises(driver.Failed, match=r"nvidia-ml-py 13\.615"):
        driver.Limiter("/")


@kernels
def test_a_machine_without_a_driver_is_an_error(site: Site) -> None:
    site.machine.remove_driver()

    status, said = site.do("--once")
    assert (status, "the driver does not answer" in said) == (1, True)


@kernels
def test_a_gpu_that_was_lost_when_the_service_began_has_its_limits_when_it_is_back(site: Site) -> None:
    site.machine.lose(1)
    with watching(site):
        assert "does not answer" in json.dumps(site.in_force()["limits"][str(site.ann)])
        site.machine.restore(1)

        until(lambda: site.limits(site.ann, 1) == (GIB, 4 * GIB))
        until(lambda: "does not answer" not in json.dumps(site.in_force()))


@kernels
def test_a_unit_whose_folder_is_its_users_is_limited_as_any_other(watched: Site) -> None:
    """As with `Delegate=yes` and `User=`: its parent is root's, so nobody else can remove it or make it anew."""
    unit = watched.make("jupyterhub.slice/jupyter-ann.service")
    os.chown(unit, 70001, 70001)
    below = unit / "own.slice" / "jupyter-bob.service"
    below.mkdir(parents=True)

    until(lambda: watched.limits(unit) == (GIB, 8 * GIB))
    assert watched.limits(below) != (GIB, 8 * GIB)
    assert str(below) not in watched.in_force()["limits"]


@kernels
def test_a_name_that_nobody_has_is_told_and_the_other_limits_hold(site: Site) -> None:
    site.write(f'{FILE}groups.stafff = {{ hard = "none" }}\nusers.an = {{ hard = "1GiB" }}\nusers.0 = {{}}\n')
    status, said = site.once()
    left = site.in_force()["left"]

    assert (status, left.keys()) == (1, {"limits.groups.stafff", "limits.users.an"})
    assert site.limits(site.ann) == (GIB, 8 * GIB)
    assert "limits.groups.stafff is left as it is: this machine knows no such name" in said + site.do("--show")[1]
