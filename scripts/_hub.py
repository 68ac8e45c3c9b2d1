"""Checks, before a release, the promises that only a JupyterHub with real Unix users shows: one line for each."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable

from scripts import _hub_checks as checks
from scripts import _hub_view
from scripts._hub_rig import Hub, running

CHECKS = (
    checks.squatting_is_harmless,
    checks.closed_to_others,
    checks.boards_are_private,
    checks.metrics_for_a_service,
    checks.paths_are_private,
    checks.restart_keeps_the_token,
    checks.limits_hold_on_a_full_machine,
    checks.pick_spreads,
    checks.idle_is_culled,
    checks.working_is_not_culled,
)


def main() -> int:
    """Try all promises, and return 1 if one is broken."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(2))
    _hub_view.enter()
    with running(("ann", "bob", "cy", "dee"), culled=("cy", "dee")) as hub:
        hub.users["bob"].run("mkdir", str(hub.users["dee"].board))  # before dee ever starts
        for user in hub.users.values():
            hub.serve(user)
        checks.leave(hub)
        good = [_try(check.__doc__ or "", check, hub) for check in CHECKS]
    return 0 if all(good) else 1


def _try(promise: str, check: Callable[[Hub], str], hub: Hub) -> bool:
    try:
        wrong = check(hub)
    except Exception as error:  # the other promises are to be tried too
        wrong = f"{type(error).__name__}: {error}"
    print("ok      " if not wrong else "NOT GOOD", promise, *([f"\n         {wrong}"] if wrong else []), flush=True)
    return not wrong


if __name__ == "__main__":
    sys.exit(main())
