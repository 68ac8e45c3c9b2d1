"""The words: what they mean, that they read back, and that anything else is told clearly."""

from __future__ import annotations

import decimal
import re
from decimal import Decimal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.sizes import GIB
from tfgpu_magic.errors import PolicyError
from tfgpu_magic.ground import units
from tfgpu_magic.notebook.words import line
from tfgpu_magic.notebook.words.table import in_notebooks
from tfgpu_magic.policy.arguments import MOST_PARTS
from tfgpu_magic.policy.memory import Percentage, amount_bytes
from tfgpu_magic.policy.parser import parse
from tfgpu_magic.policy.policy import Cpus, Policy, Request
from tfgpu_magic.policy.requests.default import Default
from tfgpu_magic.policy.requests.growth import Growth
from tfgpu_magic.policy.requests.limit import Limit
from tfgpu_magic.policy.requests.pick import Pick
from tfgpu_magic.policy.requests.split import Split
from tfgpu_magic.policy.requests.visible import Visible

sizes = st.integers(1, 10**14)
shares = st.decimals("0.000001", 100, places=6).map(Percentage)
amounts = sizes | shares
uuids = st.builds(
    "{}-{}".format,
    st.sampled_from(["GPU", "MIG"]),
    st.from_regex("[0-9a-f]{4}-[0-9a-f]{2}", fullmatch=True),
)
instances = st.builds("{}.{}".format, st.integers(0, 9999), st.integers(0, 99))
gpus = st.integers(0, 9999) | uuids | instances
maybe = st.none() | gpus
parts = st.integers(2, MOST_PARTS) | st.lists(amounts, min_size=1, max_size=4).map(tuple)
requests: st.SearchStrategy[Request] = st.one_of(
    st.sampled_from([Growth(), Growth(on=False), Growth(release=True)]),
    st.builds(Limit, amounts, maybe, st.booleans()),
    st.builds(Split, parts, maybe, st.booleans()),
    st.builds(Cpus, st.integers(2, MOST_PARTS)),
    st.builds(Visible, st.none() | st.lists(gpus, unique=True, max_size=5).map(tuple)),
    st.builds(Pick, st.integers(1, MOST_PARTS), st.none() | amounts),
    st.just(Default()),
)
policies = st.lists(requests, min_size=1, max_size=5).map(lambda rs: Policy().then(Policy(tuple(rs)))).filter(str)
fragments = st.sampled_from(
    [word.name for word in in_notebooks()]
    + ["2GiB", "40%", "0=1GiB", "--grow", "--gpu", "--need", "0,1", ";", "none", "=", "٣GiB", "1e9"]
    + ["--release"]
)
COMMAS = ("pick, limit 2GiB", "pick,limit 2GiB", "limit 2GiB, growth", "visible 0,1, limit 2GiB", "pick, 2")
scraps = st.lists(fragments | st.text(max_size=6), max_size=8).map(" ".join)


@given(policies)
def test_a_policy_reads_back_as_itself(policy: Policy) -> None:
    assert parse(str(policy)) == policy


@given(st.text() | scraps)
def test_any_text_is_a_policy_or_a_clear_error(text: str) -> None:
    try:
        policy = parse(text)
    except PolicyError as error:
        told = str(error)
    else:
        told = "" if parse(str(policy)) == policy else "it reads back as another"
    assert not told or told.endswith((".", "!", "?")) or "The commands are" in told, told


@given(policies, policies)
def test_saying_the_same_again_changes_nothing(first: Policy, then: Policy) -> None:
    once = first.then(then)

    assert once.then(then) == once


@pytest.mark.parametrize(
    ("time", "seconds"),
    [
        ("90s", 90),
        ("10m", 600),
        ("1.5h", 5400),
        ("500 ms", 0.5),
        ("2M", 120),
        (3, 3),
        (0.25, 0.25),
        ("576h", 576 * 3600),
    ],
)
def test_a_time_in_seconds(time: float | str, seconds: float) -> None:
    assert units.parse_seconds(time) == seconds


@pytest.mark.parametrize(
    ("time", "says"),
    [
        ("10", "10 of what? Write 10s or 10m."),
        ("10 minutes", "is not a time. Write one as 90s"),
        ("1h30m", "is not a time"),
        ("-1s", "is not a time"),
        ("", "is not a time"),
        ("0s", "a time is above zero"),
        (0, "a time is above zero"),
        (-2.5, "a time is above zero"),
        (float("nan"), "a time is above zero"),
        (float("inf"), "24 days at most"),
        ("577h", "24 days at most"),
        (True, "True is not a time"),
    ],
)
def test_what_is_no_time_is_a_clear_error(time: float | str, says: str) -> None:
    with pytest.raises(PolicyError, match=re.escape(says)):
        units.parse_seconds(time)


def test_a_programs_own_decimal_context_changes_no_size() -> None:
    with decimal.localcontext(decimal.Context(prec=3)):
        policy = parse("limit 0=2.345GiB 1=33.33333%")
        text, share = str(policy), policy.requests[1]

    assert text == str(parse("limit 0=2.345GiB 1=33.33333%"))
    assert isinstance(share, Limit)
    assert amount_bytes(share.amount, 80 * GIB) == 80 * GIB * 3333333 // 10_000_000


@given(sizes)
@example(units.LARGEST)
def test_an_exact_size_reads_back(size: int) -> None:
    assert units.parse_bytes(units.exact(size)) == size


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("GROWTH Off", Policy((Growth(on=False),))),
        ("limit 2 GiB", Policy((Limit(2 * GIB),))),
        ("limit 2gib", Policy((Limit(2 * GIB),))),
        ("limit 1.5GB --grow", Policy((Limit(1_500_000_000, grow=True),))),
        ("limit 12.5 %", Policy((Limit(Percentage(Decimal("12.5"))),))),
        ("limit 1=4GiB 2GiB", Policy((Limit(2 * GIB), Limit(4 * GIB, 1)))),
        ("limit GPU-5D1C=1GiB", Policy((Limit(GIB, "GPU-5d1c"),))),
        ("limit 0 = 1GiB", Policy((Limit(GIB, 0),))),
        ("limit 0= 1 GiB", Policy((Limit(GIB, 0),))),
        ("limit 2 GiB --gpu 0,1", Policy((Limit(2 * GIB, 0), Limit(2 * GIB, 1)))),
        ("limit 0-1=2GiB", Policy((Limit(2 * GIB, 0), Limit(2 * GIB, 1)))),
        ("growth False", Policy((Growth(on=False),))),
        ("pick --need 6 GiB", Policy((Pick(1, 6 * GIB),))),
        ("pick --need = 6 GiB", Policy((Pick(1, 6 * GIB),))),
        ("visible 0, 1", Policy((Visible((0, 1)),))),
        ("visible 0-2", Policy((Visible((0, 1, 2)),))),
        ("split 1 GiB, 2 GiB", Policy((Split((GIB, 2 * GIB)),))),
        ("split 1GiB 50% --gpu=3", Policy((Split((GIB, Percentage(Decimal(50))), 3),))),
        ("visible 3 2", Policy((Visible((3, 2)),))),
        ("visible NONE", Policy((Visible(()),))),
        ("pick --or-cpu --need 6GiB", Policy((Pick(1, 6 * GIB, or_cpu=True),))),
        ("pick 1; limit 2GiB;", Policy((Pick(1), Limit(2 * GIB)))),
    ],
)
def test_what_the_words_mean(text: str, policy: Policy) -> None:
    assert parse(text) == policy


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "No command was given."),
        ("growth maybe", "on or off"),
        ("limit 2", "2GiB, or 2%"),
        ("limit 4 G", "'4G' may be 4GiB, counted in 1024, or 4GB, in 1000."),
        ("limit 0=", "A limit of how much?"),
        ("limit 0=1GiB --gpu 1", "GPU 0 or GPU 1?"),
        ("visible -1", "For none, write `%tf_gpu visible none`."),
        ("pick all", "For all of them, write `%tf_gpu visible all`."),
        ("growth off; limit 2GiB", "A limit is taken at once, and nothing grows: say `limit 2GiB` alone."),
        ("growth --release; limit 2GiB", "cannot be had together. With --release TensorFlow's memory comes from"),
        ("limit 2GiB --release", "has no flag '--release'. It goes with `growth` alone. With --release TensorFlow's"),
        ("growth off --release", "`growth off` has no --release. Write `%tf_gpu growth [off]` or `%tf_gpu growth"),
        ("4GiB", "'4GiB' is not a command of %tf_gpu. For a limit, write `%tf_gpu limit 4GiB`."),
        ("none", "`%tf_gpu visible none`"),
        ("reset", "`%tf_gpu default` drops what was asked"),
        ("clear", "only when its process ends"),
        ("restart", "`%tf_gpu limit 40% --restart`"),
        ("use", "`visible 0,1`"),
        ("fraction", "`%tf_gpu limit 40%`"),
        ("limit 2048", "2048 of what? Write 2048MiB, as TensorFlow counts."),
        ("limit 512", "512MiB, as TensorFlow counts, or 512GiB"),
        ("limit 2,5GiB", "'2,5GiB' has a comma. Write 2.5GiB."),
        ("limit 0=1GiB,1=2,5 GiB", "'2,5GiB' has a comma. Write 2.5GiB."),
        *((text, "Separate policies with `;` and not with a comma, as in `pick; limit 2GiB`.") for text in COMMAS),
        ("--grow limit 2GiB", "Write a flag after its command, as in `limit 2GiB --grow`."),
        ("40", "'40' is not a command of %tf_gpu. For a limit, write `%tf_gpu limit` and 40GiB, or 40% (of the GPU)."),
        ("limit 0.25", "25% (of the GPU), or 0.25GiB"),
        ("limit 0GiB", "above zero"),
        ("limit 0%", "more than 0%"),
        ("limit 2PiB", "The units are KiB, MiB, GiB, TiB, kB, MB, GB, TB."),
        ("limit x=1GiB", "'x' is not a GPU"),
        ("limit 0=1GiB --need 3GiB", "has no flag '--need'"),
        ("limit 1GiB --grow --grow", "given twice"),
        ("limit 1GiB --grow=yes", "takes no value"),
        ("split 1", "a number from 2 to 64"),
        ("split 2 --gpu", "--gpu of what?"),
        ("pick 1 2", "not one number"),
        ("default growth", "stands alone"),
    ],
)
def test_what_is_wrong_is_said_with_the_way_out(text: str, told: str) -> None:
    with pytest.raises(PolicyError) as caught:
        parse(text)

    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("first", "then", "both"),
    [
        ("limit 1GiB", "limit 2GiB", "limit 2GiB"),
        ("limit 0=1GiB 1=2GiB", "limit 1=3GiB", "limit 0=1GiB; limit 1=3GiB"),
        ("limit 0=1GiB", "limit 2GiB", "limit 2GiB"),
        ("limit 2GiB", "limit 0=1GiB", "limit 2GiB; limit 0=1GiB"),
        ("growth", "split 2", "split 2"),
        ("split 2 --gpu 0", "limit 0=1GiB", "limit 0=1GiB"),
        ("split 4 --cpu", "growth", "split 4 --cpu; growth"),
        ("pick 1; growth", "visible 2", "growth; visible 2"),
        ("visible 0; limit 1GiB", "default", ""),
        ("growth", "default; limit 1GiB", "limit 1GiB"),
    ],
)
def test_later_words_replace_earlier_ones_for_what_they_name(first: str, then: str, both: str) -> None:
    assert str(parse(first).then(parse(then))) == both


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (None, "N/A"),
        (0, "0 MiB"),
        (256, "256 B"),
        (2**11, "2 KiB"),
        (2**19, "512 KiB"),
        (2**19 + 1, "1 MiB"),
        (322 * 2**20, "322 MiB"),
        (GIB, "1 GiB"),
        (80 * GIB, "80 GiB"),
        (2**41, "2 TiB"),
    ],
)
def test_a_size_for_reading_has_three_digits_or_so(size: int | None, text: str) -> None:
    assert units.rounded(size) == text


@pytest.mark.parametrize(
    ("text", "meant"),
    [("2,5GiB", "`%tf_gpu limit 2.5GiB`."), ("1,2", "`%tf_gpu limit` and 1.2GiB, or 1.2% (of the GPU).")],
)
def test_a_number_with_a_comma_is_advised_as_a_whole(text: str, meant: str) -> None:
    with pytest.raises(PolicyError) as refused:
        line.read(text)

    assert str(refused.value) == f"{text!r} is not a command of %tf_gpu. For a limit, write {meant}"


def test_a_comment_begins_behind_a_blank_and_a_name_may_have_its_sign() -> None:
    assert line.read("park train#2.ipynb # later").rest == "train#2.ipynb"
    assert line.read("# nothing").name == ""
