"""`tfgpu hub`: the page on which each user of a JupyterHub sees what they hold of the GPUs, and have held."""

from __future__ import annotations

import argparse
import asyncio

from tfgpu_magic.errors import TfGpuError

try:
    from tfgpu_magic.lab.hub_page import serve
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] != "jupyterhub":
        raise
    serve = None  # type: ignore[assignment]

_MORE = """\
A JupyterHub runs it, as a service with a `url`, and logs its users in: the page
on administrators has the lines for jupyterhub_config.py. With --prometheus, the
page has the figures of all machines for which `tfgpu exporter` runs; without it,
those of this machine, with the hours since it was started."""


def prepare(parser: argparse.ArgumentParser) -> None:
    """Add its arguments."""
    parser.epilog = _MORE
    parser.add_argument("--prometheus", metavar="URL", help="where Prometheus answers, as http://127.0.0.1:9090")
    hub, users = "http://127.0.0.1:8000", "{name}"
    parser.add_argument("--hub", metavar="URL", default=hub, help=f"the Hub's proxy (default: {hub})")
    parser.add_argument("--users", metavar="NAME", default=users, help=f"the Unix user of a Hub's (default: {users})")


def run(options: argparse.Namespace) -> int:
    """Answer, until this process is ended.

    Raises:
        TfGpuError: JupyterHub is not installed, or has not started this.
    """
    if serve is None:
        raise TfGpuError('JupyterHub is not installed here. Install the extra:   pip install "tfgpu-magic[hub]"')
    asyncio.run(serve(options.prometheus, options.hub, options.users))
    return 0
