"""What the chooser of JupyterLab asks a kernel: real answers of a real kernel, through a silent request."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from jupyter_client.blocking.client import BlockingKernelClient

from tests import waiting
from tests.jupyter import Server, execute, reply_to
from tests.machines import machine_of
from tests.sizes import GIB
from tests.slack import SLACK
from tfgpu_magic.engine import engine
from tfgpu_magic.ground.answer import OFFERS
from tfgpu_magic.notebook import chooser
from tfgpu_magic.notebook.chooser import MIME
from tfgpu_magic.simgpu import Machine

machine = machine_of("2x8GiB")
LIMITS = """import tensorflow as tf
for gpu in tf.config.list_physical_devices("GPU"):
    print(tf.config.get_logical_device_configuration(gpu))"""
CHILD = f"""import subprocess, sys
hold = "from tests.simgpu.on_machine import allocate; allocate({6 * GIB}); import sys; sys.stdin.read()"
child = subprocess.Popen([sys.executable, "-c", hold], stdin=subprocess.PIPE)"""
FULL = "import tensorflow as tf\nx = tf.constant(1.0)"


@pytest.fixture
def client(server: Server, kernel: str) -> Iterator[BlockingKernelClient]:
    client = server.connect(kernel)
    yield client
    client.stop_channels()


def ask(client: BlockingKernelClient, call: str) -> dict[str, Any]:
    """Evaluate a call of the chooser as the page does."""
    expression = f"__import__('tfgpu_magic.notebook.chooser').notebook.chooser.{call}"
    message = client.execute("", silent=True, store_history=False, user_expressions={"answer": expression})
    answer = reply_to(client, message)["user_expressions"]["answer"]
    assert answer["status"] == "ok", answer
    return dict(answer["data"][MIME])


def test_a_kernel_without_the_extension_says_what_is_free_and_stays_as_it_is(client: BlockingKernelClient) -> None:
    facts = ask(client, "state()")
    now = execute(client, "import sys; print('tensorflow' in sys.modules, 'pynvml' in sys.modules)")

    assert (facts["late"], facts["policy"], facts["chooses"]) == ("", "", False)
    assert [(gpu["label"], gpu["total"]) for gpu in facts["gpus"]] == [("0", 8 * GIB), ("1", 8 * GIB)]
    assert all(0 < gpu["free"] <= gpu["total"] for gpu in facts["gpus"])
    assert now.startswith("False")


def test_what_is_applied_is_in_force_and_the_extension_is_loaded_for_it(client: BlockingKernelClient) -> None:
    facts = ask(client, f"apply('visible 1; limit 1GiB', {ask(client, 'state()')['now'] + 60})")
    limits = execute(client, LIMITS)
    others = execute(client, "from tfgpu_magic.engine import engine; print(engine.current().asked_of_all)")
    again = ask(client, "state()")

    assert others == "limit 1GiB\n"
    assert (facts["outcome"], facts["loads"]) == ("applied", True)
    assert facts["policy"] == "visible 1; limit 1GiB"
    assert facts["standing"] == "`visible 1; limit 1GiB` takes effect when TensorFlow is imported."
    assert "memory_limit=1024" in limits
    assert (again["policy"], again["chooses"]) == ("visible 1; limit 1GiB", True)


def test_what_holds_the_memory_is_named_where_it_is_the_notebooks_own(client: BlockingKernelClient) -> None:
    execute(client, CHILD)
    refused = waiting.until(lambda: ask(client, "state('visible 0; limit 4GiB')")["plan"], lambda plan: "ways" in plan)

    assert "this notebook's" in refused["reason"]


@pytest.mark.parametrize("call", ["apply('limit 1GiB', float('inf'))", "resume('limit 1GiB', '')"])
def test_where_the_driver_was_slow_it_is_not_said_afterwards(
    client: BlockingKernelClient, machine: Machine, call: str
) -> None:
    machine.hang("nvmlInit", 5)
    try:
        facts = ask(client, call)
    finally:
        machine.clear_faults()

    assert (facts["outcome"], facts["said"]) == ("applied", "")


def test_a_request_that_waited_too_long_does_nothing(client: BlockingKernelClient) -> None:
    facts = ask(client, f"apply('growth', {ask(client, 'state()')['now']})")

    assert facts == {"outcome": "expired"}
    assert ask(client, "state()")["policy"] == ""


def test_nor_does_it_where_no_kernel_runs() -> None:
    before = engine.current()

    assert chooser.apply("growth", before=0.0).facts == {"outcome": "expired"}
    assert engine.current() == before


def test_a_refusal_has_its_reason_and_what_to_ask_instead(client: BlockingKernelClient, machine: Machine) -> None:
    neighbour = machine.add_neighbour("6GiB@0")
    facts = ask(client, "state('visible 0; limit 4GiB')")["plan"]
    done = ask(client, "apply('visible 0; limit 4GiB', float('inf'))")
    neighbour.stop()

    assert facts["outcome"] == done["outcome"] == "refused"
    assert "GPU 0" in facts["reason"]
    assert facts["ways"][0] == "pick; limit 4GiB"
    assert ask(client, "state()")["policy"] == ""
    assert ask(client, "state('limit much')")["plan"]["outcome"] == "wrong"


def test_growth_that_gives_back_is_told_with_its_price(client: BlockingKernelClient) -> None:
    planned = ask(client, "state('growth --release')")["plan"]

    assert (planned["outcome"], planned["policy"]) == ("fits", "growth --release")
    assert {one["takes"] for one in planned["takes"]} == {"growth, gives back"}
    assert "keeps to no limit" in planned["notes"][0]["text"]


def test_when_it_is_late_what_a_restart_would_do_is_told_with_the_cell(client: BlockingKernelClient) -> None:
    execute(client, "%load_ext tfgpu_magic")
    execute(client, FULL)
    facts = ask(client, "state('limit 7GiB')")
    planned = facts["plan"]
    applied = ask(client, "apply('limit 7GiB', float('inf'))")

    assert "since In [2] (x = tf.constant(1.0))" in facts["late"]
    assert min(gpu["free"] for gpu in facts["gpus"]) > 7 * GIB  # what this kernel holds is free then
    assert (planned["outcome"], planned["policy"]) == ("late", "limit 7GiB")
    assert planned["takes"][0] == {"gpu": "0", "takes": "limit 7 GiB"}
    assert applied["outcome"] == "overtaken"
    assert ask(client, "state('limit 9GiB')")["plan"]["outcome"] == "refused"


def test_a_new_kernel_has_the_whole_policy_and_no_other(client: BlockingKernelClient) -> None:
    execute(client, "%load_ext tfgpu_magic")
    execute(client, "%tf_gpu visible 0")
    facts = ask(client, "resume('limit 1GiB', '')")

    assert (facts["outcome"], facts["policy"], facts["loads"]) == ("applied", "limit 1GiB", False)


def test_a_new_kernel_has_what_every_framework_was_asked_too(server: Server, client: BlockingKernelClient) -> None:
    for cell in ("%load_ext tfgpu_magic", "%gpu limit 2GiB", FULL):
        execute(client, cell)
    planned = ask(client, "state('visible 0; limit 1GiB')")["plan"]
    fresh = server.connect(server.call("kernels", {"name": "python3"})["id"])
    facts = ask(fresh, f"resume({planned['policy']!r}, {planned['others']!r})")
    others = execute(fresh, "from tfgpu_magic.engine import engine; print(engine.current().asked_of_all)")
    fresh.stop_channels()

    assert (planned["outcome"], planned["others"]) == ("late", "limit 1GiB")
    assert (facts["outcome"], facts["policy"]) == ("applied", "visible 0; limit 1GiB")
    assert others == "limit 1GiB\n"


def test_a_new_kernel_says_what_holds_where_tensorflows_words_are_refused(client: BlockingKernelClient) -> None:
    facts = ask(client, "resume('limit 99GiB', 'limit 1GiB')")
    others = execute(client, "from tfgpu_magic.engine import engine; print(engine.current().asked_of_all)")

    assert facts["outcome"] == "refused"
    assert facts["reason"].startswith("`limit 99GiB` is NOT in force. `limit 1GiB` is, for every framework. GPU 0")
    assert others == "limit 1GiB\n"


def test_a_driver_that_is_slow_keeps_the_kernel_for_a_short_look_and_is_asked_on(
    client: BlockingKernelClient, machine: Machine
) -> None:
    ask(client, "state()")
    machine.hang("nvmlDeviceGetMemoryInfo", 60)
    try:
        slow = ask(client, "state('limit 1GiB')")
        hangs = waiting.until(lambda: ask(client, "state('limit 1GiB')"), lambda facts: not facts["asking"], seconds=90)
    finally:
        machine.clear_faults()
    found = waiting.until(lambda: ask(client, "state('limit 1GiB')"), lambda facts: facts["gpus"])

    assert (slow["asking"], slow["gpus"], "plan" in slow) == (True, [], False)
    assert "did not answer within 2 s" in slow["error"]
    assert "hangs" in hangs["error"]
    assert (found["asking"], found["error"], found["plan"]["outcome"]) == (False, "", "fits")


def refused(client: BlockingKernelClient, *cells: str) -> dict[str, Any]:
    """Run cells after one that loads the extension; return the output of the last one, which is refused."""
    for cell in ("%load_ext tfgpu_magic", *cells[:-1]):
        execute(client, cell)
    outputs: list[dict[str, Any]] = []

    def hear(message: dict[str, Any]) -> None:
        if message["msg_type"] not in ("status", "execute_input"):
            outputs.append(message["content"])

    reply = client.execute_interactive(cells[-1], timeout=120 * SLACK, output_hook=hear)
    assert reply["content"]["status"] == "error"
    (output,) = outputs
    return output


@pytest.mark.parametrize(
    ("cells", "offered"),
    [
        (["%tf_gpu visible 0; limit 4GiB"], "%tf_gpu pick; limit 4GiB"),
        ([FULL, "%tf_gpu limit 1 GiB"], "%tf_gpu limit 1GiB --restart"),  # too late
    ],
)
def test_a_refused_cell_tells_the_page_which_lines_its_text_offers(
    client: BlockingKernelClient, machine: Machine, cells: list[str], offered: str
) -> None:
    with machine.add_neighbour("6GiB@0"):
        output = refused(client, *cells)
    said, refusal = output["data"]["text/plain"], output["data"][OFFERS]

    assert said.startswith("UsageError: ")
    assert refusal["line"] == cells[-1]
    tries = [part for part in refusal["parts"] if isinstance(part, dict)]
    assert tries[0] == {"line": offered, "restarts": offered.endswith("--restart")}
    assert said == "".join(part["line"] if isinstance(part, dict) else part for part in refusal["parts"])


def test_a_line_that_is_wrong_offers_nothing(client: BlockingKernelClient) -> None:
    output = refused(client, "%tf_gpu limit much")

    assert (output["name"], output["text"].split(".")[0]) == ("stderr", "UsageError: 'much' is not a size")


def test_a_handler_of_the_users_own_stays_theirs(client: BlockingKernelClient, machine: Machine) -> None:
    mine = "get_ipython().set_custom_exc((KeyError,), lambda *error, **options: print('mine'))"
    with machine.add_neighbour("6GiB@0"):
        output = refused(client, mine, "%tf_gpu visible 0; limit 4GiB")

    assert output["text"].startswith("UsageError: Not applied.")
    assert execute(client, "{}['a']") == "mine\n"
