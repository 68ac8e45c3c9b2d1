"""What is in the wheel, and why: each file is of one kind, and each kind has a reason."""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase

KINDS = {
    "tfgpu_magic/*.py": "the package",
    "tfgpu_magic/py.typed": "tells type checkers that the package has types",
    "tfgpu_magic/simgpu/src/*.[ch]": "the simulated machine, which is compiled where no archive of it fits",
    "tfgpu_magic/simgpu/prebuilt-*.tar.xz": "the same, compiled: `tfgpu demo` needs no compiler",
    "tfgpu_magic/simgpu/demo/tour.ipynb": "what `tfgpu demo --lab` opens",
    "tfgpu_magic/notebook/static/widget.*": "the live table in a notebook",
    "share/jupyter/labextensions/tfgpu-magic/package.json": "tells JupyterLab of the panel",
    "share/jupyter/labextensions/tfgpu-magic/install.json": "tells JupyterLab which package the panel comes with",
    "share/jupyter/labextensions/tfgpu-magic/static/*.js": "the panel",
    "share/jupyter/labextensions/tfgpu-magic/static/*-licenses.json": "the licenses that JupyterLab's Help shows",
    "share/jupyter/labextensions/tfgpu-magic/schemas/*.json": "the panel's settings, buttons and menus",
    "share/tfgpu_magic/*.socket": "the exporter's port, which systemd keeps",
    "share/tfgpu_magic/*.service": "units for systemd: what a machine of many users runs once",
    "share/tfgpu_magic/dashboard.json": "a dashboard for Grafana: who holds the GPUs, and how long without use",
    "share/tfgpu_magic/rules.yml": "alerts and recording rules for Prometheus",
    "etc/jupyter/jupyter_server_config.d/*.json": "enables the server extension",
    "tfgpu_magic.dist-info/licenses/*": "the licenses of the package and of what is bundled with the panel",
    "tfgpu_magic.dist-info/[!l]*": "what pip and Python know about the package, such as the command `tfgpu`",
}
"""The reason for each kind of file: a pattern of paths, as they are when the wheel is installed."""


def kinds_of(path: str) -> list[str]:
    """Return the kinds that a file of the wheel is of: one, if all is well.

    Args:
        path: as the wheel has it, with the version in the names of its folders.
    """
    installed = re.sub(r"^tfgpu_magic-[^/]*\.data/data/", "", path)
    installed = re.sub(r"^tfgpu_magic-[^/]*\.dist-info/", "tfgpu_magic.dist-info/", installed)
    return [kind for kind in KINDS if fnmatchcase(installed, kind)]


def unexplained(paths: Iterable[str]) -> list[str]:
    """Return the files of a wheel that are not of exactly one kind, and the kinds of which it has none."""
    found = {path: kinds_of(path) for path in paths}
    used = {kind for kinds in found.values() for kind in kinds}
    return [*(path for path, kinds in found.items() if len(kinds) != 1), *(kind for kind in KINDS if kind not in used)]
