"""The words of `%tf_gpu`, a module and an entry of `table` each: how a word is written, and what it does.

To use one word, the help or Tab completion imports them all: what only one word needs, it imports when it is used.
Loading the extension imports none of them.
"""
