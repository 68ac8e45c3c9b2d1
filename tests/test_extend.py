"""What a stranger adds is a file and a line: a word, a policy, an answer, a framework that is limited; all are here.

What a framework needs for its figures alone is in `frameworks/test_frameworks.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.frameworks.novum import Novum
from tests.magic.shell import Seen, each
from tests.policy import half
from tests.processes import on
from tests.processes import run as run_on
from tests.sizes import CONTEXT, GIB, MIB
from tests.slack import SLACK
from tests.tf.on_machine import first_op
from tfgpu_magic.errors import PolicyError
from tfgpu_magic.frameworks import cuda, registry
from tfgpu_magic.frameworks.array import Array
from tfgpu_magic.frameworks.pool import Pool
from tfgpu_magic.ground.answer import Answer, Part, facts, grid, headline, to_paste
from tfgpu_magic.ground.message import msg
from tfgpu_magic.notebook import complete
from tfgpu_magic.notebook.words import table
from tfgpu_magic.policy import requests
from tfgpu_magic.policy.parser import parse
from tfgpu_magic.policy.plan import FrameworkPlan, FrameworkState
from tfgpu_magic.policy.word import CellForm, Flag, ParsedLine, Word
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
            for uuid in cuda.visible_gpus()
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


MENU = Word(
    "menu",
    ("menu [N]",),
    "show what there is to eat",
    flags=(Flag("--hot", "", "warms it"),),
    takes=True,
    tried=("lunch",),
    instead="Lunch is `%tf_gpu menu`.",
    above=CellForm((Flag("--loud", "N", "so loud"),), "POLICY", msg("Write it."), "Says the cell."),
    home=__name__,
)
"""A word as a stranger would add it: its entry in the table, and a module, which is this one."""


def run(_: ParsedLine) -> Menu:
    return Menu()


def completions(said: Sequence[str], _: Callable[[], Sequence[str]]) -> list[str]:
    return [] if said else ["2", "3"]


def prepare(said: ParsedLine, cell: str, _: Any) -> Callable[[], object]:
    return lambda: f"{cell.strip()} {said.rest}"


USED = "import tensorflow as tf; class_ = type('NovumArray', (), {}); big = class_(); kept = tf.zeros(2**20)"
FRAMEWORK = {
    "%gpu plan limit 1GiB": "Novum .*at most 1024 MiB",
    "%gpu limit 1GiB": "Novum .*at most 1024 MiB",
    "%tf_gpu": r"Novum in use 0\.1 .*pool 1\.0 .*limit 1\.0 GiB",
    "%tf_gpu tensors": r"big .*96 MiB",
}
ANSWERED = {
    "%%tf_gpu menu --loud 3\nauh": "auh --loud 3",
    "%tf_gpu help": r"menu \[N\] +show what there is to eat(.|\n)*Says the cell\.\n\n  --loud N  so loud",
    "%tf_gpu code half --grow": r"memory_limit=\d{4}\)",
}
REFUSED = {
    "%tf_gpu mneu": r"Did you mean 'menu'\?",
    "%tf_gpu lunch": "Lunch is `%tf_gpu menu`.",
    "%tf_gpu growth; menu": "`menu` is no policy",
    "%tf_gpu menu --restart": "`menu` sets nothing, so --restart has no place beside it.",
}
OFFERED = {"%tf_gpu me": ["measure", "menu"], "%tf_gpu menu ": ["--hot", "2", "3"], "%%tf_gpu menu --lo": ["--loud"]}


@pytest.fixture(scope="module")
def seen() -> dict[str, Any]:
    """What cells give, and what is offered at the end of lines, where all were added: one process for all of them."""
    with Machine.create("1x8GiB") as machine:
        found: dict[str, Any] = run_on(machine, _seen)
    return found


def _seen() -> dict[str, Seen | list[str]]:
    from IPython.core.completer import provisionalcompleter
    from IPython.core.interactiveshell import InteractiveShell

    registry.FRAMEWORKS = (*registry.FRAMEWORKS, Limited())
    table.WORDS = (*table.WORDS, MENU)
    requests.REQUESTS = (*requests.REQUESTS, half)  # which `code` reads at each line
    complete.LOOK_TIMEOUT = 10.0 * SLACK  # what is offered is tested here, and not how soon
    first, second, *then = FRAMEWORK
    answers = each([first, second, USED, *then, "%tf_gpu menu", *ANSWERED, *REFUSED])
    with provisionalcompleter():
        tab = InteractiveShell.instance().Completer
        offered = {line: sorted(one.text for one in tab.completions(line, len(line))) for line in OFFERED}
    return {**answers, **offered}


@pytest.mark.parametrize(("cell", "told"), FRAMEWORK.items())
def test_a_framework_is_planned_limited_counted_and_searched(seen: dict[str, Any], cell: str, told: str) -> None:
    one = seen[cell]

    assert re.search(told, one.text), one.text
    assert re.search("Novum", one.html)


@pytest.mark.parametrize(("cell", "told"), [*ANSWERED.items(), *REFUSED.items()])
def test_a_word_is_answered_explained_and_refused_as_others_are(seen: dict[str, Any], cell: str, told: str) -> None:
    one = seen[cell]

    assert re.search(told, one.text), one.text
    assert "Traceback" not in one.text
    assert one.error == ("UsageError" if cell in REFUSED else "")


@pytest.mark.parametrize(("line", "offered"), OFFERED.items())
def test_tab_offers_a_word_and_what_it_takes(seen: dict[str, Any], line: str, offered: list[str]) -> None:
    assert seen[line] == offered


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("half --grwo", "'half' has no flag '--grwo'. Did you mean '--grow'? Write `%tf_gpu half`"),
        ("halv", "Did you mean 'half'"),
        ("half; growth", "`growth` would undo `half`"),
        ("", "half of what is free"),
    ],
)
def test_mistakes_in_a_policy_are_told_as_those_of_others(
    text: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "REQUESTS", (*requests.REQUESTS, half))

    with pytest.raises(PolicyError, match=re.escape(told)):
        parse(text)


@on("2x8GiB")
def test_a_policy_is_taken_by_real_tensorflow() -> None:
    requests.REQUESTS = (*requests.REQUESTS, half)
    kept, libraries = 128 * MIB, 1536 * MIB  # by the driver, and what TensorFlow leaves to its libraries

    assert first_op("half --gpu 0; visible 0") == [(8 * GIB - kept - CONTEXT - libraries) // 2 + CONTEXT, 0]


def test_an_answer_is_drawn_as_text_and_as_html(seen: dict[str, Any]) -> None:
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
