"""The recipes of docs/administrators.md do what the page says, as far as a shell can tell."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "administrators.md").read_text()


@pytest.mark.parametrize(
    ("shards", "gpus", "ceiling"),
    [("1", "0", "limit 25%"), ("4", "2", "limit 100%"), ("8", "0,1", "limit 100%"), ("5", "0,1,2,3", "limit 31%")],
)
def test_slurms_prolog_shares_the_shards_out_over_the_gpus(shards: str, gpus: str, ceiling: str) -> None:
    (script,) = re.findall(r"```sh\n(#!/bin/sh\n.*?)```", PAGE, re.DOTALL)

    done = subprocess.run(
        ["sh", "-c", script],
        env={"SLURM_SHARDS_ON_NODE": shards, "CUDA_VISIBLE_DEVICES": gpus},
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout == f"export TFGPU_CEILING={ceiling}\n"
