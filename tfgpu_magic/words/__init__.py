"""The words of `%tf_gpu`, a file and a line of `table.py` each: how one is written, where it may stand, what it does.

Who says one word, asks for help or presses Tab has imported them all: what a word alone needs, it imports when it is
said. Loading the extension imports none.
"""
