"""The Hub's culler stops servers whose notebooks hold GPU memory without use: a hook of jupyterhub-idle-culler 2.

What the culler decides by itself, it still does. Beyond that a server is stopped only if the machine's board has shown
all of its user's memory unused for as long as `[idle]` says, and the server itself, asked each time, runs nothing and
has told its owner long enough before. Whatever is not known stops nothing.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import pwd
import time
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, unquote, urljoin

from tornado.httpclient import AsyncHTTPClient

from tfgpu_magic.lab import file
from tfgpu_magic.lab.ladder import LEAST, Rule, rule_of
from tfgpu_magic.monitor.board import machine_board

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from datetime import timedelta

    from tornado.httpclient import HTTPResponse

LONGEST_GAP = 900.0
"""Seconds between two rounds of the culler that count as seen: what a process did meanwhile, its mark tells."""
ANSWER_TIMEOUT = 5.0
"""Seconds in which the Hub, and then a server, answers to the last byte."""
TOKEN_LIFE = 60
"""Seconds for which the token holds that a server is asked with."""
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


def arbiter(*, hub: str = "http://127.0.0.1:8000", users: str = "{name}") -> Callable[..., Coroutine[Any, Any, bool]]:
    """Return a hook for `c.IdleCuller.cull_arbiter_hook`.

    It takes the Hub's API and a token with the scope `tokens` from the environment, as the Hub gives them to a service.

    Args:
        hub: where the servers of users are reached: the Hub's proxy.
        users: the Unix user of a Hub's user, as a template.

    Example:
        >>> c.IdleCuller.cull_arbiter_hook = arbiter()  # doctest: +SKIP
    """
    culler = Arbiter(hub, users)

    async def hook(*, inactive: timedelta | None = None, inactive_limit: float, server: Any, **_: object) -> bool:
        if inactive is not None and inactive.total_seconds() >= inactive_limit:
            return True
        return await culler.stops(server)

    return hook


class Arbiter:
    """What decides about servers beyond the culler's own limit, from round to round."""

    def __init__(self, hub: str, users: str) -> None:
        self._hub, self._users = hub, users
        self._observed: dict[int, Observed] = {}

    async def stops(self, server: Any) -> bool:
        """Tell whether a server is to be stopped; False wherever anything is not known."""
        try:
            name = unquote(server["url"].partition("/user/")[2].partition("/")[0])
            idle, rule = await asyncio.to_thread(self._seen, unix_user(self._users, name))
            return idle >= rule.stop and _was_told(await self._ask(name, server["url"]), rule)
        except Exception:  # of the Hub's, the server's, or the file's making: nothing is stopped for it
            return False

    def _seen(self, user: str) -> tuple[float, Rule]:
        """Return for how long a Unix user's memory was seen unused, and the user's rule."""
        return self._idle(pwd.getpwnam(user).pw_uid), rule_of(file.table("idle"), file.groups_of(user))

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

    async def _ask(self, name: str, url: str) -> Any:
        """Ask a server, which belongs to its user: all that it gets is a token that opens this user's servers only."""
        client = AsyncHTTPClient(force_instance=True, max_body_size=LARGEST_ANSWER)
        try:
            token = await _token(client, name, url)
            return json.loads((await idle_answer(client, urljoin(self._hub, url), token)).body)
        finally:
            client.close()


def unix_user(users: str, name: str) -> str:
    """Return the Unix user of a Hub's user, by a template: what stands in it for `{name}` is the Hub's name."""
    return users.format(name=name)


async def idle_answer(client: AsyncHTTPClient, server: str, token: str) -> HTTPResponse:
    """Ask a user's server for its idle notebooks; what it answers is of its user's making.

    Asked so, it answers with an error's status: the Hub's proxy counts any other answer as activity.

    Args:
        client: takes `LARGEST_ANSWER` at the most.
        server: the server's address, behind the Hub's proxy.
        token: one that opens no more than this user's servers.
    """
    return await fetch(client, f"{server}tfgpu-magic/idle?culler", headers={"Authorization": f"token {token}"})


async def _token(client: AsyncHTTPClient, name: str, url: str) -> str:
    """Return a new token for a user's servers.

    Raises:
        PermissionError: the Hub gives none.
    """
    order = {
        "scopes": [f"access:servers!user={name}"],
        "expires_in": TOKEN_LIFE,
        "note": f"Server at {url} is asked whether it may be stopped",  # so begun, its use is no activity of the user
    }
    where = f"{os.environ['JUPYTERHUB_API_URL']}/users/{quote(name, safe='')}/tokens"
    own = {"Authorization": f"token {os.environ['JUPYTERHUB_API_TOKEN']}"}
    made = await fetch(client, where, headers=own, method="POST", body=json.dumps(order))
    if made.code != HTTPStatus.CREATED:
        why = f"the Hub gives no token for the servers of {name} (HTTP {made.code}): the culler needs the scope tokens"
        logging.getLogger(__name__).warning("tfgpu_magic: %s", why)
        raise PermissionError(why)
    return str(json.loads(made.body)["token"])


async def fetch(client: AsyncHTTPClient, url: str, timeout: float | None = None, **more: Any) -> HTTPResponse:
    """Return what is answered, of whatever status, in time; no redirect is followed, which could take a token along."""
    return await client.fetch(
        url,
        raise_error=False,
        request_timeout=timeout or ANSWER_TIMEOUT,
        follow_redirects=False,
        decompress_response=False,
        **more,
    )


def _was_told(answer: Any, rule: Rule) -> bool:
    """Tell whether a server runs nothing, and told of all that holds memory long enough ago."""
    told = [one["told"] for one in answer["notebooks"] if one["held"] is None or one["held"] >= LEAST]
    quiet = answer["known"] is True and answer["busy"] is False
    return quiet and bool(told) and all(one is not None and one >= rule.stop - rule.notify for one in told)
