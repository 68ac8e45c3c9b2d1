"""What a stranger adds is a file and a line: a framework that is limited, an answer, a fact of rows; all are here.

The others have tests of their own: a word in `magic/test_made_up.py`, a policy in `policy/test_requests.py`, and what a
framework needs for its figures alone in `frameworks/test_frameworks.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.frameworks.novum import Novum
from tests.magic.shell import Seen, each
from tests.processes import run as run_on
from tests.sizes import GIB, MIB
from tfgpu_magic.frameworks import cuda, registry
from tfgpu_magic.frameworks.array import Array
from tfgpu_magic.frameworks.pool import Pool
from tfgpu_magic.ground.answer import Answer, Part, facts, grid, headline, to_paste
from tfgpu_magic.notebook.words import table
from tfgpu_magic.policy.plan import FrameworkPlan, FrameworkState
from tfgpu_magic.policy.word import ParsedLine, Word
from tfgpu_magic.simgpu import Machine


class Limited(Novum):
    """Novum with a limit, pools and arrays."""

    told: FrameworkPlan | None = None

    def version(self) -> tuple[int, ...]:
        return (1, 0)

    def plan(self, wanted: FrameworkPlan, _: FrameworkState) -> FrameworkPlan:
        sizes = [f"{size // MIB} MiB" for size in wanted.limits.values()]
        return replace(wanted, takes=f"at most {', '.join(sizes)}")

    def configure(self, part: FrameworkPlan) -> None:
        self.told = part

    def pools(self) -> Sequence[Pool]:
        limits = {} if self.told is None else self.told.limits
        return [
            Pool(self.name, "novum:0", uuid, in_use=96 * MIB, peak=96 * MIB, taken=GIB, limit=limits.get(uuid))
            for uuid in cuda.shown()
        ]

    def figures(self) -> Any:
        return super(Novum, self).figures()

    def arrays(self, objects: Sequence[object]) -> Iterable[Array]:
        mine = (one for one in objects if type(one).__name__ == "NovumArray")
        return [Array(one, "array", "float", (24, MIB), 96 * MIB, "novum:0") for one in mine]


class Menu(Answer):
    """An answer with a part of each kind."""

    def _parts(self) -> Iterable[Part | str]:
        yield "Soup is served."
        yield headline("Eat it while it is hot.", "%tf_gpu menu")
        yield facts([("Soup", [("1 GiB", "of <leeks>")])])
        yield grid(("<Course", ">Price"), [["first", "7"], ["second", "9"]], "Courses")
        yield to_paste("What else there is:", [("%tf_gpu help", "all words")])


MENU = Word("menu", ("menu",), "show what there is to eat", home=__name__)


def run(_: ParsedLine) -> Menu:
    return Menu()


@pytest.fixture(scope="module")
def seen() -> dict[str, Seen]:
    """What cells give where both were added: one process for all of them."""
    with Machine.create("1x8GiB") as machine:
        found: dict[str, Seen] = run_on(machine, _seen)
    return found


def _seen() -> dict[str, Seen]:
    registry.FRAMEWORKS = (*registry.FRAMEWORKS, Limited())
    table.WORDS = (*table.WORDS, MENU)
    return each(
        [
            "%gpu plan limit 1GiB",
            "%gpu limit 1GiB",
            "import tensorflow as tf; class_ = type('NovumArray', (), {}); big = class_(); kept = tf.zeros(2**20)",
            "%tf_gpu",
            "%tf_gpu tensors",
            "%tf_gpu menu",
        ]
    )


@pytest.mark.parametrize(
    ("cell", "told"),
    [
        ("%gpu plan limit 1GiB", "Novum .*at most 1024 MiB"),
        ("%gpu limit 1GiB", "Novum .*at most 1024 MiB"),
        ("%tf_gpu", r"Novum in use 0\.1 .*pool 1\.0 .*limit 1\.0 GiB"),
        ("%tf_gpu tensors", r"big .*96 MiB"),
    ],
)
def test_a_framework_is_planned_limited_counted_and_searched(seen: dict[str, Seen], cell: str, told: str) -> None:
    one = seen[cell]

    assert re.search(told, one.text), one.text
    assert re.search("Novum", one.html)


def test_an_answer_is_drawn_as_text_and_as_html(seen: dict[str, Seen]) -> None:
    one = seen["%tf_gpu menu"]
    words = [
        "Soup is served.",
        "Eat it",
        "%tf_gpu menu",
        "1 GiB",
        "Course",
        "Price",
        "second",
        "What else",
        "all words",
    ]

    assert [word for word in words if word not in one.value or word not in one.html] == []
    assert "of <leeks>" in one.value
    assert "of &lt;leeks&gt;" in one.html
