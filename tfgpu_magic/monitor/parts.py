"""What monitor adds to its own rows."""

from tfgpu_magic.model.parts import register

register("row fact", "tfgpu_magic.monitor.board.unused:read")
