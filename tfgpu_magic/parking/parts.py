"""What parking adds to the rooms below it, and its words, as data; no more of it is imported before it is asked for."""

from __future__ import annotations

from tfgpu_magic.model.parts import register
from tfgpu_magic.policy.word import Word

PARK = Word(
    "park",
    ("park", "park train.ipynb", "park --auto 20m [--when-needed]", "park --to disk", "park --check"),
    "move the GPU memory of this notebook, or of another one of yours, to host memory when its cell has ended; its "
    "next cell brings it back. `--auto` does so automatically, `--to disk` moves it to a disk that an administrator "
    "has named, `--check` shows whether it is possible and why not",
    flags=(("--auto", True), ("--when-needed", False), ("--to", True), ("--check", False)),
    takes=True,
    tried=("suspend", "pause", "hibernate", "checkpoint", "swap", "offload", "sleep"),
    instead="`%tf_gpu park` moves what this notebook holds of the GPUs to host memory, and keeps it.",
    home="tfgpu_magic.parking.words.park",
    group="Park (experimental)",
)
UNPARK = Word(
    "unpark",
    ("unpark", "unpark train.ipynb", "unpark --without-gpu"),
    "bring a parked notebook back to the GPU, as its next cell does automatically; `--without-gpu`, alone in a cell, "
    "runs its cells without the GPU, to save what is in host memory",
    flags=(("--without-gpu", False),),
    takes=True,
    tried=("resume", "wake", "restore", "unpause"),
    instead="`%tf_gpu unpark train.ipynb` brings a parked notebook back; its next cell does so by itself.",
    home="tfgpu_magic.parking.words.unpark",
    group="Park (experimental)",
)

register("word", "tfgpu_magic.parking.parts:PARK")
register("word", "tfgpu_magic.parking.parts:UNPARK")
register("row fact", "tfgpu_magic.parking.rows:read")
register("adviser", "tfgpu_magic.parking.idle_notebooks:name_one")
register("parks", "tfgpu_magic.parking.facts:allowed_module")
register("parking on", "tfgpu_magic.parking.inside.introspection:keep_nvml")
register("parking on", "tfgpu_magic.parking.facts:users_limit")
register("parks itself", "tfgpu_magic.parking.inside.automatic:start")
register("handlers", "tfgpu_magic.parking.handlers:handlers")
register("park", "tfgpu_magic.parking.handlers:park")
register("end", "tfgpu_magic.parking.handlers:parks_first")
register("check", "tfgpu_magic.parking.doctor_check:TITLED")
register("report", "tfgpu_magic.parking.doctor_check:report")
