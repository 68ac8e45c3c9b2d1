"""The line of an isolated cell: what it may say, and what it is told when it cannot be read."""

from __future__ import annotations

import pytest
from hypothesis import given

from tests.policy.test_parser import policies
from tfgpu_magic.errors import PolicyError
from tfgpu_magic.isolate.call import CellCall
from tfgpu_magic.notebook.words import isolate, line
from tfgpu_magic.policy.policy import NOTHING, Policy


def parse(text: str) -> CellCall:
    return isolate.read(line.with_arguments(line.read(f"isolate {text}"), above=True))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", CellCall()),
        ("-i x,y -o z", CellCall(inputs=("x", "y"), outputs=("z",))),
        ("-i -", CellCall(inputs=())),
        ("-i +x", CellCall(also=("x",))),
        ("-i +x,+y,z", CellCall(also=("x", "y", "z"))),
        ("-o a,b,a", CellCall(outputs=("a", "b"))),
        ("-o=a", CellCall(outputs=("a",))),
        ("--timeout 10m --gpus 2 --detach", CellCall(timeout=600.0, gpus=2, detach=True)),
        ("--timeout=1.5h", CellCall(timeout=5400.0)),
    ],
)
def test_flags(text: str, expected: CellCall) -> None:
    assert parse(text) == expected


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("", str(NOTHING)),
        ("limit 2GiB", "limit 2GiB"),
        ("--limit 2GiB", "limit 2GiB"),
        ("--limit=2GiB", "limit 2GiB"),
        ("--limit 25% --grow -o x", "limit 25% --grow"),
        ("--growth --gpus 1", "growth"),
        ("--visible 0 --limit 2GiB", "visible 0; limit 2GiB"),
        ("pick 2 --need 2GiB; growth", "pick 2 --need 2GiB; growth"),
        ("limit 2GiB --grow; visible 0", "limit 2GiB --grow; visible 0"),
        ("limit 2GiB --grow;visible 0 --gpus 1", "limit 2GiB --grow; visible 0"),
        ("--limit 2GiB --grow; --visible 0", "limit 2GiB --grow; visible 0"),
        ("split 2 --cpu; growth", "split 2 --cpu; growth"),
        ("-o x LIMIT 2GiB", "limit 2GiB"),
    ],
)
def test_a_policy_is_words_or_flags(text: str, policy: str) -> None:
    assert str(parse(text).policy) == policy


@given(policies)
def test_any_policy_can_be_said_above_a_cell(policy: Policy) -> None:
    assert parse(str(policy)).policy == policy


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("-i", "-i needs NAMES."),
        ("-o a -o b", "-o is given twice."),
        ("--detach=1", "--detach takes no value."),
        ("-o a.b", "'a.b' is not a name."),
        ("-o a, b", "'b' stands apart. Write names with commas and no blanks between them"),
        ("--gpu 1", "Did you mean '--gpus'?"),
        ("--gpus 0", "For none, say `visible none`."),
        ("--timeout 5", "5 of what? Write 5s or 5m."),
        ("--limit", "A limit of how much?"),
    ],
)
def test_what_cannot_be_read_is_said(text: str, said: str) -> None:
    with pytest.raises(PolicyError) as caught:
        parse(text)

    assert said in str(caught.value)
