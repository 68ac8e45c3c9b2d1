"""What server, doctor and idle steps tell users and programs is what `tests/transcript.txt` has."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.jupyter import Notebook, serving
from tests.lab.test_steps import ASKED, FILE, PARKS, Rig
from tests.processes import QUIET
from tests.transcript import scenes
from tests.transcript.kept import compare
from tests.transcript.stage import MACHINES, alike, machine_of, play
from tests.waiting import until
from tfgpu_magic import policy
from tfgpu_magic.doctor.checks import table
from tfgpu_magic.errors import PolicyError
from tfgpu_magic.ground.process_kind import SIMULATED_USER
from tfgpu_magic.lab.idle_actions import _UnseenError

if TYPE_CHECKING:
    from collections.abc import Callable

IDLES: list[tuple[str, str, Callable[[Rig], object]]] = [
    ("It is told of, and shut down", FILE, lambda rig: rig.looks(7)),
    ("It is parked", PARKS, lambda rig: parked(rig)),
    ("It cannot be parked, and is shut down", PARKS, lambda rig: rig.looks(7, ASKED)),
    ("The file keeps TensorFlow's from being parked", f'policy = "limit 50%"\n{PARKS}', lambda rig: rig.looks(1)),
    ("It is told of, and nothing follows", '[idle]\nnotify = "2h"\nstop = "never"\n', lambda rig: rig.looks(121)),
    ("The driver does not answer", FILE, lambda rig: blind(rig)),
    *(
        (f"A mistake in the file: {line}", f"{FILE}{line}\n", lambda rig: rig.looks(1))
        for line in (
            *("groups = 3", 'groups.nobody-has-it = { stop = "never" }', 'tell = "1h"', "groups.root = 3", "idle"),
            'groups.root = { stop = "soon" }',
        )
    ),
    *(
        (f"A mistake in the hours: {hours}", f"[idle]\n{hours}\n", lambda rig: rig.looks(1))
        for hours in ('stop = "4h"', "notify = 3", 'notify = "3"', 'notify = "4h"\nstop = "2h"')
    ),
]


@pytest.mark.parametrize("part", scenes.FACTS)
def test_the_page_on_scripts_and_the_doctor(part: str, tmp_path: Path) -> None:
    compare(part, play(scenes.FACTS[part], tmp_path))


def blind(rig: Rig) -> None:
    """Look, and see nothing."""
    rig.table = replace(rig.table, error="The NVIDIA driver does not answer.")
    rig.looks(1)


def parked(rig: Rig) -> None:
    rig.parks = True
    rig.looks(4.5, ASKED)


def test_each_outcome_of_the_doctor() -> None:
    lines = []
    for title, check in table.CHECKS.items():
        for one in table.declared_outcomes(check):
            lines += [f"{title}: {one.name}, {one.severity.value}", f"    {one.template}"]
            lines += [f"    -> {line}" for line in one.next.splitlines()]
    one = table.BROKEN
    lines += [f"Any: {one.name}, {one.severity.value}", f"    {one.template}", f"    -> {one.next}"]
    compare("Each outcome of the doctor", "\n".join(lines) + "\n\n")


def test_each_line_of_the_idle_steps_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    monkeypatch.setattr(policy, "FILE", tmp_path / "tfgpu_magic.toml")
    lines = []
    for title, text, deed in IDLES:
        caplog.clear()
        policy.FILE.write_text(text)
        rig = Rig(monkeypatch)
        try:
            deed(rig)
        except (PolicyError, _UnseenError) as error:
            rig.steps._complain(str(error))
        rig.steps.close()
        lines += [f"=== {title}", *(f"{record.levelname}: {record.getMessage()}" for record in caplog.records)]
    compare("Each line of the idle steps' log", alike("\n".join(lines) + "\n\n", {str(tmp_path): "<folder>"}))


def test_what_a_server_sends(tmp_path: Path) -> None:
    """Its snapshot, and what a notebook of it reads that has a server: names of others, a restart."""
    with (
        machine_of(*MACHINES["shared"]) as machine,
        serving(machine, tmp_path, environment={**QUIET, SIMULATED_USER: "maria"}) as server,
    ):
        notebook = Notebook(server, "work.ipynb")
        for gpu in (0, 1):
            machine.set_sensors(gpu, utilisation=7)
        cells = (
            "%load_ext tfgpu_magic",
            "%tf_gpu limit 1GiB",
            "import tensorflow as tf; x = tf.zeros([2**27])",
            "%tf_gpu",
        )
        said = [f"In: {cell}\n{notebook.run(cell)}" for cell in cells]
        machine.use(notebook.pid, 7)  # it holds memory now

        def snapshot() -> Any:
            with server.open("tfgpu-magic/snapshot") as answer:
                return json.load(answer)

        def settled(one: Any) -> bool:
            rows = one["state"].get("rows", {}).values()
            own = [row for row in rows if row["owner"] == "work.ipynb"]
            return (
                len(rows) == 4
                and [(row["utilisation"], row.get("state") != "busy") for row in own] == [(7, True)] * 2
                and one["history"]["times"]
            )

        sent = until(snapshot, settled)
        said += [
            f"In: {cell}\n{notebook.run(cell)}" for cell in ("%tf_gpu park nobody.ipynb", "%tf_gpu growth --restart")
        ]
    used, utilisation = (
        {gpu: figures[:1] for gpu, figures in sent["history"][name].items()} for name in ("used", "utilisation")
    )
    sent["history"] = {"times": sent["history"]["times"][:1], "used": used, "utilisation": utilisation}
    text = "\n".join(said) + "\n" + json.dumps(sent, indent=1) + "\n\n"
    compare("What a server sends", alike(text, {str(tmp_path): "<folder>", notebook.kernel: "<kernel>"}))
