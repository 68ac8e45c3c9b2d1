"""What people expect of a project: forms that can be filled in, and files that say what is true today."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

import tfgpu_magic
from scripts import _frontend, _release
from scripts._contents import unexplained

ROOT = Path(__file__).parents[2]
FORMS = ROOT / ".github" / "ISSUE_TEMPLATE"
WORKFLOWS = ROOT / ".github" / "workflows"


def check(schema: str, *paths: Path) -> subprocess.CompletedProcess[str]:
    """Check files against a schema that check-jsonschema brings: no network is asked."""
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}", *map(str, paths)]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("schema", "paths"),
    [
        ("github-issue-forms", [FORMS / "bug.yml", FORMS / "idea.yml"]),
        ("github-issue-config", [FORMS / "config.yml"]),
        ("github-workflows", [WORKFLOWS / "ci.yml", WORKFLOWS / "release.yml"]),
        ("citation-file-format", [ROOT / "CITATION.cff"]),
    ],
)
def test_a_file_is_as_its_schema_has_it(schema: str, paths: list[Path], tmp_path: Path) -> None:
    done = check(schema, *paths)
    (tmp_path / "wrong.yml").write_text("nothing: of the kind")
    wrong = check(schema, tmp_path / "wrong.yml")

    assert done.returncode == 0, done.stdout
    assert wrong.returncode == 1


def test_a_report_asks_for_what_the_doctor_says() -> None:
    form = (FORMS / "bug.yml").read_text()

    assert "`tfgpu doctor --json`" in form
    assert set(re.findall(r"\.\./blob/HEAD/([\w./]+)", form)) == {"docs/troubleshooting.md", "SECURITY.md"}


def test_the_citation_has_this_version_and_names_nothing_that_is_not_there() -> None:
    citation = (ROOT / "CITATION.cff").read_text()

    assert f"version: {tfgpu_magic.__version__}\n" in citation
    assert [name for name in ("doi:", "url:", "repository", "email:", "orcid:") if name in citation] == []


def test_a_release_has_one_version_everywhere_which_one_command_writes(tmp_path: Path) -> None:
    version = tfgpu_magic.__version__
    for name in _release._VERSIONS:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text((ROOT / name).read_text())

    assert _release.disagreements(tmp_path) == []
    _release.set_version(tmp_path, version)
    assert _release.disagreements(tmp_path, f"v{version}") == []
    _release.set_version(tmp_path, "0.0.9")
    (tmp_path / "CHANGELOG.md").write_text(f"# Changelog\n\n## Unreleased: {version}\n")
    assert _release.disagreements(tmp_path, "v0.0.8") == [
        *(
            f"{name} has version '0.0.9', and the package {version!r}."
            for name in ("tfgpu_magic/_version.py", "conda/recipe.yaml", "CITATION.cff", "labextension/package.json")
        ),
        f"the tag has version '0.0.8', and the package {version!r}.",
        f"CHANGELOG.md must begin with '## {version} (YEAR-MONTH-DAY)', and has '## Unreleased: {version}'.",
    ]


def test_the_recipe_for_conda_has_what_the_package_needs() -> None:
    recipe = (ROOT / "conda" / "recipe.yaml").read_text()
    project = (ROOT / "pyproject.toml").read_text()
    needed = re.findall(r'^    "([\w-]+)>=([\d.]+)', project.partition("\ndependencies = [")[2].partition("]")[0], re.M)
    _, _, run = recipe.partition("  run:\n")

    assert needed
    assert re.findall(r"^    - ([\w-]+) >=([\d.]+)", run.partition("\ntests:")[0], re.M) == needed
    (oldest,) = re.findall(r'python_min: "(.*)"', recipe)
    assert f'requires-python = ">={oldest}"' in project
    assert re.findall(r"- (tfgpu = .*)", recipe) == ["tfgpu = tfgpu_magic.command.main:main"]
    assert 'tfgpu = "tfgpu_magic.command.main:main"' in project


def test_each_file_that_is_packed_is_of_one_of_the_kinds_that_the_page_lists() -> None:
    """`test_wheel.py` looks into a wheel; here are the files of git, those that are built, and those installed here."""
    listed = subprocess.run(["git", "ls-files", "tfgpu_magic"], cwd=ROOT, check=True, capture_output=True, text=True)
    installed = (str(path).removeprefix("../../../") for path in metadata.files("tfgpu-magic") or ())
    built = (path.relative_to(_frontend.EXTENSION) for path in _frontend.EXTENSION.rglob("*") if path.is_file())
    packed = {
        *listed.stdout.splitlines(),
        *(path for path in installed if path.startswith(("share/", "tfgpu_magic-"))),
        *(f"share/jupyter/labextensions/tfgpu-magic/{path.as_posix()}" for path in built),
        *(f"tfgpu_magic/notebook/static/{path.name}" for path in _frontend.STATIC.iterdir()),
        f"etc/jupyter/jupyter_server_config.d/{_frontend.SERVER_CONFIG.name}",
    }

    assert unexplained(packed) == ["tfgpu_magic/simgpu/prebuilt-*.tar.xz"]  # which `scripts/release` makes


def test_what_is_promised_of_the_simulated_machine_is_what_a_release_checks() -> None:
    assert f"glibc {_release.GLIBC} or later" in (ROOT / "docs" / "install.md").read_text()


def test_a_workflow_runs_what_is_there_and_holds_only_the_rights_that_it_uses() -> None:
    text = {path.name: path.read_text() for path in WORKFLOWS.iterdir()}

    assert {run for one in text.values() for run in re.findall(r"run: (scripts/\w+)", one)} == {
        "scripts/test", "scripts/docs", "scripts/pythons", "scripts/release",
    }  # fmt: skip
    assert [line for one in text.values() for line in re.findall(r"uses: (.*)", one) if "@v" not in line] == []
    assert re.findall(r"\S+: write", text["ci.yml"] + text["release.yml"]) == ["id-token: write"]
    assert "secrets." not in text["ci.yml"] + text["release.yml"]
