"""How Sphinx builds these pages; `scripts/docs` runs it, with every warning an error."""

import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

import tfgpu_magic  # noqa: E402
from scripts._docs_parts import (  # noqa: E402
    alerts,
    commands,
    findings,
    flags,
    http,
    matrix,
    message,
    metrics,
    server_settings,
    settings,
    tree,
    variables,
    wheel,
)

project = "tfgpu_magic"
copyright = "the tfgpu_magic developers"  # noqa: A001  # Sphinx's name
release = tfgpu_magic.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
smartquotes = False  # `--grow` is two hyphens
html_theme = "furo"
html_title = "tfgpu_magic"
html_static_path = [
    "_static",
    "../tfgpu_magic/notebook/static/widget.js",  # the front page draws the live table itself
    "../tfgpu_magic/notebook/static/widget.css",
    "../labextension/tests/page/states.mjs",
]
html_css_files = ["tables.css", "widget.css", "live.css"]
html_js_files = ["reachable.js", "live.js"]

myst_enable_extensions = ["deflist", "substitution"]
myst_heading_anchors = 3
# What the pages show of the package itself, so that it cannot differ from it.
myst_substitutions = {
    "flags": flags(),
    "commands": commands(),
    "alerts": alerts(),
    "findings": findings(),
    "http": http(),
    "metrics": metrics(),
    "server_settings": server_settings(),
    "settings": settings(),
    "variables": variables(),
    "tree": tree(),
    "wheel": wheel(),
    "matrix": matrix(),
    "message": message(),
}

autodoc_typehints = "none"  # the arguments' text says what they are, with units
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
default_role = "code"  # docstrings write `name`, as people read them in an editor
napoleon_use_ivar = True

# What is not public has no place to link to.
_NAMES = "Account|Change|Device|FrameworkPlan|NamedMemory|MonitorError|Policy|Table"
_PRIVATE = rf"tfgpu_magic\.(ground|machine|tell|policy)\..*|collections\..*|{_NAMES}"
nitpick_ignore_regex = [("py:.*", _PRIVATE)]

# A prompt is not copied with what stands behind it.
copybutton_prompt_text = r"In \[\d*\]: | {2,}\.{3,}: |>>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

_MOVED = {"support": "install", "try": "install", "unused": "monitoring", "words": "commands"}
"""Pages that are parts of others now, or have another name: their addresses lead there."""


def setup(app: Any) -> None:
    """Have Sphinx write a page at each address that has moved."""
    app.connect("build-finished", _redirect)


def _redirect(app: Any, error: Exception | None) -> None:
    if error is None and app.builder.name == "html":
        for old, new in _MOVED.items():
            code = f"<script>location.replace('{new}.html' + location.hash)</script>"
            (Path(app.outdir) / f"{old}.html").write_text(f'<!doctype html>{code}<a href="{new}.html">It is here.</a>')
