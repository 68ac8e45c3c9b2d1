"""A configuration fails closed: what is wrong in it leaves the rest standing, and is told; real IPython and TensorFlow.

The administrator's file is in another place than `/etc` here.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from jupyter_client.manager import KernelManager

from tests.command.shell import TFGPU
from tests.jupyter import execute
from tests.machines import machine_of
from tests.magic.shell import configured
from tests.processes import QUIET, run
from tests.sizes import GIB
from tests.slack import SLACK
from tests.tf.on_machine import held, touch_every_gpu
from tfgpu_magic import policy
from tfgpu_magic.policy import settings
from tfgpu_magic.policy.settings import removed
from tfgpu_magic.simgpu import Machine

machine = machine_of("2x8GiB")

FORTY, NO_GPU = "limit 40%", "visible none"
GROUP, OTHER = str(os.getegid()), "4294967294"


@pytest.mark.parametrize(
    ("given", "in_force", "told"),
    [
        ({"ceiling": FORTY, "quiet": "yes"}, FORTY, "`quiet = 'yes'`, from the configuration, is NOT in force."),
        ({"ceiling": FORTY, "release_after": "5m", "policy": "limti 1GiB"}, FORTY, "`release_after = '5m'`"),
        ({"ceiling": FORTY, "policies": 5, "grace": None}, FORTY, "`policies = 5`"),
        ({"ceiling": FORTY, "policy": ["growth"]}, FORTY, "`['growth']`, from the configuration, is NOT in force"),
        ({"ceiling": 0.4}, NO_GPU, "The ceiling `0.4`, from the configuration, was not understood"),
        ({"ceiling": "limti 40%"}, FORTY, "The ceiling `limti 40%`, from the configuration, was not understood"),
        ({"ceiling": "little"}, NO_GPU, "`visible none` holds."),
        ({"ceiling": "limit 0=4GiB,1=8GiB"}, "limit 4GiB", "A ceiling is one limit for all GPUs alike: `limit 40%`"),
        ({"ceilings": 5}, NO_GPU, "`ceilings = 5`, from the configuration, cannot be read"),
        ({"cieling": FORTY}, FORTY, "`cieling`, from the configuration, is no setting. It counts as `ceiling`."),
        ({"ceiling": FORTY, "qiet": True}, FORTY, "`qiet`, from the configuration, is no setting. Did you mean"),
        ({"ceiling": FORTY, "policies": {"studens": "growth"}}, FORTY, "knows no group `studens`"),
        ({"ceiling": FORTY, "parking": "ask"}, FORTY, removed("parking", "the configuration")),
    ],
)
def test_a_setting_that_is_wrong_leaves_the_rest_standing_and_is_told(
    machine: Machine, given: Mapping[str, Any], in_force: str, told: str
) -> None:
    found, said = run(machine, _in_force, given)

    assert found == in_force
    assert told in said


@pytest.mark.parametrize(
    ("ceiling", "variable", "in_force"),
    [
        ("limit 60%", FORTY, FORTY),
        (FORTY, "limit 60%", FORTY),
        (FORTY, "limit 2GiB", "limit 40%; limit 2GiB"),
    ],
)
def test_of_the_configurations_and_the_environments_ceiling_the_lower_holds(
    machine: Machine, ceiling: str, variable: str, in_force: str
) -> None:
    assert run(machine, _in_force, {"ceiling": ceiling}, env={"TFGPU_CEILING": variable})[0] == in_force


def test_the_variable_holds_whatever_is_wrong_in_the_configuration(machine: Machine) -> None:
    env = {"TFGPU_CEILING": FORTY}
    for found, said in (
        run(machine, _in_force, {"quiet": "yes"}, env=env),
        run(machine, _in_force, {"quiet": "yes"}, "TfGpuMagic", env=env),
        *(run(machine, _in_force, section, env=env) for section in ("limit 90%", None, list[str]())),
        run(machine, _in_force_in_spite_of_an_exception, env=env),
    ):
        assert found == FORTY
        assert "NOT in force" in said


def test_what_fails_when_it_is_enforced_leaves_growth_and_no_gpu_under_a_ceiling(machine: Machine) -> None:
    for variable, taken in {"TFGPU_CEILING": [False, False], "TFGPU_POLICY": [True, True]}.items():
        said, sizes = run(machine, _use_with_an_exception, env={variable: FORTY}, imported=False)

        assert "What is configured is NOT in force: ValueError: today not" in said
        assert [0 < size < GIB for size in sizes] == taken


@pytest.mark.parametrize(
    ("given", "held"),
    [
        ({"ceilings": {GROUP: "limit 25%"}, "ceiling": "limit 90%"}, ["limit 25%"]),
        ({"ceilings": {OTHER: "limit 25%"}, "ceiling": "limit 90%"}, ["limit 90%"]),
        ({"ceilings": {GROUP: "limit 90%", OTHER: "limit 25%"}}, ["limit 90%"]),
        ({"ceilings": {"no such group": "limit 25%", GROUP: 0.9}, "ceiling": FORTY}, ["limit 25%", "0.9"]),
        ({"ceilings": {OTHER: FORTY}}, [""]),
    ],
)
def test_a_ceiling_by_group_is_that_of_the_first_and_of_those_that_nobody_knows(
    given: Mapping[str, Any], held: list[str]
) -> None:
    assert [text for text, _ in settings.of_configuration({"TfGpuMagics": given}).ceilings] == held


@pytest.mark.parametrize(
    ("text", "in_force", "told"),
    [
        ('policy = "pick; growth"\nceiling = "limit 40%"', FORTY, ""),
        (f'ceiling = "limit 90%"\n[ceilings]\n{GROUP} = "limit 40%"', FORTY, ""),
        ('quiet = "yes"\nceiling = "limit 40%"', FORTY, "`quiet = 'yes'`, from FILE, is NOT in force"),
        ('ceiling = "limit 40%"\n[limits]\nhard = "90%"', FORTY, ""),
        ('ceiling = "limit 40%"\n[idle]\nnotify = "2h"', FORTY, ""),
        ('ceiling = "limit 40%"\n[bound]\nhard = "40%"', FORTY, "`bound`, from FILE, is no setting any more. "),
        *(
            (f'ceiling = "limit 40%"\n{name} = "64GiB"', FORTY, removed(name, "FILE"))
            for name in ("parking", "parking_on_open_module", "parking_memory", "parking_disk")
        ),
        ("ceiling = limit 40%", NO_GPU, "FILE cannot be read: TOMLDecodeError"),
        ("\xff", NO_GPU, "FILE cannot be read: UnicodeDecodeError"),
        (None, NO_GPU, "FILE cannot be read: IsADirectoryError"),
    ],
)
def test_the_file_holds_in_kernels_and_what_is_wrong_in_it_is_told(
    machine: Machine, tmp_path: Path, text: str | None, in_force: str, told: str
) -> None:
    file = tmp_path / "tfgpu_magic.toml"
    if text is None:
        file.mkdir()
    else:
        file.write_text(text, encoding="latin-1")
    found, said = run(machine, _in_force, {}, "TfGpuMagics", file)

    assert found == in_force
    assert told.replace("FILE", str(file)) in said
    assert bool(said) == bool(told)


def test_the_file_holds_in_programs_and_in_what_they_start(machine: Machine, site: Site) -> None:
    site.file.write_text('ceiling = "limit 25%"')
    env = site.environ(machine)
    program = "import tfgpu_magic; print(tfgpu_magic.plan('growth').notes)"
    for command in ([sys.executable, "-c", program], [*TFGPU, "run", "growth", "--", "-c", program]):
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
        assert "The ceiling here is `limit 25%`" in done.stdout
    high = subprocess.run([*TFGPU, "run", "limit 50%", "--", "-c", ""], env=env, capture_output=True, text=True)

    assert high.returncode
    assert "The most that is allowed" in high.stderr


LISTED, ADDED = (f"c.InteractiveShellApp.{name} = ['tfgpu_magic']" for name in ("extensions", "extra_extensions"))
OWN, FAILS = "c.InteractiveShellApp.extensions = ['autoreload']", "raise OSError('no directory service')"


@pytest.mark.parametrize(
    ("administrators", "users", "arguments", "held"),
    [
        (LISTED, "", [], True),
        (LISTED, OWN, [], False),
        (LISTED, f"{OWN}\n{FAILS}", [], True),
        (ADDED, OWN, [], True),
        (ADDED, FAILS, [], True),
        (f"{ADDED}\n{FAILS}", "", [], False),
        (FAILS, f"{OWN}\n{FAILS}", ["--ext=tfgpu_magic"], True),
    ],
)
def test_what_survives_a_users_list_and_a_file_that_raises(
    machine: Machine, site: Site, administrators: str, users: str, arguments: list[str], held: bool
) -> None:
    """What the page says of each way to load the extension; of two files of IPython's the second is the user's here."""
    site.file.write_text('ceiling = "limit 25%"')
    site.configure(administrators, users)
    manager = KernelManager()
    manager.start_kernel(extra_arguments=arguments, env=site.environ(machine))
    client = manager.blocking_client()
    client.start_channels()
    client.wait_for_ready(timeout=60 * SLACK)
    said = execute(client, "%tf_gpu plan")
    client.stop_channels()
    manager.shutdown_kernel(now=True)

    assert ("The ceiling here is `limit 25%`" in said) == held
    assert ("not found" in said) == (not held)


@dataclass(frozen=True)
class Site:
    """The files of an administrator, whose own this is, and of a user, whose home this is."""

    file: Path
    home: Path

    def configure(self, administrators: str, users: str) -> None:
        """Write IPython's configuration."""
        profile = self.home / ".ipython" / "profile_default"
        profile.mkdir(parents=True)
        for name, text in (("ipython_config", administrators), ("ipython_kernel_config", users)):
            (profile / f"{name}.py").write_text(f"c = get_config()\n{text}\n")

    def environ(self, machine: Machine) -> dict[str, str]:
        """Return the environment of the user's processes, in which the administrator's file is this one."""
        own = {"HOME": str(self.home), "IPYTHONDIR": str(self.home / ".ipython"), "PYTHONPATH": str(self.home)}
        return machine.environ({**os.environ, **QUIET, **own})


@pytest.fixture
def site(tmp_path: Path) -> Site:
    file = tmp_path / "tfgpu_magic.toml"
    code = f"import pathlib\nfrom tfgpu_magic import policy\npolicy.FILE = pathlib.Path({str(file)!r})\n"
    (tmp_path / "sitecustomize.py").write_text(code)
    return Site(file, tmp_path)


def _in_force(given: Any, section: str = "TfGpuMagics", file: Path | None = None) -> tuple[str, str]:
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    from tests.magic.shell import loading
    from tfgpu_magic.frameworks.runtime import RUNTIME

    InteractiveShell.instance(config=Config({section: given}))
    with mock.patch.object(policy, "FILE", file or policy.FILE):
        (loaded, magic) = loading("%tf_gpu plan")
    assert magic.error == "", magic.text
    return str(RUNTIME.ceiling), loaded.text


def _with_an_exception() -> AbstractContextManager[object]:
    from tfgpu_magic.engine import enforcement

    return mock.patch.object(enforcement, "enforce_configured", side_effect=ValueError("today not"))


def _in_force_in_spite_of_an_exception() -> tuple[str, str]:
    with _with_an_exception():
        return _in_force({})


def _use_with_an_exception() -> tuple[str, list[int]]:
    with _with_an_exception():
        (loaded, *_) = configured({}, "import tensorflow")
    touch_every_gpu()
    return loaded.text, held()
