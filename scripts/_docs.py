"""Builds docs/, and checks spelling and every link: what scripts/docs does."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

from sphinx.cmd.build import main as sphinx

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "docs"
BUILT = ROOT / "build" / "docs"
READ = (PAGES, *ROOT.glob("*.md"), ROOT / ".github", ROOT / "tfgpu_magic")
"""What people read: pages, and what the package says."""


def main() -> int:
    """Build the pages, and ask the servers that they link to; return the exit status."""
    parser = argparse.ArgumentParser("scripts/docs", description=__doc__)
    parser.add_argument("--offline", action="store_true", help="leave the links to other servers alone")
    options = parser.parse_args()
    if status := spell() or build(PAGES, BUILT):
        return status
    print(f"Built: {BUILT.relative_to(ROOT)}/html/index.html")
    return 0 if options.offline else check_links(PAGES, BUILT)


def spell(*paths: Path) -> int:
    """Look for words that are often misspelt so, but for those that pyproject.toml lists.

    Args:
        paths: files and folders; without any, all that people read.

    Returns:
        codespell's exit status.
    """
    return subprocess.run(
        [sys.executable, "-m", "codespell_lib", "--skip", "labextension,static,*.png,*.pyc", *(paths or READ)],
        cwd=ROOT,
        check=False,
    ).returncode


def build(pages: Path, built: Path) -> int:
    """Build pages as HTML, all of them anew; a warning, such as a link to nothing, is an error.

    Args:
        pages: the folder with the pages and their `conf.py`.
        built: the folder for what is built.

    Returns:
        Sphinx's exit status.
    """
    return _sphinx("html", pages, built, "--fresh-env", "--quiet", "--fail-on-warning", "--nitpicky")


def check_links(pages: Path, built: Path) -> int:
    """Ask for every address on other servers that pages link to.

    Returns:
        1 where a server says that there is no such page; a server that cannot be reached is only named.
    """
    _sphinx("linkcheck", pages, built, "--silent")
    found = [json.loads(line) for line in (built / "linkcheck" / "output.json").read_text().splitlines()]
    bad = [link for link in found if link["status"] in ("broken", "timeout")]
    lost = [link for link in bad if link["status"] == "broken" and "ConnectionPool(" not in link["info"]]  # answered
    for link in lost:
        print(f"{pages.name}/{link['filename']}, line {link['lineno']}: {link['uri']}: {link['info']}", file=sys.stderr)
    if unreached := sorted({link["uri"] for link in bad} - {link["uri"] for link in lost}):
        print(f"Not checked, because their servers cannot be reached from here: {', '.join(unreached)}")
    return bool(lost)


def _sphinx(builder: str, pages: Path, built: Path, *options: str) -> int:
    return sphinx(["-M", builder, str(pages), str(built), *options])


if __name__ == "__main__":
    sys.exit(main())
