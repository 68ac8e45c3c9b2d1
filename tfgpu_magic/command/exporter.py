"""`tfgpu exporter`: tells Prometheus what each user holds of this machine's GPUs, and has held."""

from __future__ import annotations

import argparse

from tfgpu_magic.errors import TfGpuError

try:
    from tfgpu_magic.lab.exporter import PORT, Encryption, serve
except ModuleNotFoundError as error:
    if error.name != "prometheus_client":
        raise
    PORT = 0

_MORE = """\
It is for systemd: the unit tfgpu-exporter.service runs it beside the service
that reads the GPUs (`tfgpu collect`), whose board and hours it passes on. Run
by a person where there is no such service, it has that person's figures, and no
hours.

Whoever reaches the port sees users' names and what each of them holds. So it
listens on this machine alone, unless --address says otherwise. Each local user
reaches it there: with --client-ca, it answers only whom these authorities know."""


def prepare(parser: argparse.ArgumentParser) -> None:
    """Add its arguments."""
    parser.epilog = _MORE
    parser.add_argument("--address", default="127.0.0.1", help="where to listen (default: 127.0.0.1)")
    parser.add_argument("--port", type=int, default=PORT, help=f"the port (default: {PORT})")
    parser.add_argument("--cert", metavar="FILE", help="for HTTPS: the certificate, in PEM")
    parser.add_argument("--key", metavar="FILE", help="for HTTPS: its key, in PEM")
    parser.add_argument("--client-ca", metavar="FILE", help="the authorities of clients that are answered, in PEM")


def run(options: argparse.Namespace) -> int:
    """Answer Prometheus, until this process is ended.

    Raises:
        TfGpuError: Prometheus's client is not installed, or it cannot listen there.
    """
    if not PORT:
        raise TfGpuError(
            'Prometheus\'s client is not installed here. Install the extra:   pip install "tfgpu-magic[exporter]"'
        )
    if bool(options.cert) != bool(options.key) or (options.client_ca and not options.cert):
        raise TfGpuError("HTTPS needs both --cert and --key.")
    serve(
        options.address,
        options.port,
        Encryption(options.cert, options.key, options.client_ca) if options.cert else None,
    )
    return 0
