"""No test is red as a machine is slow: none asserts how long something took, but for those whose subject that is."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parent
CLOCKS = {"monotonic", "perf_counter", "process_time", "time"}
SPANS = {"elapsed", "seconds", "server_since", "since", "timed", "took"}
"""What a span of time is called that a helper has measured."""

SUBJECT = {
    # A stale panel is promised within three seconds.
    "browser/test_panel.py::test_a_driver_that_hangs_is_said_with_since_when_and_the_page_goes_on",
    # At least so long: Jupyter Server counts the seconds without activity.
    "browser/test_away.py::test_a_table_that_is_seen_draws_with_an_idle_kernel_and_one_in_a_hidden_tab_rests",
    "browser/test_away.py::test_when_the_page_is_closed_everything_rests_and_a_new_page_is_live",
    # A later call is held up for no second.
    "isolate/test_shutdown.py::test_what_cannot_be_killed_holds_up_no_later_call",
    # At least so long: a hang of three seconds.
    "simgpu/test_nvml.py::test_a_hang_holds_up_nobody_else_and_a_kill_ends_it",
}
"""Tests whose subject is a time, by file and name."""


def test_no_test_goes_by_a_clock_but_those_whose_subject_that_is() -> None:
    found = {f"{path.relative_to(TESTS)}::{name}" for path in TESTS.rglob("*.py") for name in timed(path.read_text())}

    assert found - SUBJECT == set(), "wait for a fact with `until`, and let what must not wait wait for ever"
    assert SUBJECT - found == set()


def test_spans_are_found_however_they_are_written() -> None:
    at_once = "def test_a():\n    began = time.monotonic()\n    assert time.monotonic() - began < 2"
    by_name = "def test_b():\n    past = 3 * (monotonic() - began)\n    assert 0 < past < 2 * SLACK"
    by_helper = "def test_c():\n    said, seconds = run()\n    assert seconds > 5"
    none = "def test_d():\n    assert row.seconds == 3\n    assert begun < sent < time.time()"

    assert [*timed("\n".join((at_once, by_name, by_helper, none)))] == ["test_a", "test_b", "test_c"]


def timed(text: str) -> Iterator[str]:
    """Give the functions of a module that assert how long something took."""
    for function in ast.walk(ast.parse(text)):
        if isinstance(function, ast.FunctionDef):
            nodes = [*ast.walk(function)]
            spans = {*SPANS}
            named = [node for node in nodes if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)]
            spans |= {ast.unparse(node.targets[0]) for node in named if _is_span(node.value, set())}
            tests = [node.test for node in nodes if isinstance(node, ast.Assert)]
            compared = [node for test in tests for node in ast.walk(test) if isinstance(node, ast.Compare)]
            if any(_orders(node) and _is_span(node, spans) for node in compared):
                yield function.name


def _orders(node: ast.Compare) -> bool:
    return any(isinstance(one, (ast.Lt, ast.LtE, ast.Gt, ast.GtE)) for one in node.ops)


def _is_span(tree: ast.AST, names: set[str]) -> bool:
    """Tell whether there is a difference with a clock in an expression, or one of these names alone."""
    return any(
        (isinstance(node, ast.Name) and node.id in names)
        or (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub) and any(map(_reads, ast.walk(node))))
        for node in ast.walk(tree)
    )  # fmt: skip


def _reads(node: ast.AST) -> bool:
    """Tell whether a clock is read here."""
    if not isinstance(node, ast.Call):
        return False
    return ast.unparse(node.func).rpartition(".")[2] in CLOCKS
