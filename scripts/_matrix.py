"""Runs tests in the environments that are promised, and writes down what was seen: what scripts/matrix does.

``tests/matrix.toml`` keeps the last run of each, with the versions and the day; docs/install.md shows it.
"""

from __future__ import annotations

import argparse
import datetime as dt
import importlib
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

ROOT = Path(__file__).parents[1]
SEEN = ROOT / "tests" / "matrix.toml"
SHOWN = (
    "tensorflow", "torch", "jax", "ipython", "ipykernel", "jupyterlab", "notebook", "ipywidgets", "anywidget",
)  # fmt: skip
"""The packages whose versions are written down."""


@dataclass(frozen=True)
class Environment:
    """What is run, and where it is installed."""

    what: str
    folder: str
    command: tuple[str, ...]
    variables: dict[str, str] = field(default_factory=dict)


_SHOWS = ("tests/views/test_widget.py", "tests/browser/test_panel.py")
"""The tests of TensorFlow in kernels, and of the table and the panel that show it."""


def _python(version: str, what: str = "what a version of Python may change") -> Environment:
    return Environment(what, f".venv-{version}", ("scripts/pythons",), {"PYTHONS": version})


def _torch(version: str, which: str) -> Environment:
    what = f"the {which} PyTorch in its build for CUDA, on simulated GPUs"
    return Environment(what, f".venv-torch-{version}", ("scripts/torch", version))


JAX = "0.12.0.1"
"""The newest, as is PyTorch's below: a commit brings in the next."""

ENVIRONMENTS = {
    "python-3.10": _python("3.10"),
    "python-3.12": _python("3.12"),
    "python-3.13": _python("3.13"),
    "python-3.14": _python("3.14"),
    "oldest": Environment(
        "the oldest TensorFlow, JupyterLab and IPython, in a kernel and in a browser",
        ".venv-oldest",
        ("scripts/oldest", "-q", *_SHOWS, "tests/simgpu/test_tensorflow.py"),
    ),
    "frameworks": Environment("JAX on a simulated GPU, and PyTorch", ".venv-frameworks", ("scripts/frameworks",)),
    "jax": Environment("the newest JAX, on a simulated GPU", f".venv-jax-{JAX}", ("scripts/jax", JAX)),
    "torch-oldest": _torch("2.6.0", "oldest"),
    "torch": _torch("2.15.0", "newest"),
    "newest": Environment(
        "the newest TensorFlow and JupyterLab, in a kernel and in a browser",
        ".venv",
        ("scripts/test", "-q", *_SHOWS),
    ),
}


def main() -> int:
    """Run what is named, or all; return the worst exit status."""
    parser = argparse.ArgumentParser("scripts/matrix", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(ENVIRONMENTS)}; without any, all")
    names = parser.parse_args().names or list(ENVIRONMENTS)
    status = 0
    for name in names:
        environment = ENVIRONMENTS[name]
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder, "report.xml")
            variables = {**os.environ, **environment.variables, "PYTEST_ADDOPTS": f"--junitxml={report}"}
            done = subprocess.run(environment.command, cwd=ROOT, env=variables, check=False)
            status = max(status, done.returncode)
            if done.returncode not in (0, 1) or not report.exists():  # pytest's for all passed, and for some failed
                print(f"scripts/matrix: {name} was not run to its end, and so is not written down", file=sys.stderr)
                continue
            run: dict[str, Any] = {"date": str(dt.datetime.now(dt.timezone.utc).date())}
            run |= _versions(ROOT / environment.folder / "bin" / "python") | _counts(report)
        SEEN.write_text(written(read() | {name: run}))  # read now: another may have run beside this one
    return status


def read(file: Path = SEEN) -> dict[str, dict[str, Any]]:
    """Return the last run of each environment."""
    toml = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    found: dict[str, dict[str, Any]] = toml.loads(file.read_text()) if file.exists() else {}
    return found


def written(seen: dict[str, dict[str, Any]]) -> str:
    """Return runs as TOML, in the order of the environments."""
    lines = ["# Written by scripts/matrix: the last run of each environment."]
    for name in ENVIRONMENTS:
        if name in seen:
            lines += ["", f'["{name}"]', *(f"{key} = {json.dumps(value)}" for key, value in seen[name].items())]
    return "\n".join([*lines, ""])


def _versions(python: Path) -> dict[str, str]:
    code = (
        "import json, platform, sys; from importlib import metadata as m; names = {d.metadata['Name'].lower() for d in "
        "m.distributions()}; print(json.dumps({'python': platform.python_version()} | "
        "{n: m.version(n) for n in sys.argv[1:] if n in names}))"
    )
    done = subprocess.run([python, "-c", code, *SHOWN], check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, str] = json.loads(done.stdout)
    return found


def _counts(report: Path) -> dict[str, int]:
    (suite,) = ET.parse(report).getroot().iter("testsuite")  # pytest's own
    run, bad, skipped = (int(suite.get(name, 0)) for name in ("tests", "failures", "skipped"))
    bad += int(suite.get("errors", 0))
    return {"passed": run - bad - skipped, "failed": bad, "skipped": skipped}


if __name__ == "__main__":
    sys.exit(main())
