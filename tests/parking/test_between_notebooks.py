"""One notebook parks another one and brings it back; one parks itself when it is idle; one in a terminal."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from random import Random
from typing import Any

from tests.jupyter import execute, reply_to
from tests.magic.shell import cells, last
from tests.parking.notebooks import TRAIN, Site, digest_in, heard, is_parked, park
from tests.processes import program
from tests.sizes import CONTEXT, GIB
from tests.waiting import until
from tfgpu_magic.parking import reported
from tfgpu_magic.parking.states import Phase
from tfgpu_magic.simgpu import Machine


def test_one_notebook_parks_another_and_brings_it_back(site: Site) -> None:
    with site.trained("train.ipynb") as (notebook, digest), site.notebook("other.ipynb") as other:
        names = "print(sorted(name for name in globals() if name[0] != '_'), len(In) - {})"
        before = notebook.run(names.format(0))
        said = until(lambda: other.run("%tf_gpu park train.ipynb"), lambda text: "is parked" in text)
        assert said.startswith("train.ipynb is parked: 5.2 GiB of GPU memory"), said
        assert is_parked(notebook)
        assert site.machine.held() == 0

        assert "train.ipynb is back on the GPU with 5.2 GiB" in other.run("%tf_gpu unpark train.ipynb")
        assert site.holds(notebook)
        assert notebook.run(names.format(1)) == before
        assert digest_in(notebook.run("print(digest())")) == digest


def test_an_interrupt_calls_off_what_another_notebook_was_asked(site: Site) -> None:
    with site.holding("train.ipynb") as notebook, site.notebook("other.ipynb") as other:
        park(notebook)
        with site.holding("eval.ipynb"):
            asked = other.client.execute("%tf_gpu unpark train.ipynb")
            until(lambda: heard(other), lambda text: "eval.ipynb holds 5.2 GiB" in text)
            assert reported.read()[notebook.pid].wanted
            os.kill(other.pid, signal.SIGINT)

            said = reply_to(other.client, asked)
            assert said["evalue"] == "Interrupted: train.ipynb stays parked, and nothing is lost."
            assert said["status"] == "error"
            until(lambda: not reported.read()[notebook.pid].wanted)
        assert is_parked(notebook)


def test_who_asks_another_notebook_in_vain_is_told_why(site: Site) -> None:
    """None has that name, parking is off there, or a cell runs."""
    with site.holding("train.ipynb") as notebook, site.notebook("other.ipynb") as other:
        said = until(lambda: other.run("%tf_gpu park nobody.ipynb"), lambda text: "train.ipynb" in text)
        assert f"train.ipynb ({notebook.pid})" in said
        notebook.run("%config TfGpuMagics.parking = 'off'")
        until(lambda: other.run("%tf_gpu park train.ipynb"), lambda text: "Parking is off" in text)
        assert "%config TfGpuMagics.parking" in notebook.run("%tf_gpu park")
        assert not is_parked(notebook)

        notebook.run("%config TfGpuMagics.parking = 'ask'")
        notebook.client.execute("import time; time.sleep(3600)")
        until(lambda: "busy" in other.run("%tf_gpu"))
        assert "A cell runs there" in other.run("%tf_gpu park train.ipynb")
        assert not is_parked(notebook)


def test_an_idle_notebook_parks_itself_and_what_is_no_setting_changes_nothing(site: Site) -> None:
    with site.trained("train.ipynb") as (notebook, digest):
        assert "no setting of parking" in notebook.run("%config TfGpuMagics.parking = 'perhaps'")
        assert "'ask'" in notebook.run("%config TfGpuMagics.parking")
        notebook.run("%config TfGpuMagics.parking = 'auto 2s'")
        until(lambda: is_parked(notebook))

        assert digest_in(notebook.run("print(digest())")) == digest


def test_what_another_one_has_brought_back_parks_itself_again(site: Site) -> None:
    with site.holding("train.ipynb") as notebook, site.notebook("other.ipynb") as other:
        notebook.run("%config TfGpuMagics.parking = 'auto 3s'")
        until(lambda: is_parked(notebook))
        assert "is back" in other.run("%tf_gpu unpark train.ipynb")
        until(lambda: is_parked(notebook))

        assert notebook.run("print(intact())") == "True\n"


def test_when_needed_it_waits_until_another_one_waits(site: Site) -> None:
    with site.holding("first.ipynb") as first:
        park(first)
        with site.holding("second.ipynb") as second:
            second.run("%tf_gpu park --auto 1s --when-needed")
            second.client.execute("")  # nothing that counts as a cell
            assert not is_parked(second)
            assert execute(first.client, "print('there')").endswith("there\n")
            assert is_parked(second)
            first.run("%tf_gpu park --auto 1s --when-needed")
            assert second.run("print(intact())").endswith("True\n")


def test_three_notebooks_take_turns_on_a_gpu_that_has_room_for_one(site: Site) -> None:
    """Cells are run at random for a while, and no state is lost."""
    with contextlib.ExitStack() as stack:
        notebooks = []
        for number in range(3):
            notebooks.append(stack.enter_context(site.holding(f"turn-{number}.ipynb")))
            park(notebooks[-1])
        for notebook in notebooks:  # each comes back for this, when the one before lets it
            notebook.run("%tf_gpu park --auto 1s --when-needed")

        def returns() -> int:
            return sum(entry.returns for one in notebooks if (entry := reported.parked(one.pid)))

        end, chance, answers = time.monotonic() + 25.0, Random(1), list[Any]()
        while time.monotonic() < end or len(answers) < 3 or returns() < 4:  # each came back for its line, too
            some = chance.sample(notebooks, chance.randint(1, 3))  # which wait for one another
            asked = [one.client.execute("same = intact()", user_expressions={"same": "same"}) for one in some]
            answers += [reply_to(one.client, number) for one, number in zip(some, asked, strict=True)]
            time.sleep(chance.uniform(0.1, 3.0))
        until(lambda: sum(not is_parked(notebook) for notebook in notebooks) <= 1)
        entries = [reported.parked(notebook.pid) for notebook in notebooks]

    assert [one for one in answers if "'True'" not in str(one)] == []
    assert Phase.FAILED not in [entry.phase for entry in entries if entry is not None]


def test_in_a_terminal_it_parks_and_comes_back() -> None:
    with Machine.create("1x8GiB") as machine, program(machine, _in_terminal) as session:
        said = json.loads(session.answer)

        assert "Parked: 5.2 GiB" in said["parked"]
        assert said["held"] == 0
        assert said["before"] == said["after"]
        assert machine.held(pid=session.pid) == 5 * GIB + CONTEXT


def _in_terminal() -> str:
    machine = Machine.current()
    assert machine is not None
    _, trained, parked = cells("%config TfGpuMagics.parking = 'ask'", TRAIN.format(size="5GiB"), "%tf_gpu park")
    held = machine.held()
    after = last("print(digest())")
    digests = {"before": digest_in(trained.text), "after": digest_in(after.text)}
    return json.dumps({"parked": parked.text, "held": held, **digests})
