"""Finds which global names a cell reads and binds, from its text alone; `inputs` chooses which of them are sent."""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass

from tfgpu_magic.isolate.cells.names.walk import walked


@dataclass(frozen=True, slots=True)
class Names:
    """What a cell does with global names.

    Attributes:
        reads: names of which it may see the value from before the cell, builtins among them.
        binds: names that it may leave bound if it runs to its end, in the order of its text, without `imports`.
        imports: names that only its import statements bind.
        turns: names that only its loops bind, at each iteration.
    """

    reads: frozenset[str] = frozenset()
    binds: tuple[str, ...] = ()
    imports: frozenset[str] = frozenset()
    turns: frozenset[str] = frozenset()


def names(source: str) -> Names:
    """Return what a cell reads and binds, without running it.

    A cell that runs with only its `reads` from the notebook does what it does with all of the notebook, as far as its
    text shows: names that `eval`, `globals()`, `%run -i` or a function of another cell uses are not seen. In doubt, a
    name counts as read: a branch may not be taken, a function may run before what follows it. One doubt is set aside,
    since it would send the old model whenever a cell builds a new one under `with strategy.scope():`. A `with` block
    counts as run to its end, unless its manager is named for swallowing exceptions (`suppress`, `raises`, ...).

    Args:
        source: Python as IPython's input transformer leaves it, with magics as calls; top-level `await` is fine.

    Returns:
        The names; none for text that does not compile, since the cell's own run will raise the error.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the cell's own compilation will warn
        try:
            walk = walked(source)
        except RecursionError:  # nested too deep for Python's stack, but not for its compiler: every word may be a name
            return Names(reads=frozenset(re.findall(r"[^\W\d]\w*", source)))
    imports = frozenset(walk.imports.difference(walk.binds))
    turns = frozenset(walk.turns - walk.meant)
    return Names(frozenset(walk.reads), tuple(walk.binds), imports, turns)
