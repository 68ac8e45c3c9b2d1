"""`tfgpu exporter`: tells Prometheus what each user holds of this machine's GPUs, and has held."""

from __future__ import annotations

from tfgpu_magic.command.wording import port
from tfgpu_magic.errors import TfGpuError
from tfgpu_magic.policy.word import ParsedLine

try:
    from tfgpu_magic.lab.exporter import PORT, Encryption, serve
except ModuleNotFoundError as error:
    if error.name != "prometheus_client":
        raise
    PORT = 0

MORE = """\
It is for systemd: the unit tfgpu-exporter.service runs it beside the service
that reads the GPUs (`tfgpu collect`), whose board and hours it passes on. Run
by a person where there is no such service, it has that person's figures, and no
hours.

Whoever reaches the port sees users' names and what each of them holds. So it
listens on this machine alone, unless --address says otherwise. Each local user
reaches it there: with --client-ca, it answers only whom these authorities know."""


def run(line: ParsedLine) -> int:
    """Answer Prometheus, until this process is ended.

    Raises:
        TfGpuError: Prometheus's client is not installed, or it cannot listen there.
    """
    if not PORT:
        raise TfGpuError("Prometheus's client is not installed here. Install it:   pip install prometheus-client")
    cert, key, authorities = (line.flags.get(flag, "") for flag in ("--cert", "--key", "--client-ca"))
    if bool(cert) != bool(key) or (authorities and not cert):
        raise TfGpuError("HTTPS needs both --cert and --key.")
    encryption = Encryption(cert, key, authorities or None) if cert else None
    serve(line.flags.get("--address", "127.0.0.1"), port(line, PORT), encryption)
    return 0
