"""In a process of its own: whether Jupyter Server loads this package, and pages its panel, by their configuration."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

from jupyter_core.paths import jupyter_config_path, jupyter_path
from jupyter_server.config_manager import BaseJSONConfigManager, recursive_update
from jupyter_server.extension.config import ExtensionConfigManager

_SERVER, _PANEL = "tfgpu_magic.server", "tfgpu-magic"


def main() -> None:
    """Print what is enabled, and why the server extension cannot be loaded, where that is so."""
    manager = ExtensionConfigManager(read_config_path=jupyter_config_path())
    enabled = bool(manager.enabled(_SERVER))  # type: ignore[no-untyped-call]  # Jupyter's
    print(json.dumps({"server": {"enabled": enabled, "why": _trouble()}, "panel": _panel()}))


def _trouble() -> str:
    """Return why the server extension cannot be loaded; an empty text where it can."""
    try:
        importlib.import_module(f"{_SERVER}.extension")
    except Exception as error:  # whatever is wrong with it, the server meets it too
        return f"{type(error).__name__}: {error}"
    return ""


def _panel() -> dict[str, Any]:
    """Return the version of the panel that pages load, which is the first that is found, and whether it is disabled."""
    packages = [Path(folder) / _PANEL / "package.json" for folder in jupyter_path("labextensions")]
    found = next((package for package in packages if package.is_file()), None)
    version = None if found is None else str(json.loads(found.read_text(encoding="utf-8")).get("version"))
    settings: dict[str, Any] = {}
    for folder in reversed(jupyter_config_path()):
        recursive_update(settings, BaseJSONConfigManager(config_dir=str(Path(folder) / "labconfig")).get("page_config"))
    off = settings.get("disabledExtensions", {})  # names with whether they are disabled, or once a list of names
    return {"version": version, "disabled": bool(off.get(_PANEL)) if isinstance(off, dict) else _PANEL in off}
