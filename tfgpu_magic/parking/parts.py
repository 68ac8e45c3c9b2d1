"""The words of parking as data; no more of it is imported before one is written."""

from __future__ import annotations

from tfgpu_magic.model.parts import register
from tfgpu_magic.policy.word import Word

PARK = Word(
    "park",
    ("park",),
    "parking is being rebuilt: this changes nothing, and shows what to run instead",
    takes=True,
    tried=("suspend", "pause", "hibernate", "checkpoint", "swap", "offload", "sleep"),
    instead="Parking, `%tf_gpu park`, is being rebuilt; `%%tf_gpu isolate` gives one cell's GPU memory back.",
    home="tfgpu_magic.parking.words",
    group="Park",
)
UNPARK = Word(
    "unpark",
    ("unpark",),
    "the same for the way back",
    takes=True,
    tried=("resume", "wake", "restore", "unpause"),
    instead="Parking, `%tf_gpu park`, is being rebuilt, so nothing is parked.",
    home="tfgpu_magic.parking.words",
    group="Park",
)

register("word", "tfgpu_magic.parking.parts:PARK")
register("word", "tfgpu_magic.parking.parts:UNPARK")
