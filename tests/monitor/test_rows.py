"""What every view shows, from a snapshot and the owners of its processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from tests.monitor.made_tables import OWNERS, kernel, owners_of, table
from tests.sizes import GIB
from tfgpu_magic.monitor.owners import Notebook, Owner
from tfgpu_magic.monitor.snapshot import Gpu, Process, Snapshot
from tfgpu_magic.monitor.tabulate import SMALLEST_REST, TONES, UNATTRIBUTED, Known, make

if TYPE_CHECKING:
    from collections.abc import Sequence


def test_the_largest_comes_first_and_the_unknown_last() -> None:
    made = table((1, GIB), (2, None), (3, 9 * GIB))

    assert [(row.owner, row.held) for row in made.processes] == [
        ("maria", 9 * GIB),
        ("this notebook", GIB),
        ("eval.ipynb", None),
    ]


def test_processes_are_in_the_order_of_the_gpus() -> None:
    snapshot = Snapshot(
        time=0.0,
        gpus=tuple(Gpu(index=index) for index in (10, 9)),
        processes=(Process(gpu="9", pid=1, kind="C", held=2), Process(gpu="10", pid=2, kind="C", held=1)),
    )

    assert [row.gpu for row in make(snapshot, Known()).processes] == ["10", "9"]


def test_a_process_that_uses_its_gpu_is_not_unused_whatever_the_record_has() -> None:
    uses = (Process(gpu="0", pid=pid, kind="C", held=pid, utilisation=use) for pid, use in ((2, 0), (1, 40)))
    snapshot = Snapshot(time=0.0, gpus=(Gpu(index=0, uuid="GPU-0"),), processes=tuple(uses))
    made = make(snapshot, Known(unused={("GPU-0", 1): 5.0, ("GPU-0", 2): 5.0}))

    assert [row.unused for row in made.processes] == [5.0, None]


def test_what_no_process_accounts_for_is_others() -> None:
    made = table((1, 4 * GIB))

    rest = made.processes[-1]
    assert (rest.owner, rest.pid, rest.held) == ("others", None, 6 * GIB)
    assert made.notes == ()  # a newer container lists its own pids: they can be named


def test_what_the_driver_itself_takes_is_no_row() -> None:
    assert owners_of(table((1, 10 * GIB - SMALLEST_REST))) == ["this notebook"]


def test_an_unknown_figure_leaves_no_rest_to_blame_on_others() -> None:
    made = table((1, None), (3, GIB))

    assert owners_of(made) == ["maria", "this notebook"]
    assert [share.text for share in made.gpus[0].shares] == ["not told whose", "free"]


def test_a_refused_list_blames_nobody() -> None:
    made = table(listed=False, error="no list of processes")

    assert owners_of(made) == ["not told whose"]
    assert [share.text for share in made.gpus[0].shares] == ["not told whose", "free"]


def test_used_memory_and_no_process_at_all_means_that_nothing_can_be_attributed() -> None:
    made = table()

    assert owners_of(made) == ["others"]
    assert made.notes == (UNATTRIBUTED,)


def test_unknown_owners_are_said_once() -> None:
    assert table((9, GIB), (9, GIB)).notes == (UNATTRIBUTED,)


def test_shares_say_whose_memory_is() -> None:
    made = table((1, 4 * GIB), (2, 3 * GIB), (3, 2 * GIB), (4, GIB)).gpus[0]

    assert [(share.who, share.size // GIB) for share in made.shares] == [
        ("this", 4),
        ("mine", 3),
        ("others", 3),
        ("free", 6),
    ]


def test_others_have_what_their_rows_say_though_the_sum_is_newer_or_older() -> None:
    made = table((1, 9 * GIB), (3, 2 * GIB)).gpus[0]

    assert [(share.who, share.size // GIB) for share in made.shares] == [("this", 9), ("others", 2), ("free", 6)]


def test_unknown_stays_unknown() -> None:
    row = table((1, GIB), used=None, error="the GPU is lost").gpus[0]

    assert (row.used, row.free, row.figures, row.shares) == (None, None, (), ())


def test_a_gpu_cut_into_instances_leaves_its_memory_to_them() -> None:
    made = table(mig=True)

    assert (made.processes, made.gpus[0].shares, made.notes) == ((), (), ())


def test_names_lose_the_maker_and_keep_the_simulation() -> None:
    assert table(name="NVIDIA A100-SXM4-80GB").gpus[0].name == "A100-SXM4-80GB"
    assert table(name="Simulated GPU 16GiB").gpus[0].name == "Simulated GPU 16GiB"
    assert table(name="Simulated GPU 16GiB").simulated
    assert table(name=None).gpus[0].name == "N/A"


def test_an_error_is_passed_on() -> None:
    made = make(Snapshot(time=0.0, error="No driver.", absent=True), Known(own=kernel()))

    assert (made.error, made.absent, made.summary, made.gpus) == ("No driver.", True, "Ready.", ())


@given(
    st.lists(st.tuples(st.sampled_from(sorted(OWNERS)), st.none() | st.integers(1, 16 * GIB)), max_size=6),
    st.none() | st.integers(0, 16 * GIB),
)
def test_no_figures_make_an_exception_or_a_negative_size(held: list[tuple[int, int | None]], used: int | None) -> None:
    made = table(*held, used=used)

    assert all(row.held is None or row.held > 0 for row in made.processes)
    assert all(share.size > 0 for share in made.gpus[0].shares)


def test_a_notebook_has_one_look_on_every_gpu_whoever_looks_and_no_two_have_the_same() -> None:
    names = {10 + number: f"{name}.ipynb" for number, name in enumerate(["train", "eval", *map(str, range(10))])}
    processes = tuple(Process(gpu=gpu, pid=pid, kind="C", held=GIB) for pid in names for gpu in ("0", "1"))
    children = tuple(Process(gpu="0", pid=pid + 100, kind="C", held=GIB) for pid in names)
    snapshot = Snapshot(time=100.0, gpus=(Gpu(index=0), Gpu(index=1)), processes=(*processes, *children))

    def looks(this: int, order: Sequence[int]) -> dict[int | None, int | None]:
        owners = {
            pid + more: Owner(
                pid=pid + more, who="this" if pid == this else "mine", text="", kernel=pid,
                notebook=Notebook(path=f"/home/maria/{names[pid]}" if pid == this else names[pid]),
            )
            for pid in order for more in (0, 100)
        }  # fmt: skip
        rows = make(snapshot, Known(owners=owners)).processes
        for row in rows:
            assert {other.tone for other in rows if other.kernel == row.kernel} == {row.tone}
        return {row.kernel: row.tone for row in rows}

    server = looks(0, list(names))

    assert sorted(tone for tone in server.values() if tone is not None) == list(range(TONES))
    assert looks(10, list(names)[::-1]) == server
