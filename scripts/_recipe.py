"""Checks conda/recipe.yaml on an sdist: its script and its tests are run in an environment where no index is asked.

rattler-build renders it, for which a misspelt key is an error. Building the conda package needs conda's channels.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

from rattler_build import Stage0Recipe

RECIPE = Path(__file__).parents[1] / "conda" / "recipe.yaml"
UNKNOWN = "0" * 64
"""The checksum of an sdist that no index has yet."""


def check(sdist: Path, folder: Path) -> None:
    """Do with an sdist what conda-forge would.

    Args:
        sdist: what is packed.
        folder: an empty one, for the sources and the environment.

    Raises:
        rattler_build.RattlerBuildError: the recipe is none.
        SystemExit: the script or a test fails.
    """
    recipe = rendered(sdist)
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    sources = folder / sdist.name.removesuffix(".tar.gz")
    environment = folder / "environment"
    _run("the environment", [sys.executable, "-m", "venv", str(environment)], folder)
    wanted = [*recipe["requirements"]["host"], *recipe["requirements"]["run"]]
    wanted += [one for test in recipe["tests"] for one in test.get("requirements", {}).get("run", ())]
    packages = [one.replace(" ", "") for one in wanted if not one.startswith(("python ", "__"))]
    python = str(environment / "bin" / "python")
    _run("what it requires", [sys.executable, "-m", "uv", "pip", "install", "--python", python, *packages], folder)
    script = recipe["build"]["script"].replace("${{ PYTHON }}", python)
    _run("its script", ["sh", "-ec", script], sources, PIP_NO_INDEX="1", PATH=os.defpath)
    imports = [name for test in recipe["tests"] for name in test.get("python", {}).get("imports", ())]
    path = f"{environment / 'bin'}{os.pathsep}{os.defpath}"
    _run("its imports", [python, "-c", f"import {', '.join(imports)}"], folder, PATH=path)
    _run("pip check", [python, "-m", "pip", "check"], folder, PATH=path)
    for test in recipe["tests"]:
        for line in test.get("script", ()):
            _run("its test", ["sh", "-ec", line], folder, PATH=path)
    if missing := [name for name in recipe["about"]["license_file"] if not (sources / name).exists()]:
        raise SystemExit(f"The sdist has no {', '.join(missing)}, which the recipe names as licenses.")


def rendered(sdist: Path) -> dict[str, Any]:
    """Return the recipe as rattler-build has it, with the sdist's checksum."""
    text = RECIPE.read_text().replace(UNKNOWN, hashlib.sha256(sdist.read_bytes()).hexdigest())
    (variant,) = Stage0Recipe.from_yaml(text).render()
    recipe: dict[str, Any] = variant.recipe.to_dict()
    return recipe


def _run(what: str, command: list[str], folder: Path, **variables: str) -> None:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "JUPYTER"))}
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    done = subprocess.run(command, cwd=folder, env=kept | variables, check=False, **pipes)
    if done.returncode:
        raise SystemExit(f"{done.stdout}\nconda/recipe.yaml: {what} failed: {command}")


if __name__ == "__main__":
    check(Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve())
