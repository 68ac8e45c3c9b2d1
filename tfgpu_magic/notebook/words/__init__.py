"""The words of `%tf_gpu`: an entry of `table` says how a word is written, and a module does what it says.

The help and Tab completion need the table alone; a word's module is imported when the word is said or its values are
completed. Loading the extension imports none of them.
"""
