"""Twenty questions of people who have never seen the package: README leads to each answer with two clicks at most."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STARTS = ("README.md", "docs/index.md")
CLICKS = 2

FAQ = "docs/faq.md"
ANSWERS = {
    "My second notebook runs out of memory.": (FAQ, "My second notebook fails", "limit 40% --restart"),
    "Memory stays after `del model`.": (FAQ, "The memory is still held", "%tf_gpu free model"),
    "How much should I ask for?": ("docs/measuring.md", "How much to ask for", "measure --fit"),
    "Who uses the GPU?": ("docs/monitoring.md", "Memory that nobody uses", "unused 2 h"),
    "How do I find a leak?": ("docs/tensors.md", "What holds the memory", "leak"),
    "Which variable is it?": ("docs/tensors.md", "By name", "%tf_gpu tensors"),
    "How do I use several GPUs?": (FAQ, "How do I use several GPUs", "%tf_gpu pick 2"),
    "What of PyTorch beside TensorFlow?": ("docs/how-limits-work.md", "Every framework", "`%gpu`"),
    "What of Keras 3 on JAX or PyTorch?": (FAQ, "Keras uses JAX", "%gpu limit 40%"),
    "JAX takes 75 %.": (FAQ, "JAX takes 75 %", "before JAX starts"),
    "What do I need in Docker?": (FAQ, "Docker", "NVIDIA_DRIVER_CAPABILITIES"),
    "What do I need under Slurm?": (FAQ, "Slurm", "CUDA_VISIBLE_DEVICES"),
    "Where do I install it on a JupyterHub?": ("docs/administrators.md", "On a JupyterHub", "single-user servers"),
    "What works in VS Code?": ("docs/front-ends.md", "Front ends", "VS Code"),
    "What works in Colab and on Kaggle?": (FAQ, "Colab and Kaggle", "%pip"),
    "Does it run on WSL 2, Windows, macOS?": (FAQ, "WSL 2, Windows and macOS", "not supported"),
    "How do I use one MIG instance?": (FAQ, "How do I use one MIG instance", "visible 0.1"),
    "TensorFlow finds no GPU.": ("docs/doctor.md", "What is wrong with this machine", "tfgpu doctor"),
    "`Line magic function %tf_gpu not found`": (FAQ, "`Line magic function", "%load_ext tfgpu_magic"),
    "How do I set a default for all my notebooks?": (FAQ, "How do I set a default", "ipython_config.py"),
    "Who sees what, and how do I remove it?": (FAQ, "How do I remove it", "pip uninstall tfgpu-magic"),
}
"""For each question the page, how the heading of the answer begins, and what the answer names."""


@cache
def _links(page: str) -> frozenset[str]:
    """Return the pages of the repository that a page links to, by their paths."""
    targets = re.findall(r"\]\(([^)#\s]+\.md)(?:#[^)]*)?\)", (ROOT / page).read_text())
    near = [(ROOT / page).parent / target for target in targets if "://" not in target]
    return frozenset(path.resolve().relative_to(ROOT).as_posix() for path in near if path.exists())


@cache
def _clicks(start: str) -> dict[str, int]:
    """Return how many clicks away each page is."""
    found = {start: 0}
    for clicks in range(1, CLICKS + 1):
        found |= {link: clicks for page in list(found) for link in _links(page) if link not in found}
    return found


def _section(page: str, heading: str) -> str:
    """Return what stands below the heading that begins so, up to the next one of its level or above."""
    text = re.sub(
        r"^```.*?^```", lambda block: block[0].replace("\n#", "\n "), (ROOT / page).read_text(), flags=re.M | re.S
    )
    (found,) = re.finditer(rf"^(#+) {re.escape(heading)}.*?(?=^#{{1,6}} |\Z)", text, re.MULTILINE | re.DOTALL)
    return found[0]


@pytest.mark.parametrize("question", ANSWERS)
def test_two_clicks_lead_to_the_answer(question: str) -> None:
    page, heading, named = ANSWERS[question]

    assert named in _section(page, heading)
    assert [start for start in STARTS if _clicks(start).get(page, CLICKS + 1) > CLICKS] == []
