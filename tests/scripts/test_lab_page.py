"""docs/lab.md: nine commands, each run as root on a machine of its own; `scripts/lab --check` has a real Hub."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from scripts._hub_view import ROOT
from scripts._lab import commands
from scripts._lab_view import started, why_not
from tests.lab.users import root_only
from tests.sizes import GIB
from tfgpu_magic import policy
from tfgpu_magic.lab import admin_file
from tfgpu_magic.lab.idle_policy import Rule, rule_of
from tfgpu_magic.policy import settings
from tfgpu_magic.root.file import parse

HOUR = 3600.0


def test_the_page_has_nine_commands_and_a_file_without_a_mistake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (text,) = re.findall(
        r"tfgpu_magic.toml <<'END'\n(.*?)^END", "".join(commands(short=False)), re.DOTALL | re.MULTILINE
    )
    monkeypatch.setattr(policy, "FILE", tmp_path / "tfgpu_magic.toml")
    policy.FILE.write_text(text)
    found = settings.of_file()

    assert len(commands()) == 9
    assert (found.flaws, found.unread) == ((), "")
    assert rule_of(admin_file.table("idle"), ()) == Rule(notify=HOUR, stop=4 * HOUR)
    assert (rules := parse(text.encode()))
    assert rules.everybody.hard == "50%"


@pytest.mark.nightly
@root_only
@pytest.mark.timeout(1200)
def test_the_commands_of_the_page_bring_about_what_it_says() -> None:
    if why := why_not():
        pytest.skip(why)
    with started("tests.scripts.lab_page", stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        said, _ = process.communicate()
        assert process.returncode == 0, said
    found = json.loads(said.splitlines()[-1])

    assert found == {
        "users": {
            "tfgpu-collector": "tfgpu", "tfgpu-exporter": "tfgpu", "tfgpu-limits": "root", "prometheus": "prometheus",
        },
        "figures": {
            "tfgpu_magic_up": 1,
            'tfgpu_magic_held_bytes{username="ann"}': 3 * GIB,
            'tfgpu_magic_limit_hard_bytes{username="ann"}': 8 * GIB,
            "alerts": len(re.findall("alert: ", (ROOT / "grafana/rules.yml").read_text())),
        },
        "kept": "31d",
        "beyond": False,
        "dashboard": "GPU memory by user",
    }  # fmt: skip
