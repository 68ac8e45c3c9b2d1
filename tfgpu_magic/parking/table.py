"""The words of parking as data; no more of it is imported before one is written."""

from __future__ import annotations

from tfgpu_magic.policy.word import Flag, Word

TIMES = ("10m", "20m", "1h", "off")
"""Values of `--auto` to offer."""

PARK = Word(
    "park",
    ("park", "park train.ipynb", "park --check", "park --auto 20m [--when-needed]"),
    "moves what can leave the GPU, of this notebook or of another one of yours, to host memory until its next cell; "
    "--check says what leaves and what stays; --auto does it whenever no cell has run for so long, until `--auto off`",
    flags=(
        Flag("--check", "", "say what leaves the GPU and what stays, and change nothing"),
        Flag("--auto", "TIME", "park it whenever no cell has run for so long; `off` ends that", TIMES),
        Flag("--when-needed", "", "with --auto: only if another process of yours finds no room on its GPUs"),
    ),
    takes=True,
    tried=("suspend", "pause", "hibernate", "checkpoint", "swap", "offload", "sleep"),
    instead="`%tf_gpu park` moves this notebook's variables and tensors to host memory until its next cell.",
    home="tfgpu_magic.parking.words",
    group="Park",
)
UNPARK = Word(
    "unpark",
    ("unpark", "unpark --without-gpu NAME ..."),
    "says that all is back: any cell brings it back before it runs; --without-gpu, alone in a cell, makes NumPy arrays "
    "of what is parked",
    flags=(Flag("--without-gpu", "NAME ...", "make NumPy arrays of what is parked of these names"),),
    tried=("resume", "wake", "restore", "unpause"),
    instead="A parked notebook comes back by itself before its next cell runs.",
    home="tfgpu_magic.parking.words",
    group="Park",
)
