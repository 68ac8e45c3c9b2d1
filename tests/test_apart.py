"""Each file of tests runs in a process of its own, and what becomes of it is told, whatever that is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

from tests.waiting import until

ROOT = Path(__file__).parents[1]

LEAVES = """
import os, threading, time
def test_leaves():
    os.environ["LEFT"] = "1"
    global left
    left = os.open("/dev/null", os.O_RDONLY)
    threading.Thread(target=time.sleep, args=(600,), name="left", daemon=True).start()
    os.chdir("/")
"""
FINDS = """
import os, threading
def test_finds_nothing():
    assert "LEFT" not in os.environ and os.getcwd() != "/"
    assert [one.name for one in threading.enumerate()] == ["MainThread"]
"""


def command(folder: Path, *words: str, **files: str) -> list[str]:
    """Write files of tests, and return the line that runs them."""
    for name, text in files.items():
        (folder / f"test_{name}.py").write_text(text)
    (folder / "pytest.ini").write_text("[pytest]\ntimeout = 60\n")
    return [sys.executable, "-m", "pytest", "-p", "tests.apart", "-p", "no:cacheprovider", "-rA", *words, str(folder)]


def run(folder: Path, *words: str, **files: str) -> str:
    """Run files of tests, and return all that is said."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    line = command(folder, *words, **files)
    done = subprocess.run(
        line, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    return done.stdout


def test_a_file_finds_nothing_that_another_has_left(tmp_path: Path) -> None:
    assert "2 passed" in run(tmp_path, a=LEAVES, b=FINDS)


def test_a_red_test_comes_with_the_line_that_runs_it_alone(tmp_path: Path) -> None:
    said = run(tmp_path, a="import pytest\n@pytest.mark.parametrize('x', ['a b'])\ndef test_red(x): assert not x\n")
    assert "scripts/test 'test_a.py::test_red[a b]'\n" in said


def test_files_run_beside_one_another_and_each_in_its_order(tmp_path: Path) -> None:
    meets = "from pathlib import Path\nfrom tests.waiting import until\n"
    meets += "def test_{0}1(): Path('{0}').touch()\ndef test_{0}2(): until(Path('{1}').exists)\n"
    said = run(tmp_path, "--workers", "2", a=meets.format("a", "b"), b=meets.format("b", "a"))
    assert "4 passed" in said


def test_one_that_dies_is_a_failure_with_what_it_printed_and_the_others_run(tmp_path: Path) -> None:
    dies = "import ctypes, os\ndef test_1(): pass\ndef test_2():\n    ctypes.string_at(0)\ndef test_3(): pass\n"
    said = run(tmp_path, a=dies, b="def test_4(): pass")

    assert "2 passed" in said
    assert "1 failed" in said
    assert "Its process ended: SIGSEGV. 2 tests of the file, with this one, have not ended." in said
    assert "in test_2" in said  # where, by faulthandler


def test_one_that_leaves_is_a_failure_though_all_its_tests_have_passed(tmp_path: Path) -> None:
    said = run(tmp_path, a="import atexit, os, pytest\n@pytest.fixture(scope='session', autouse=True)\ndef one():\n"
               "    yield\n    os._exit(7)\ndef test_1(): pass")  # fmt: skip
    assert "Its process ended: 7." in said
    assert "1 failed" in said


def test_one_that_hangs_out_of_reach_is_killed(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text("from tests import apart\napart._ENDS = 1.0\n")
    hangs = "import ctypes\nimport pytest\nfrom tests.isolate.notebook import HANG\n"
    hangs += "@pytest.mark.timeout(1)\ndef test_1(): exec(HANG)\n"
    said = run(tmp_path, a=hangs, b="def test_2(): pass")

    assert "Nothing was heard of it for 2 s, and it was killed." in said
    assert "1 failed, 1 passed" in said


def test_the_first_failure_ends_all_where_that_is_asked(tmp_path: Path) -> None:
    fails = "def test_1(): print('told'); assert 0\ndef test_2(): pass"
    said = run(tmp_path, "-x", a=fails, b=fails)
    assert "1 failed" in said
    assert "passed" not in said
    assert "told" in said


def test_who_is_interrupted_removes_what_it_has_made(tmp_path: Path) -> None:
    waits = "import pytest, time\nfrom pathlib import Path\n@pytest.fixture(scope='module')\ndef made():\n"
    waits += "    Path('made').touch()\n    yield\n    Path('made').unlink()\ndef test_1(made): time.sleep(600)\n"
    line = command(tmp_path, a=waits)
    with subprocess.Popen(
        line, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=-1, text=True
    ) as going:
        until((tmp_path / "made").exists)
        going.send_signal(signal.SIGINT)
        said, _ = going.communicate()

    assert going.returncode == 2
    assert "KeyboardInterrupt" in said
    assert not (tmp_path / "made").exists()


def test_reports_are_as_pytest_has_them(tmp_path: Path) -> None:
    text = "import pytest, warnings\n@pytest.mark.parametrize('n', [1, 2])\ndef test_1(n): warnings.warn('heard')\n"
    text += "@pytest.mark.xfail\ndef test_2(): assert 0\ndef test_3(): pytest.skip('not here')\n"
    said = run(tmp_path, "--junit-xml", "report.xml", "--durations", "1", "-k", "not 3 or test_1", a=text, b=LEAVES)
    (suite,) = ET.parse(tmp_path / "report.xml").getroot().iter("testsuite")

    assert {name: suite.get(name) for name in ("tests", "failures", "errors")} == {
        "tests": "4", "failures": "0", "errors": "0",
    }  # fmt: skip
    assert "3 passed, 1 deselected, 1 xfailed, 2 warnings" in said
    assert "UserWarning: heard" in said
    assert "slowest 1 durations" in said
