"""A notebook parks itself when no cell has run for a while, or only when another one finds no room then."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.jupyter import Notebook, reply_to
from tests.parking.notebooks import SLOW, Parkable, Site, ask, heard
from tests.processes import run
from tests.sizes import CONTEXT, LITTLE, MIB
from tests.waiting import until
from tfgpu_magic.claims import claim
from tfgpu_magic.claims.ledger import LEDGER, ClaimLedger


@pytest.fixture(autouse=True)
def off(trained: Parkable) -> Iterator[None]:
    yield
    assert trained.run("%tf_gpu park --auto off") == "This notebook is not parked by itself any more."


def is_there(notebook: Parkable) -> bool:
    return notebook.held() > CONTEXT + 64 * MIB


def test_it_is_parked_without_a_word_and_again_after_its_return(trained: Parkable) -> None:
    said = trained.run("%tf_gpu park --auto 500ms")
    assert said == "This notebook is parked by itself when no cell has run for 500ms."
    for _ in range(2):
        until(trained.held, lambda held: held in LITTLE)
        assert heard(trained) == ""
        assert trained.finds() == trained.digest


def test_while_it_leaves_the_kernel_answers_and_a_cell_calls_it_off(trained: Parkable, tmp_path: Path) -> None:
    trained.run(SLOW.format(str(tmp_path), 128 * MIB))
    trained.run("%tf_gpu park --auto 200ms")
    until((tmp_path / "begun").exists)
    assert ask(trained, "kernel_info_request", {})["status"] == "ok"
    asked = trained.client.execute("slow.stop(); print(digest())")
    (tmp_path / "go").touch()

    assert reply_to(trained.client, asked)["status"] == "ok"
    until(lambda: heard(trained), lambda text: trained.digest in text)


def test_what_speaks_against_it_puts_it_off_and_is_said_in_the_log_alone(trained: Parkable, tmp_path: Path) -> None:
    log = tmp_path / "log"
    trained.run(
        "import threading; over = threading.Event(); work = threading.Thread(target=over.wait); work.start()\n"
        "import logging; from tfgpu_magic.parking import automatic; automatic.AGAIN_AFTER = 0.1\n"
        f"automatic._log.setLevel(logging.DEBUG); automatic._log.addHandler(logging.FileHandler({str(log)!r}))\n"
        "%tf_gpu park --auto 200ms"
    )
    tried = until(log.read_text, lambda text: text.count("parked by itself: These threads") > 1, despite=OSError)
    assert "done" not in tried
    assert is_there(trained)
    assert heard(trained) == ""
    trained.run("over.set(); work.join()")
    until(log.read_text, lambda text: text.endswith("parked by itself: done\n"))
    assert trained.finds() == trained.digest


def test_when_needed_it_stays_until_another_process_finds_no_room(
    site: Site, trained: Parkable, tmp_path: Path
) -> None:
    looks = tmp_path / "looks"
    trained.run(
        "from tfgpu_magic.claims.ledger import LEDGER\n"
        f"asked, log = LEDGER.wanted_by_others, open({str(looks)!r}, 'a', buffering=1)\n"
        "LEDGER.wanted_by_others = lambda: print(found := asked(), file=log) or found\n"
        "%tf_gpu park --auto 200ms --when-needed"
    )
    with Notebook(site.server, "other.ipynb") as other:
        assert "Not applied." in other.run("%tf_gpu limit 100GiB")  # for which no parking would make room
        before = len(looks.read_text())
        until(looks.read_text, lambda text: "set()" in text[before:])
        assert is_there(trained)
        assert "Not applied." in other.run("%tf_gpu limit 7.6GiB")
        until(trained.held, lambda held: held in LITTLE)
        assert trained.finds() == trained.digest


def test_without_the_extension_it_is_parked_by_itself_no_more(trained: Parkable) -> None:
    trained.run("%tf_gpu park --auto 20m")
    trained.run("import threading; threads = lambda: print([one.name for one in threading.enumerate()])")
    assert "tfgpu_magic-park-auto" in trained.run("threads()")
    trained.run("%unload_ext tfgpu_magic")
    until(lambda: trained.run("threads()"), lambda said: "tfgpu_magic-park-auto" not in said)
    trained.run("%load_ext tfgpu_magic")


def _want(gpus: list[str]) -> None:
    LEDGER.note_wanted(gpus)


def test_room_is_wanted_for_a_while_and_by_others(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TFGPU_MAGIC_DIR", str(tmp_path / "board"))
    ledger = ClaimLedger()
    ledger.note_wanted(["GPU-1"])
    assert ledger.wanted_by_others() == set()
    run(None, _want, ["GPU-2", "GPU-3"])
    assert ledger.wanted_by_others() == {"GPU-2", "GPU-3"}
    monkeypatch.setattr(claim, "WANTED_FOR", 0.0)
    assert ledger.wanted_by_others() == set()
    ledger.forget()
