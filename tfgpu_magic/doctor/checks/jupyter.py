"""Whether Jupyter Server loads this package, and JupyterLab the panel, by the configuration of this environment."""

from __future__ import annotations

from collections.abc import Iterator

from tfgpu_magic._version import __version__
from tfgpu_magic.doctor import child
from tfgpu_magic.doctor.finding import Finding, Outcome, Severity
from tfgpu_magic.doctor.installed import version_of
from tfgpu_magic.doctor.machine import Machine

_REINSTALL = "Install the package anew, and start the server again:\n  pip install --force-reinstall tfgpu-magic"

NO_SERVER = Outcome(
    "no-server",
    Severity.NOTE,
    "Jupyter Server is not installed in this environment.",
    "The panel needs tfgpu-magic in the environment of the Jupyter server. There, ask again:\n  tfgpu doctor",
)
SERVER = Outcome("server", Severity.GOOD, "Jupyter Server {version} loads the server extension.")
SERVER_OFF = Outcome(
    "server-off",
    Severity.WARNING,
    "Jupyter Server {version} does not load the server extension: the panel has no figures.",
    "Enable it, and start the server again:\n  jupyter server extension enable tfgpu_magic.server",
)
SERVER_FAILS = Outcome(
    "server-fails", Severity.FAULT, "Jupyter Server {version} cannot load the server extension: {why}", _REINSTALL
)
NO_LAB = Outcome("no-lab", Severity.NOTE, "Neither JupyterLab nor Notebook is installed in this environment.")
LAB = Outcome("lab", Severity.GOOD, "The panel is in {page}.")
LAB_OFF = Outcome(
    "lab-off",
    Severity.WARNING,
    "The panel is in {page}, and is disabled.",
    "Enable it, and load the page anew:\n  jupyter labextension enable tfgpu-magic",
)
LAB_MISSING = Outcome("lab-missing", Severity.WARNING, "No panel is in {page}.", _REINSTALL)
LAB_DIFFERS = Outcome(
    "lab-differs",
    Severity.WARNING,
    "The panel in {page} is of version {panel}, and the package of {version}.",
    f"{_REINSTALL}\nThen load the page anew.",
)
LATE = Outcome("late", Severity.WARNING, "Jupyter's configuration was not read within {seconds} s.")

_CODE = "from tfgpu_magic.server.enabled import main; main()"


def check(machine: Machine) -> Iterator[Finding]:  # noqa: ARG001  # this environment is asked
    """Tell what is enabled."""
    version = version_of("jupyter_server")
    if version is None:
        yield NO_SERVER()
        return
    answer = child.ask(_CODE, patience=child.IMPORTING)
    facts = answer.facts
    if answer.late:
        yield LATE(seconds=answer.seconds)
    elif not facts:
        yield SERVER_FAILS(version=version, why=answer.why)
    elif facts["server"]["why"]:
        yield SERVER_FAILS(version=version, why=facts["server"]["why"])
    else:
        yield (SERVER if facts["server"]["enabled"] else SERVER_OFF)(version=version)
    if facts:
        yield _panel(**facts["panel"])


def _panel(*, version: str | None, disabled: bool) -> Finding:
    names = {"JupyterLab": version_of("jupyterlab"), "Notebook": version_of("notebook")}
    pages = [f"{name} {installed}" for name, installed in names.items() if installed]
    if not pages:
        return NO_LAB()
    page = " and ".join(pages)
    if version is None:
        return LAB_MISSING(page=page)
    if disabled:
        return LAB_OFF(page=page)
    return LAB(page=page) if version == __version__ else LAB_DIFFERS(page=page, panel=version, version=__version__)
