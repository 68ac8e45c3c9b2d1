"""What can be told of a cell from its text alone: its title, its numbered lines, whether its value is shown. Pure."""

from __future__ import annotations

import io
import tokenize


def title(body: str) -> str:
    """Return a cell's first line that is no import, magic or comment; else its first line."""
    lines = [line.strip() for line in body.splitlines() if line.strip()]
    first = [line for line in lines if not line.startswith(("#", "import ", "from ", "%"))]
    return next(iter([*first, *lines]), "")


def as_numbered(body: str, magic: str) -> str:
    """Return the text below a magic with its lines numbered as in the notebook, where the first line is the magic's."""
    return body if body.lstrip().startswith("%%") else f"# {magic}\n{body}"


def ends_quietly(source: str) -> bool:
    """Tell whether a cell's last expression ends with a semicolon, so that its value is not shown."""
    nothing = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.ENDMARKER)
    try:  # as IPython's display hook does, which before 8.4 has no function for it
        tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    except (tokenize.TokenError, SyntaxError):
        return False
    return any(token.string == ";" for token in [token for token in tokens if token.type not in nothing][-1:])
