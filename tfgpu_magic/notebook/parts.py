"""What IPython's side adds to the rooms below it."""

from tfgpu_magic.model.parts import register

register("announce", "tfgpu_magic.notebook.reporter:announce")
