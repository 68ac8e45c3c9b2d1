"""Which global names a cell reads and binds, from its text alone; which of them are sent is decided elsewhere."""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass

from tfgpu_magic.isolate.cells.names.walk import walked


@dataclass(frozen=True, slots=True)
class Names:
    """What a cell does with global names.

    Attributes:
        reads: names whose value from before the cell it may see, builtins among them.
        binds: names that it may leave bound if it runs to its end, in the order of its text, without `imports`.
        imports: names that nothing but its import statements binds.
        turns: names that nothing but its loops bind, for each turn.
        changes: names from before the cell whose objects it may change in place, as far as that can be seen.
    """

    reads: frozenset[str] = frozenset()
    binds: tuple[str, ...] = ()
    imports: frozenset[str] = frozenset()
    turns: frozenset[str] = frozenset()
    changes: tuple[str, ...] = ()


def names(source: str) -> Names:
    """Tell what a cell reads and binds, without running it.

    A cell that runs with only its `reads` from the notebook does what it does with all of the notebook, as far as its
    text tells: what `eval`, `globals()`, `%run -i` or a function of another cell reaches for is not seen. Where the
    text leaves a doubt, a name counts as read: a branch may not be taken, a function may run before what follows it.
    One doubt is set aside, since it would send the old model whenever a cell builds a new one under
    `with strategy.scope():`. A `with` block counts as run to its end, unless its manager is named for swallowing
    exceptions (`suppress`, `raises`, ...).

    Args:
        source: Python as IPython's input transformer leaves it, with magics as calls; top-level `await` is fine.

    Returns:
        The names; none of them for text that does not compile, of which the cell's own run will tell.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the cell's own compilation will warn
        try:
            tally = walked(source)
        except RecursionError:  # nested deeper than Python's stack, not than its compiler's: every word may be a name
            return Names(reads=frozenset(re.findall(r"[^\W\d]\w*", source)))
    imports = frozenset(tally.imports.difference(tally.binds))
    turns = frozenset(tally.turns - tally.meant)
    return Names(frozenset(tally.reads), tuple(tally.binds), imports, turns, tuple(tally.changes))
