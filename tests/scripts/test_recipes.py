"""What docs/administrators.md has administrators write: each file is read, and each figure is the planner's."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.config.test_plan import snapshot
from tests.config.test_promises import asks, gpu, planned, promised
from tests.sizes import GIB
from tfgpu_magic.config import parser, settings, variables
from tfgpu_magic.config.ceiling import read
from tfgpu_magic.config.settings import Settings

PAGE = (Path(__file__).parents[2] / "docs" / "administrators.md").read_text()
FITS = re.findall(r"^\| `(pick; limit \d+%)` \| ([\d.]+) GiB \| (\d+) \| (\d+) \|$", PAGE, re.MULTILINE)


def _blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("block", _blocks("toml"))
def test_every_file_of_the_page_sets_what_it_says(block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(variables, "FILE", tmp_path / "tfgpu_magic.toml")
    variables.FILE.write_text(block)
    found = settings.of_file()

    assert (found.flaws, found.unread) == ((), "")
    _check(found)


def test_every_setting_of_the_page_is_one() -> None:
    lines = "\n".join(line for block in _blocks("python") for line in block.splitlines() if "c.TfGpuMagics." in line)
    given = {name: eval(value) for name, value in re.findall(r"c\.TfGpuMagics\.(\w+) = (.+)", lines)}
    listed = set(re.findall(r"^\| `c\.TfGpuMagics\.(\w+)` \|", PAGE, re.MULTILINE))

    assert (bool(given), len(FITS)) == (True, 3)
    assert listed == set(settings.TfGpuSettings.class_own_traits(config=True))
    _check(settings.of_configuration({"TfGpuMagics": given}))


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
