"""In a process of its own: what IPython's configuration says of the magics. It is code, and is run to be read.

The files and their order are those of IPython's kernel with its default profile; no profile is made.
Source: IPython, `BaseIPythonApplication.load_config_file` and `init_config_files`.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from IPython.core.application import ENV_CONFIG_DIRS, SYSTEM_CONFIG_DIRS
from traitlets.config.loader import (
    Config,
    ConfigFileNotFound,
    JSONFileConfigLoader,
    LazyConfigValue,
    PyFileConfigLoader,
)

_NAMES = ("ipython_config", "ipython_kernel_config")
_SETTINGS = ("policy", "policies", "ceiling")


def main() -> None:
    """Print the settings, each with the file that sets it; which files fail; and whether kernels load the magics."""
    settings: dict[str, dict[str, Any]] = {}
    broken: dict[str, str] = {}
    merged = Config()
    for folder, name in ((folder, name) for name in _NAMES for folder in _folders()):
        for loader in (PyFileConfigLoader(f"{name}.py", folder), JSONFileConfigLoader(f"{name}.json", folder)):
            try:
                config = loader.load_config()
            except ConfigFileNotFound:
                continue
            except BaseException as error:  # it is the user's code
                broken[loader.full_filename] = f"{type(error).__name__}: {error}".partition("\n")[0]
                continue
            merged.merge(config)
            for setting in _SETTINGS:
                if setting in config.get("TfGpuMagics", {}):
                    settings[setting] = {"value": config.TfGpuMagics[setting], "file": loader.full_filename}
    print(json.dumps({"settings": settings, "broken": broken, "loaded": "tfgpu_magic" in _extensions(merged)}))


def _folders() -> list[str]:
    """Return where the files are, the last of which has the last word."""
    own = Path(os.environ.get("IPYTHONDIR") or "~/.ipython").expanduser()  # IPython's function for it makes it
    profile = str(own / "profile_default")
    return [folder for folder in (*SYSTEM_CONFIG_DIRS[::-1], *ENV_CONFIG_DIRS[::-1], profile) if Path(folder).is_dir()]


def _extensions(config: Config) -> list[str]:
    found: Any = config.get("InteractiveShellApp", {}).get("extensions", [])
    return list(found.get_value([]) if isinstance(found, LazyConfigValue) else found)
