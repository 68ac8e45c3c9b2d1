"""The words of `%tf_gpu`: an entry of `table` says how a word is written, and a module does what it says.

The help and Tab completion need the table alone; a word's module is imported when the word is said or its values are
completed. Loading the extension imports none of them.
"""

from tfgpu_magic.policy.parser import POLICY_WORDS

POLICIES = tuple(
    word._replace(flags=(), takes=True, restart=True, home=".policy", group="Set memory") for word in POLICY_WORDS
)
"""The words of a policy as a line says them: what follows is the policy's own."""
