"""IPython's side: loading, the magics, their words, completion, the widget, what is done around cells, a restart."""
