"""What parking adds to the rooms below it; nothing else of it is imported before one of these is asked for."""

from __future__ import annotations

from tfgpu_magic.model.parts import register

register("word", "tfgpu_magic.parking.words:PARK")
register("word", "tfgpu_magic.parking.words:UNPARK")
register("row fact", "tfgpu_magic.parking.rows:read")
register("adviser", "tfgpu_magic.parking.idle_notebooks:name_one")
register("parks", "tfgpu_magic.parking.facts:allowed_module")
register("parking on", "tfgpu_magic.parking.inside.introspection:keep_nvml")
register("parking on", "tfgpu_magic.parking.facts:users_limit")
register("parks itself", "tfgpu_magic.parking.inside.automatic:start")
register("handlers", "tfgpu_magic.parking.handlers:handlers")
register("end", "tfgpu_magic.parking.handlers:parks_first")
register("check", "tfgpu_magic.parking.doctor_check:TITLED")
register("report", "tfgpu_magic.parking.doctor_check:report")
