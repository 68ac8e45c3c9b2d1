"""Builds the conda package of an sdist by conda/recipe.yaml with rattler-build, and runs its tests.

The channel is made here, of what the package index installs; conda's own need not be reached. Its python is a virtual
environment of this one, and stands for the oldest that the recipe allows.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import venv
from importlib.metadata import Distribution, distributions
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from rattler_build import FileEntry, Package, Stage0Recipe, assemble_package

RECIPE = Path(__file__).parents[1] / "conda" / "recipe.yaml"
UNKNOWN = "0" * 64
"""The checksum of an sdist that no index has yet."""

PYTHON = "{}.{}.{}".format(*sys.version_info)


def check(sdist: Path, folder: Path) -> Path:
    """Do with an sdist what conda-forge would; return the conda package, whose tests have passed.

    Args:
        sdist: what is packed.
        folder: an empty one.

    Raises:
        rattler_build.RattlerBuildError: the recipe is none, its script fails, or a license is not there.
        SystemExit: a test fails.
    """
    text = RECIPE.read_text().replace(UNKNOWN, hashlib.sha256(sdist.read_bytes()).hexdigest())
    text = re.sub(r"(?m)^  url: .*", f"  url: {sdist.as_uri()}", text)
    text = re.sub(r'python_min: ".*"', f'python_min: "{PYTHON.rpartition(".")[0]}"', text)
    recipe = Stage0Recipe.from_yaml(text)
    (variant,) = recipe.render()
    rendered = variant.recipe.to_dict()
    wanted = [*rendered["requirements"]["host"], *rendered["requirements"]["run"]]
    wanted += [one for test in rendered["tests"] for one in test.get("requirements", {}).get("run", ())]
    _fill(folder, [one.replace(" ", "") for one in wanted if not one.startswith(("python ", "__"))])
    recipe.run_build(output_dir=folder, channels=[folder.as_uri()])
    (path,) = folder.glob("noarch/*.conda")
    for result in Package.from_file(path).run_tests(channel=[folder.as_uri()]):
        if not result.success:
            raise SystemExit("\n".join([*result.output, "conda/recipe.yaml: a test failed."]))
    return path


def _fill(channel: Path, requirements: list[str]) -> None:
    """Fill a channel with what is installed where the package index is asked for some packages."""
    environment = channel / "environment"
    venv.create(environment, symlinks=True)
    files = [path for path in environment.rglob("*") if not path.is_dir()]
    _pack(channel, "python", PYTHON, files)
    python = str(environment / "bin" / "python")
    subprocess.run(
        [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", python, *requirements], check=True
    )
    for script in environment.glob("bin/*"):
        if not script.is_symlink():
            script.write_bytes(re.sub(rb"^#!\S+/bin/python\S*", b"#!/usr/bin/env python", script.read_bytes()))
    (site,) = environment.glob("lib/python*/site-packages")
    for one in distributions(path=[str(site)]):
        paths = [Path(os.path.normpath(str(one.locate_file(file)))) for file in one.files or ()]
        _pack(channel, canonicalize_name(one.name), one.version, paths, _needs(one))


def _needs(distribution: Distribution) -> list[str]:
    asked = [Requirement(line) for line in distribution.requires or ()]
    here = [one for one in asked if not one.marker or one.marker.evaluate({"extra": ""})]
    return ["python", *(f"{canonicalize_name(one.name)} {one.specifier}".strip() for one in here)]


def _pack(channel: Path, name: str, version: str, files: list[Path], needs: list[str] | None = None) -> None:
    entries = [FileEntry.from_paths(path, path.relative_to(channel / "environment")) for path in files]
    assemble_package(name, version, "linux-64", "0", channel / "linux-64", files=entries, depends=needs or [])


if __name__ == "__main__":
    print(check(Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()))
