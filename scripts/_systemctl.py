"""systemctl where there is no systemd: services run as whom and with what their units say, and nobody guards them."""

from __future__ import annotations

import os
import pwd
import re
import shlex
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil

from tests.lab.prometheus import UNPACKED
from tfgpu_magic.ground.process_kind import SIMULATED

UNITS = (Path("/etc/systemd/system"), UNPACKED.parents[1] / "lib/systemd/system", Path("/lib/systemd/system"))
RUNNING = Path("/run/units")
"""The pid of each service, and its log."""
ELSEWHERE = ("grafana-server",)
"""Services that are passed over where they have no unit."""
_KEPT = (SIMULATED, "LD_LIBRARY_PATH", "PYTHONPATH")
"""The variables that make a simulated machine, which systemd would not pass on."""


def main() -> int:
    """Do what the command line says, for each unit that it names."""
    verb, *names = [word for word in sys.argv[1:] if word != "--now"]
    RUNNING.mkdir(exist_ok=True)
    for name in names:
        unit = next((path for folder in UNITS if (path := folder / f"{name}.service").exists()), None)
        if unit is None and name in ELSEWHERE:
            print(f"There is no {name} here.")
            continue
        if unit is None:
            print(f"Unit {name}.service not found.", file=sys.stderr)
            return 1
        if verb in ("stop", "restart"):
            _stop(name)
        if verb in ("enable", "start", "restart"):
            _start(name, dict(re.findall(r"(?m)^(\w+)=(.*)$", unit.read_text())))
    return 0


def _stop(name: str) -> None:
    with suppress(OSError, psutil.Error):
        service = psutil.Process(int((RUNNING / f"{name}.pid").read_text()))
        service.terminate()
        with suppress(psutil.TimeoutExpired):
            service.wait(60)
        service.kill()


def _start(name: str, unit: dict[str, str]) -> None:
    user = pwd.getpwnam(unit.get("User", "root"))
    if place := unit.get("RuntimeDirectory"):
        board = place == "tfgpu_magic" and SIMULATED in os.environ  # a simulated machine's is beside its state
        folder = Path(f"{os.environ[SIMULATED]}.run" if board else f"/run/{place}")
        folder.mkdir(mode=int(unit["RuntimeDirectoryMode"], 8), exist_ok=True)
        os.chown(folder, user.pw_uid, user.pw_gid)
    variables = {"PATH": os.defpath, "HOME": user.pw_dir, "LANG": "C.UTF-8"}
    variables |= {name: os.environ[name] for name in _KEPT if name in os.environ}
    with suppress(OSError):
        words = (
            shlex.split(Path(unit["EnvironmentFile"]).read_text(), comments=True) if "EnvironmentFile" in unit else []
        )
        variables |= dict(word.split("=", 1) for word in words)
    command = [
        part
        for word in shlex.split(unit["ExecStart"])
        for part in (shlex.split(variables.get(word[1:], "")) if word.startswith("$") else [word])
    ]
    if not Path(command[0]).exists():
        command[0] = str(UNPACKED / Path(command[0]).name)
    with (RUNNING / f"{name}.log").open("ab") as log:
        service = subprocess.Popen(
            command,
            env=variables,
            cwd=unit.get("WorkingDirectory", "/"),
            user=user.pw_uid,
            group=user.pw_gid,
            extra_groups=os.getgrouplist(user.pw_name, user.pw_gid),
            umask=int(unit.get("UMask", "0022"), 8),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    (RUNNING / f"{name}.pid").write_text(str(service.pid))


if __name__ == "__main__":
    sys.exit(main())
