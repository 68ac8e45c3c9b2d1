"""The Hub's culler stops servers whose notebooks hold GPU memory without use: a hook of jupyterhub-idle-culler 2.

What the culler decides by itself, it still does. Beyond that a server is stopped only if the machine's board has shown
all of its user's memory unused for as long as `[idle]` says, and the server itself, asked each time, runs nothing and
has told its owner long enough before. Whatever is not known stops nothing.
"""

from __future__ import annotations

import asyncio
import json
import os
import pwd
import time
import urllib.request
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote, urljoin

from tfgpu_magic.lab import file
from tfgpu_magic.lab.ladder import LEAST, Rule, rule_of
from tfgpu_magic.monitor.board import machine_board

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

LONGEST_GAP = 900.0
"""Seconds between two rounds of the culler that count as seen: what a process did meanwhile, its mark tells."""
ANSWER_TIMEOUT = 10.0
"""Seconds in which a server answers."""
LARGEST_ANSWER = 1 << 20


class Observed(NamedTuple):
    """What was seen of a user's memory.

    Attributes:
        mark: what it is and since when it is unused; another one after any use.
        idle: seconds for which it was the same.
        at: when it was looked at, by the monotonic clock, which stands while the machine sleeps.
    """

    mark: frozenset[object]
    idle: float
    at: float


def arbiter(
    *, hub: str = "http://127.0.0.1:8000", users: str = "{name}", token: str | None = None
) -> Callable[..., Coroutine[Any, Any, bool]]:
    """Return a hook for `c.IdleCuller.cull_arbiter_hook`.

    Args:
        hub: where the servers of users are reached: the Hub's proxy.
        users: the Unix user of a Hub's user, as a template.
        token: with the scope `access:servers`; by default that of the culler's own service.

    Example:
        >>> c.IdleCuller.cull_arbiter_hook = arbiter()  # doctest: +SKIP
    """
    culler = Arbiter(hub, users, token or os.environ.get("JUPYTERHUB_API_TOKEN", ""))

    async def hook(*, inactive: timedelta | None = None, inactive_limit: float, server: Any, **_: object) -> bool:
        if inactive is not None and inactive.total_seconds() >= inactive_limit:
            return True
        return await asyncio.to_thread(culler.stops, server)

    return hook


class Arbiter:
    """What decides about servers beyond the culler's own limit, from round to round."""

    def __init__(self, hub: str, users: str, token: str) -> None:
        self._hub, self._users, self._token = hub, users, token
        self._observed: dict[int, Observed] = {}

    def stops(self, server: Any) -> bool:
        """Tell whether a server is to be stopped; False wherever anything is not known."""
        try:
            user = self._users.format(name=unquote(server["url"].partition("/user/")[2].partition("/")[0]))
            idle, rule = self._idle(pwd.getpwnam(user).pw_uid), rule_of(file.table("idle"), file.groups_of(user))
            return idle >= rule.stop and _was_told(self._ask(server["url"]), rule)
        except Exception:  # of the Hub's, the server's, or the file's making: nothing is stopped for it
            return False

    def _idle(self, uid: int) -> float:
        """Return for how many seconds all that a user holds was seen unused; 0 where anything of that is unknown."""
        look, now = machine_board.published(), time.monotonic()
        mark = frozenset[object]()
        if look is not None and look.age is not None and look.stale_since is None and not look.snapshot.error:
            snapshot = look.snapshot
            rows = [row for row in snapshot.processes if row.uid in (uid, None)]
            whole = all(gpu.listed and not gpu.error for gpu in snapshot.gpus)
            known = all(None not in (row.uid, row.held, row.began, row.unused) for row in rows)
            if whole and known and sum(row.held or 0 for row in rows) >= LEAST:
                mark = frozenset((row.gpu, row.pid, row.began, row.unused) for row in rows)
        before = self._observed.get(uid)
        same = mark and before is not None and before.mark == mark
        idle = before.idle + min(now - before.at, LONGEST_GAP) if same and before is not None else 0.0
        self._observed[uid] = Observed(mark, idle, now)
        return idle

    def _ask(self, url: str) -> Any:
        request = urllib.request.Request(  # noqa: S310  # the Hub's proxy
            urljoin(self._hub, f"{url}tfgpu-magic/idle"), headers={"Authorization": f"token {self._token}"}
        )
        with urllib.request.urlopen(request, timeout=ANSWER_TIMEOUT) as answer:  # noqa: S310  # as above
            return json.loads(answer.read(LARGEST_ANSWER))


def _was_told(answer: Any, rule: Rule) -> bool:
    """Tell whether a server runs nothing, and told of all that holds memory long enough ago."""
    told = [one["told"] for one in answer["notebooks"] if one["held"] is None or one["held"] >= LEAST]
    quiet = answer["known"] is True and answer["busy"] is False
    return quiet and bool(told) and all(one is not None and one >= rule.stop - rule.notify for one in told)
