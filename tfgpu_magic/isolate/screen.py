"""Where the output of a call is seen: this process's own streams, and IPython's display where there is one."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Protocol


class Screen(Protocol):
    """Where output goes."""

    def write(self, stream: str, text: str) -> None:
        """Write text to ``stdout`` or ``stderr``."""

    def show(self, message: Mapping[str, Any]) -> None:
        """Show a display: ``data`` and ``metadata`` by MIME type, ``transient``, ``update``; or clear what is shown."""


class Here:
    """This process's own streams, and the display of the thread's cell."""

    def write(self, stream: str, text: str) -> None:
        """Write as `print` does, and at once."""
        file = getattr(sys, stream)
        file.write(text)
        file.flush()

    def show(self, message: Mapping[str, Any]) -> None:
        """Publish it as a cell of this process would; without IPython, its text is printed."""
        shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
        if shell is None:
            self.write("stdout", str(message.get("data", {}).get("text/plain", "")) + "\n")
        elif "clear" in message:
            shell.display_pub.clear_output(wait=message["clear"])
        else:
            shell.display_pub.publish(**message)
