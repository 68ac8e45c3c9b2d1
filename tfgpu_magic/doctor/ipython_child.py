"""In a process of its own: what IPython's configuration and the administrator's file say, and what loading makes of it.

The configuration is code, and is run to be read. The files and their order are those of IPython's kernel with its
default profile; no profile is made. Source: IPython, `BaseIPythonApplication.load_config_file` and `init_config_files`.
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

from IPython.core.application import ENV_CONFIG_DIRS, SYSTEM_CONFIG_DIRS
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config.loader import (
    Config,
    ConfigFileNotFound,
    JSONFileConfigLoader,
    LazyConfigValue,
    PyFileConfigLoader,
)

from tfgpu_magic.frameworks.runtime import RUNTIME
from tfgpu_magic.notebook import loading
from tfgpu_magic.policy import CEILING
from tfgpu_magic.policy.settings import SECTION, of_configuration, of_file, policy_for_user

_NAMES = ("ipython_config", "ipython_kernel_config")


def main() -> None:
    """Print what is set, what is wrong with it, what a kernel is held to, and whether kernels load the magics."""
    ours: list[str] = []
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
            if any(section.lower().startswith(SECTION.lower()[:5]) for section in config):
                ours.append(loader.full_filename)
    given, file = of_configuration(merged, f"the configuration ({' and '.join(ours)})"), of_file()
    words, where = policy_for_user(given, file)
    sources = [f"${CEILING}"] if os.environ.get(CEILING, "").strip() else []  # loading sets it, for programs
    sources += [one.where for one in (given, file) if one.unread or any(text for text, _ in one.ceilings)]
    answer = {
        "broken": broken,
        "loaded": "tfgpu_magic" in _extensions(merged),
        "wrong": [*file.flaws, *given.flaws],
        "policy": (words.strip(), where),
        "ceiling": None,
    }
    _load(merged)
    if held := RUNTIME.ceiling:
        answer["ceiling"] = {"ceiling": str(held), "where": " and ".join(sources), "flaws": [*map(str, held.flaws)]}
    print(json.dumps(answer))


def _load(config: Config) -> None:
    """Load the extension in a shell with this configuration, as a kernel does."""
    config.HistoryManager.enabled = False
    with tempfile.TemporaryDirectory() as folder:  # so that neither a profile nor a report is made
        os.environ |= {"IPYTHONDIR": folder, "TFGPU_MAGIC_DIR": f"{folder}/board"}
        shell = InteractiveShell.instance(config=config)
        loading.attach(shell)
        loading.unload_ipython_extension(shell)


def _folders() -> list[str]:
    """Return where the files are, the last of which has the last word."""
    own = Path(os.environ.get("IPYTHONDIR") or "~/.ipython").expanduser()  # IPython's function for it makes it
    profile = str(own / "profile_default")
    return [folder for folder in (*SYSTEM_CONFIG_DIRS[::-1], *ENV_CONFIG_DIRS[::-1], profile) if Path(folder).is_dir()]


def _extensions(config: Config) -> list[str]:
    """Return what a kernel loads: a list, and one that is added to it."""
    app = config.get("InteractiveShellApp", {})
    found: list[str] = []
    for name in ("extensions", "extra_extensions"):
        given = app.get(name, [])
        found += given.get_value([]) if isinstance(given, LazyConfigValue) else given
    return found
