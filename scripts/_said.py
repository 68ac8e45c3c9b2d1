"""Lists the templates of the package's sentences in labextension/src/lab/templates.ts, for JupyterLab's extractor.

Run it as `python -m scripts._said` when sentences have changed, and commit what it writes; a test compares.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tfgpu_magic.model.said import positional

ROOT = Path(__file__).parents[1]
TEMPLATES = ROOT / "labextension" / "src" / "lab" / "templates.ts"

_MAKES = re.compile(r"model\.said import|def say\(template|= Reason\(")  # in a file that makes sentences
_WIDTH = 120  # of a line, as prettier has it
_HEAD = """\
// The templates of the sentences that server and kernel send: made by scripts/_said.py from the package's own.

import type { Translation } from '../view/format';

export const templates = (trans: Translation): string[] => [
"""


def main() -> None:
    """Write the file."""
    TEMPLATES.write_text(text())


def text() -> str:
    """Return the file."""
    return _HEAD + ",\n".join(map(_call, sorted(set(templates())))) + "\n];\n"


def templates(folder: Path = ROOT / "tfgpu_magic") -> Iterator[str]:
    """Give each template that is in the package, as pages know it.

    Raises:
        SystemExit: a sentence's template is not written where it is made.
    """
    for file in sorted(folder.rglob("*.py")):
        source = file.read_text()
        for node in ast.walk(ast.parse(source)) if _MAKES.search(source) else ():
            match node:
                case (
                    ast.Call(func=ast.Name(id="say"), args=[ast.Constant(value=str(template))])
                    | ast.Call(func=ast.Name(id="Reason"), args=[_, ast.Constant(value=str(template))])
                ):
                    yield positional(template)[0]
                case ast.Call(func=ast.Name(id="say")):
                    raise SystemExit(f"{file}:{node.lineno}: write the template here, for translators to find")


def _call(template: str) -> str:
    quote = '"' if template.count("'") > template.count('"') else "'"
    literal = quote + template.replace("\\", "\\\\").replace("\n", "\\n").replace(quote, f"\\{quote}") + quote
    line = f"  trans.__({literal})"
    return line if len(line) < _WIDTH else f"  trans.__(\n    {literal}\n  )"


if __name__ == "__main__":
    main()
