"""An isolated function as a task of a Dask cluster in one process; `test_dask.py` has clusters of two machines."""

from __future__ import annotations

import json
import socket
import sys
from pathlib import Path

from tests.processes import QUIET
from tests.sizes import CONTEXT, GIB
from tfgpu_magic.simgpu import Machine

ROOT = Path(__file__).parents[2]

PROGRAM = """
import json, os, signal, sys
from distributed import Client
from tests.isolate import on_cluster
from tfgpu_magic import isolated
from tfgpu_magic.isolate.dask import Task

def seen():
    import tensorflow as tf
    print("it was here")
    return len(tf.config.list_physical_devices("GPU"))

def fail(kind):
    if kind == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    raise ValueError("seven")

def submit(function, *args, **options):
    return client.submit(Task(isolated(**options)(function)), *args, resources={"GPU": 2}, pure=False)

resources = {"GPU": 2}
with Client(processes=False, n_workers=1, threads_per_worker=1, resources=resources, dashboard_address=None) as client:
    _, held = submit(on_cluster.grow, policy="limit 1GiB").result()
    gpus = submit(seen, gpus=2).result()
    wrong_value, crash = (submit(fail, kind, gpus=0).exception() for kind in ("value", "crash"))
    refused = submit(on_cluster.grow, policy="limit 64GiB").exception()
    wrong = [(type(error).__name__, str(error)) for error in (wrong_value, crash, refused)]
with open(sys.argv[1], "w") as file:
    json.dump([held, gpus, wrong, "tensorflow" in sys.modules], file)
"""


def test_a_call_has_its_policy_and_gpus_gives_all_back_and_what_fails_names_the_machine(tmp_path: Path) -> None:
    found = tmp_path / "found.json"
    with Machine.create("2x8GiB") as machine:
        command = [sys.executable, "-c", PROGRAM, str(found)]
        done = machine.run(command, cwd=ROOT, env=QUIET, capture_output=True, text=True)
        left = machine.held()
    assert done.returncode == 0, done.stderr
    held, gpus, (value, crash, refused), imported = json.loads(found.read_text())

    assert (held, gpus, left, imported) == (GIB + CONTEXT, 2, 0, False)
    assert "it was here\n" in done.stdout
    assert [value[0], crash[0], refused[0]] == ["ValueError", "WorkerDied", "Refused"]
    for _, said in (crash, refused):
        assert f"This was on {socket.gethostname()} (Dask worker " in said
