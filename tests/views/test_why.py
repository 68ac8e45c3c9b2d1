"""Why a GPU ran out of memory, as people read it: each cause, each way, in each kind of process."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from IPython.core.formatters import DisplayFormatter

from tests.insight.cases import case, gpu, holding, pool, row, shortage
from tests.rows import changed
from tests.sizes import GIB, MIB
from tests.views.tables import HOSTILE
from tfgpu_magic.ground.answer import OFFERS, Part, facts
from tfgpu_magic.insight.why.answer import NONE, NOTHING, Why
from tfgpu_magic.insight.why.explanation import Explanation, Remedy
from tfgpu_magic.insight.why.remedies import free, isolate, restart, shut, smaller

LIMITED = case(
    cell=5,
    shortage=shortage(2, shape=(512, 2**20), dtype="float"),
    processes=(row(1.3, "this notebook", who="this", pid=1), row(6.9, pid=2)),
    biggest=(
        holding("model.layers[3].kernel", 300 * MIB, what="variable"),
        holding("", 9),
    ),
)
LIMITED = replace(LIMITED, remedies=(isolate(LIMITED, "growth"), restart(LIMITED, "limit 3.8GiB"), smaller(GIB // 2)))


def test_ipython_shows_both_forms() -> None:
    data, _ = DisplayFormatter().format(Why(LIMITED))  # type: ignore[no-untyped-call]

    assert set(data) == {"text/plain", "text/html", OFFERS}
    assert data["text/html"].startswith('<div class="tfgpu">')
    line = "%tf_gpu limit 3.8GiB --restart"
    assert f'<code data-tfgpu-line="{line}" data-tfgpu-restarts>{line}</code>' in data["text/html"]
    assert ".tfgpu-paste code, .tfgpu-paste .tfgpu-offer { white-space: nowrap; }" in data["text/html"]


@pytest.mark.parametrize(
    ("why", "offered"),
    [
        (Why(LIMITED), ["%%tf_gpu isolate growth", "%tf_gpu limit 3.8GiB --restart"]),
        (
            Why(LIMITED, asked=True),
            ["%tf_gpu limit 3.8GiB --restart"],
        ),  # what stands above is another cell
        (
            Why(replace(LIMITED, call=True)),
            ["%tf_gpu limit 3.8GiB --restart"],
        ),  # there is such a line already
        *((Why(replace(LIMITED, host=host)), []) for host in ("session", "program")),
        (Why(None), []),
    ],
)
def test_a_page_is_told_which_lines_it_can_run(why: Why, offered: list[str]) -> None:
    data, _ = DisplayFormatter().format(why)  # type: ignore[no-untyped-call]

    assert re.findall('data-tfgpu-line="(.*?)"', data["text/html"]) == offered
    assert (OFFERS in data) == bool(offered)


def test_names_are_harmless() -> None:
    hostile = case(
        processes=(row(1, HOSTILE), row(1, HOSTILE, who="other")),
        biggest=(holding(HOSTILE, GIB),),
        remedies=(shut(case(), row(1, HOSTILE)),),
    )
    page, text = Why(hostile)._repr_html_(), repr(Why(hostile))

    assert "<img" not in page
    assert not {"\u202e", "\x1b", "\ud800"} & set(text + page)


def test_where_nothing_is_known_there_is_no_table() -> None:
    assert facts([]) == Part([], "")


def test_nothing_yet_is_said() -> None:
    assert repr(Why(None)) == str(NONE)
    assert str(NONE).partition(".")[0] in Why(None)._repr_html_()


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        (
            {"cause": "start", "pool": None, "shortage": shortage(None, kind="driver"), "gpu": gpu(free=0.1)},
            "of which 102 MiB are free, and needs about 512 MiB for CUDA's context. TensorFlow may hang for good",
        ),
        ({"cause": "start", "pool": None, "shortage": shortage(None, framework="PyTorch")}, "PyTorch could not start"),
        ({"cause": "size", "shortage": shortage(20)}, "20 GiB is more than GPU 0 has in all, 16 GiB."),
        ({"cause": "pool", "pool": pool(6, 6.5)}, "with 6 GiB in use. It may take 6.5 GiB of what was free"),
        ({"pool": pool(0.1, 1, peak=0.9, reached=GIB // 2, capped=True)}, "limited to 1 GiB, with 512 MiB in use."),
        (
            {"shortage": shortage(0.4), "pool": pool(0.1, 1, peak=0.9, capped=True)},
            "with 102 MiB in use now, and 922 MiB at its peak. If it was not full again, its free memory was in pieces",
        ),
        ({"cause": "gpu"}, "2 GiB could not be had: 4 GiB of GPU 0's 16 GiB are free."),
        ({"cause": "pieces", "pool": pool(1, 8)}, "7 GiB of TensorFlow's pool on GPU:0 were free, but not 2 GiB in"),
        ({"cause": "pieces", "pool": pool(1, 8, largest=GIB)}, "The largest piece is 1 GiB."),
        ({"cause": "library", "shortage": shortage(None, library="cuDNN")}, "cuDNN found no room"),
        ({"cause": "library", "shortage": shortage(None, library="cuDNN", certain=False)}, "cuDNN may have found no"),
        ({"cause": "unknown", "shortage": shortage(None)}, "What was asked for could not be had of GPU 0."),
        ({"cause": "limit", "pool": None, "gpu": None}, "2 GiB could not be had of the GPU."),
    ],
)
def test_each_cause_has_its_sentence(facts: dict[str, Any], said: str) -> None:
    assert said in repr(Why(case(**facts))).splitlines()[0]


def test_this_notebook_which_has_just_run_a_cell_is_not_called_unused() -> None:
    own = changed(row(4, "this notebook", who="this"), unused=10_000.0 - 120)

    assert "unused" not in repr(Why(case(processes=(own,))))


@pytest.mark.parametrize(
    ("facts", "way", "said"),
    [
        ({}, lambda _: free("free", GIB), "%tf_gpu free   frees 1 GiB that only IPython keeps"),
        ({"call": True}, lambda here: isolate(here, "growth"), "%%tf_gpu isolate growth   above the cell: it runs"),
        ({"host": "session"}, lambda here: restart(here, "pick"), "%tf_gpu pick   first, when IPython is started"),
        ({"host": "program"}, lambda here: restart(here, "pick"), 'tfgpu_magic.apply("pick")   before TensorFlow'),
        (
            {"host": "program", "shortage": shortage(2, framework="JAX")},
            lambda here: restart(here, "limit 4GiB"),
            'tfgpu_magic.apply("limit 4GiB", frameworks="all")   before JAX\'s first operation',
        ),
        ({"host": "program"}, lambda here: isolate(here, "growth"), '@tfgpu_magic.isolated(policy="growth")'),
        ({}, lambda here: shut(here, row(9.8)), "Shut down eval.ipynb, idle 2 h, which holds 9.8 GiB, and run the"),
        ({}, lambda here: shut(here, row(9.8), "growth"), "9.8 GiB; then:\n  %tf_gpu growth --restart"),
        ({}, lambda _: smaller(), f"{NOTHING}\n  A smaller batch needs less."),
    ],
)
def test_each_way_is_a_line_for_this_kind_of_process(
    facts: dict[str, Any], way: Callable[[Explanation], Remedy], said: str
) -> None:
    here = case(**facts)

    assert said in repr(Why(replace(here, remedies=(way(here),))))


def test_many_holders_are_counted() -> None:
    crowd = case(processes=tuple(row(1, pid=pid) for pid in range(9)))

    assert repr(Why(crowd)).count("eval.ipynb") == 5
    assert "and 4 more" in repr(Why(crowd))
