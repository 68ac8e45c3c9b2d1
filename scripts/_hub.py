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
    checks.paths_are_private,
    checks.ceiling_holds,
    checks.restart_keeps_the_token,
    checks.idle_is_culled,
    checks.working_is_not_culled,
)


def main() -> int:
    """Try all promises, and return 1 if one is broken."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _end)
    _hub_view.enter()
    with running(("ann", "bob", "cy", "dee"), culled=("cy", "dee")) as hub:
        hub.users["bob"].run("mkdir", str(hub.users["dee"].board))  # before dee ever starts
        for user in hub.users.values():
            hub.serve(user)
        checks.leave(hub)
        good = [_try(check, hub) for check in CHECKS]
    return 0 if all(good) else 1


def _end(*_: object) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the way out is not to be interrupted
    sys.exit(2)


def _try(check: Callable[[Hub], str], hub: Hub) -> bool:
    promise = (check.__doc__ or "").strip()
    try:
        wrong = check(hub)
    except Exception as error:  # the other promises are to be tried too
        wrong = f"{type(error).__name__}: {error}"
    said = f"NOT GOOD  {promise} It is: {' '.join(wrong.split())}" if wrong else f"ok        {promise}"
    print(said, flush=True)
    return not wrong


if __name__ == "__main__":
    sys.exit(main())
