"""The words of `%tf_gpu`, a file and a line of `table.py` each: how one is written, where it may stand, what it does.

Loading the extension imports them all: what is not there by then, a word imports when it is said.
"""
