"""What the pages have administrators write: each file is read, and each figure is the planner's."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from IPython.core.shellapp import InteractiveShellApp
from traitlets.config import Config

from tests.policy.test_plan import snapshot
from tests.policy.test_promises import asks, gpu, planned, promised
from tests.sizes import GIB
from tfgpu_magic import policy
from tfgpu_magic.policy import parser, settings
from tfgpu_magic.policy.ceiling import read
from tfgpu_magic.policy.settings import Settings
from tfgpu_magic.server.extension import TfGpuServer

_TOLD = ("administrators", "ceilings", "settings", "http", "parking")
*_PAGES, FAQ = ((Path(__file__).parents[2] / "docs" / f"{name}.md").read_text() for name in (*_TOLD, "faq"))
PAGE = "".join(_PAGES)
FITS = re.findall(r"^\| `(pick; limit \d+%)` \| ([\d.]+) GiB \| (\d+) \| (\d+) \|$", PAGE, re.MULTILINE)
CEILING = {policy.CEILING: "limit 40%"}
_OWNERS: dict[str, Any] = {
    "TfGpuMagics": settings.TfGpuSettings,
    "TfGpuServer": TfGpuServer,
    "InteractiveShellApp": InteractiveShellApp,
}
"""What the page configures of what reads it in this process."""


def _blocks(language: str, page: str = PAGE) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("block", _blocks("toml"))
def test_every_file_of_the_page_sets_what_it_says(block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy, "FILE", tmp_path / "tfgpu_magic.toml")
    policy.FILE.write_text(block)
    found = settings.of_file()

    assert (found.flaws, found.unread) == ((), "")
    _check(found)


def test_every_setting_of_the_page_is_one() -> None:
    named = {(owner, name) for owner, name in re.findall(r"\bc\.(\w+)\.(\w+)", PAGE) if owner in _OWNERS}

    assert len(FITS) == 3
    assert {owner for owner, _ in named} == _OWNERS.keys()
    assert [(owner, name) for owner, name in named if name not in _OWNERS[owner].class_traits(config=True)] == []


def test_the_configurations_of_the_page_say_what_it_says_also_to_a_hub() -> None:
    names: dict[str, Any] = {"c": Config()}
    for block in [*_blocks("python"), *_blocks("python", FAQ)]:
        exec(block, names)
    given: Any = names["c"]
    spawners = [SimpleNamespace(environment={}, user=SimpleNamespace(admin=admin)) for admin in (True, False)]
    for spawner in spawners:
        given.Spawner.pre_spawn_hook(spawner)
    kept = re.findall(r"req_keepvars_extra = \"(.*?)\"", PAGE)

    _check(settings.of_configuration(given))
    assert given.InteractiveShellApp.extensions == given.InteractiveShellApp.extra_extensions == ["tfgpu_magic"]
    assert kept == [",".join(_understood(given.Spawner.environment))]
    assert [_understood(spawner.environment) for spawner in spawners] == [{policy.CEILING: "limit 90%"}, CEILING]


def test_systemd_and_environment_modules_set_what_can_be_read() -> None:
    (unit,) = _blocks("ini")
    (line,) = re.findall(r"^Environment=(.*)$", unit, re.MULTILINE)
    words = shlex.split(line.replace("%%", "\0"))  # as systemd.exec(5) and systemd.unit(5) have it
    modules = re.findall(r'setenv[ (]"?(\w+)"?,? "(.*?)"', PAGE)

    assert "%" not in "".join(words)
    given = dict(word.replace("\0", "%").split("=") for word in words)
    assert _understood(given).keys() == {policy.POLICY, policy.CEILING}
    assert modules == [*CEILING.items()] * 2


def _understood(environment: dict[str, str]) -> dict[str, str]:
    """Return variables that are all ours, and whose words can be read."""
    assert environment.keys() <= {policy.POLICY, policy.CEILING}
    assert policy.POLICY not in environment or parser.parse(environment[policy.POLICY])
    assert read(environment[policy.CEILING])
    return environment


def _check(found: Settings) -> None:
    assert found.flaws == ()
    for words in [found.values.get("policy", ""), *found.values.get("policies", {}).values()]:
        assert not words or parser.parse(words)
    for words in [found.values.get("ceiling", ""), *found.values.get("ceilings", {}).values()]:
        assert not words or read(words)


@pytest.mark.parametrize(("words", "takes", "on_one", "on_four"), FITS)
def test_as_many_kernels_of_a_class_fit_as_the_page_says(words: str, takes: str, on_one: str, on_four: str) -> None:
    machine = snapshot(gpu())
    kernels = 0
    while not promised(planned(words, machine, *(asks(pid, float(takes)) for pid in range(1, kernels + 1)))):
        kernels += 1
    (device,) = planned(words, machine).devices

    assert [round(size / GIB, 1) for size in device.limits] == [float(takes)]
    assert (kernels, 4 * kernels) == (int(on_one), int(on_four))


@pytest.mark.parametrize(
    ("shards", "gpus", "ceiling"),
    [("1", "0", "limit 25%"), ("4", "2", "limit 100%"), ("8", "0,1", "limit 100%"), ("5", "0,1,2,3", "limit 31%")],
)
def test_slurms_prolog_shares_the_shards_out_over_the_gpus(shards: str, gpus: str, ceiling: str) -> None:
    (script,) = _blocks("sh")

    done = subprocess.run(
        ["sh", "-c", script],
        env={"SLURM_SHARDS_ON_NODE": shards, "CUDA_VISIBLE_DEVICES": gpus},
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout == f"export TFGPU_CEILING={ceiling}\n"
