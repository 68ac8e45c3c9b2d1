"""What people expect of a project: forms that can be filled in, and files that say what is true today."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import tfgpu_magic

ROOT = Path(__file__).parents[2]
FORMS = ROOT / ".github" / "ISSUE_TEMPLATE"


def check(schema: str, *paths: Path) -> subprocess.CompletedProcess[str]:
    """Check files against a schema that check-jsonschema brings: no network is asked."""
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}", *map(str, paths)]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("schema", "paths"),
    [
        ("github-issue-forms", [FORMS / "bug.yml", FORMS / "idea.yml"]),
        ("github-issue-config", [FORMS / "config.yml"]),
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
