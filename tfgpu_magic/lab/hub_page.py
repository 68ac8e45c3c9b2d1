"""The Hub's page: each user sees what they hold of the GPUs, and held, and what they were told; administrators see all.

It is a service of JupyterHub with the Hub's own login. Whose figures are shown follows from the login alone: a request
has no parameters. The figures are those of `usage`; what a user was told is known to the user's own server.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import time
from html import escape
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urljoin, urlsplit

from jupyterhub.services.auth import HubOAuthCallbackHandler, HubOAuthenticated
from tornado.httpclient import AsyncHTTPClient
from tornado.web import Application, HTTPError, RequestHandler, authenticated

from tfgpu_magic.errors import TfGpuError
from tfgpu_magic.lab import bound
from tfgpu_magic.lab.culler import LARGEST_ANSWER, idle_answer, unix_user
from tfgpu_magic.lab.exporter import UNKNOWN
from tfgpu_magic.lab.ladder import LEAST
from tfgpu_magic.lab.usage import MachineUsage, Prometheus, Spent, Usage
from tfgpu_magic.model import phrases
from tfgpu_magic.model.answer import Document, Part, grid

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from tfgpu_magic.lab.usage import Hold

ALL_USERS = "list:users"
"""The Hub's scope of those who see all users; its administrators have it."""
KEPT_FOR = 10.0
"""Seconds for which figures are shown again: nobody can have Prometheus asked more often."""
MOST_NOTEBOOKS = 100
"""Notebooks of a user that are shown, and GPUs on which a user holds more than the bound."""
POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
"""Nothing runs, and nothing is loaded."""
UNITS = "Unused memory was not used for a minute or longer. 8 GiB held for an hour are 8 GiB-hours."
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title><style>:root {{ color-scheme: light dark; }}
body {{ margin: 1.5rem auto; padding: 0 1rem; max-width: 72rem; font: 15px/1.5 system-ui, sans-serif; }}
h1 {{ margin: 0 0 1rem; padding: 0 .35em; font-size: 1.4rem; overflow-wrap: anywhere; }}
.tfgpu.tfgpu {{ --jp-ui-font-size1: 15px; max-width: none; }}
.tfgpu .tfgpu-scroll {{ max-height: none; margin: 1rem 0 1.5rem; }}
@media (max-width: 30rem) {{ .tfgpu.tfgpu {{ --jp-ui-font-size1: 13px; }}
  .tfgpu.tfgpu.tfgpu table thead th {{ white-space: normal; }}
  .tfgpu.tfgpu.tfgpu table .tfgpu-name {{ min-width: 7em; }} }}
</style></head><body><main><h1>{title}</h1>{body}</main></body></html>
"""


class SharedUsage:
    """The figures of a source, which is asked once for all who look at the same time.

    Args:
        source: it.
    """

    def __init__(self, source: Prometheus | MachineUsage) -> None:
        self._source = source
        self._kept: dict[str | None, tuple[float, asyncio.Task[Usage]]] = {}

    async def of(self, user: str | None) -> Usage:
        """Return those of a Unix user; None is all users."""
        user, now = (user if isinstance(self._source, Prometheus) else None), time.monotonic()
        self._kept = {one: kept for one, kept in self._kept.items() if now - kept[0] < KEPT_FOR}
        if user not in self._kept:
            self._kept[user] = now, asyncio.create_task(self._source.read(user))
        return await asyncio.shield(self._kept[user][1])  # who leaves takes it from nobody else


class UsagePage(HubOAuthenticated, RequestHandler):  # type: ignore[misc]  # JupyterHub has no types
    """The page."""

    SUPPORTED_METHODS = ("GET",)

    def initialize(self, figures: SharedUsage, hub: str, users: str) -> None:
        """Take where the figures are from, where the Hub's proxy is, and the template of Unix users."""
        self._figures, self._hub, self._users = figures, hub, users

    def set_default_headers(self) -> None:
        """Let nothing run, and nobody keep or frame it."""
        self.set_header("Content-Security-Policy", POLICY)
        self.set_header("Cache-Control", "no-store")
        self.set_header("Referrer-Policy", "no-referrer")
        self.set_header("X-Content-Type-Options", "nosniff")

    async def prepare(self) -> None:
        """Ask the Hub who this is; what it says is kept for `current_user`, which would wait for it in this thread."""
        await self.hub_auth.get_user(self, sync=False)

    @authenticated
    async def get(self) -> None:
        """Show the figures of who is logged in, and those of all users to who may see these."""
        who: dict[str, Any] = self.current_user
        if who["kind"] != "user":
            raise HTTPError(HTTPStatus.FORBIDDEN)
        name, sees_all = unix_user(self._users, who["name"]), ALL_USERS in who["scopes"]
        usage, told = await asyncio.gather(self._figures.of(None if sees_all else name), self._told(who["name"]))
        read_at = f"{usage.counted} Read at {time.strftime('%H:%M:%S')}.".lstrip()
        flaws, everybody = map("Warning: {}".format, usage.flaws), _everybody(usage) if sees_all else ()
        parts = (*flaws, *_own(usage, name), *told, *everybody, UNITS, read_at)
        self._show(f"GPU memory of {phrases.plain(name)}", *parts)

    def write_error(self, status_code: int, **_: object) -> None:
        """Say in a sentence what is wrong."""
        refused = status_code == HTTPStatus.FORBIDDEN
        why = "The Hub does not let you see this page." if refused else "This page cannot be shown now. Try it later."
        self._show("GPU memory", why)

    def _show(self, title: str, *parts: Part | str) -> None:
        self.finish(_PAGE.format(title=escape(title), body=Document(*parts)._repr_html_()))

    async def _told(self, name: str) -> list[Part | str]:
        """Ask the user's own server what the user was told; it gets the token of this page's login alone."""
        if self.hub_auth.get_token(self, in_cookie=False):
            return []  # a program's token, which may open more
        client = AsyncHTTPClient(force_instance=True, max_body_size=LARGEST_ANSWER)
        server = f"{os.environ.get('JUPYTERHUB_BASE_URL', '/')}user/{quote(name, safe='@~')}/"
        try:
            answer = await idle_answer(client, urljoin(self._hub, server), self.hub_auth.get_token(self))
            if answer.code == HTTPStatus.NOT_FOUND:
                return ["Your server takes no steps with idle notebooks."]
            return list(_notebooks(json.loads(answer.body) if answer.code == HTTPStatus.CONFLICT else None))
        except Exception:  # of the server's making, whatever it is
            return ["No server of yours tells of idle notebooks now."]
        finally:
            client.close()


def _own(usage: Usage, name: str) -> Iterator[Part | str]:
    """Draw what a user holds, and has held."""
    if name == UNKNOWN:  # all whom the system has no name for are called so
        yield f"The figures of a user called {UNKNOWN} are not known."
        return
    holds = None if usage.holds is None else usage.holds.get(name, ())
    if holds:
        rows = [(one.host, one.gpu, _size(one.held), _size(one.unused)) for one in holds]
        yield grid(("<Machine", ">GPU", ">Held", ">Unused"), rows, "Held now")
    else:
        yield "What you hold now is not known." if holds is None else "As far as is known, you hold no GPU memory now."
    times = [(span, *_hours(spent, name)) for span, spent in usage.spent.items()]
    yield grid(("<Time", ">Held", ">Unused"), times, "GiB-hours")


def _everybody(usage: Usage) -> Iterator[Part | str]:
    """Draw a line for each user who holds memory or has held it; who has held most of it without use comes first."""
    holds, spans = usage.holds or {}, usage.spent
    users = {user for found in (holds, *spans.values()) if found for user in found}

    def order(user: str) -> tuple[object, ...]:
        totals = [(found or {}).get(user, Spent()) for found in reversed(list(spans.values()))]
        return *((-one.unused, -one.held) for one in totals), user

    rows = []
    for user in sorted(users, key=order):
        own = holds.get(user, ())
        nothing = ("N/A", "N/A") if usage.holds is None or usage.flaws else ("-", "-")
        held = (_total(one.held for one in own), _total(one.unused for one in own)) if own else nothing
        hours = (figure for spent in spans.values() for figure in _hours(spent, user))
        rows.append((phrases.plain(user), _places(own), *held, *hours))
    heads = [head for span in spans for head in (f">{span}", ">unused")]
    yield grid(("<User", "<GPUs", ">Held now", ">unused", *heads), rows, "All users, and their GiB-hours", long=True)
    if not rows and not usage.flaws:
        yield "Nobody is known to hold GPU memory, or to have held it."


def _notebooks(told: Any) -> Iterator[Part | str]:
    """Draw what a server says of its idle notebooks and of the bound; whatever is wrong with that is raised."""
    for gpu, one in list(told.get("over", {}).items())[:MOST_NOTEBOOKS]:
        yield f"Warning: {bound.sentence(phrases.plain(gpu), bound.OverBound(one['held'], one['bound']))}"
    rows = []
    for one in told["notebooks"][:MOST_NOTEBOOKS]:
        if one["idle"] > 0 and (one["held"] is None or one["held"] >= LEAST):
            name, idle = phrases.plain(one["name"] or one["path"]), phrases.duration(one["idle"])
            rows.append((name, _size(one["held"]), idle, _steps(one)))
    if told["known"] is not True:
        yield "Your server does not know now what is idle."
    elif not rows:
        yield "No notebook of your server holds GPU memory idly."
    else:
        yield grid(("<Notebook", ">Held", ">Idle for", "<You were told"), rows, "Idle notebooks", long=True)


def _steps(one: Mapping[str, Any]) -> str:
    if one["told"] is None:
        return "nothing yet"
    if one["rests"] > 0:
        return f"not today: put off for {phrases.duration(one['rests'])} more"
    words = {"park": "parked", "stop": "shut down"}
    steps = [f"{words[step]} in {phrases.duration(one['due'][step])}" for step in words if step in one["due"]]
    return f"{phrases.duration(one['told'])} ago: {' and '.join(steps) or 'it is idle'}"


def _size(size: float | None) -> str:
    return phrases.with_unit(None if size is None else round(size))


def _total(sizes: Iterable[float | None]) -> str:
    known = list(sizes)
    return _size(None if None in known else sum(filter(None, known)))


def _hours(spent: Mapping[str, Spent] | None, user: str) -> Sequence[str]:
    """Write the GiB-hours of a user, and those without use; a user of whom there is nothing has a dash."""
    if spent is None:
        return "N/A", "N/A"
    return [phrases.gib(round(one / 3600)) for one in spent[user]] if user in spent else ("-", "-")


def _places(holds: Sequence[Hold]) -> str:
    """Write where GPUs are: ``lab1: 0 1, lab2: 3``; a line breaks between machines."""
    hosts: dict[str, list[str]] = {}
    for one in holds:
        hosts.setdefault(one.host, []).append(one.gpu)
    return ", ".join(f"{host}: {' '.join(gpus)}".replace(" ", "\N{NO-BREAK SPACE}") for host, gpus in hosts.items())


async def serve(prometheus: str | None, hub: str, users: str) -> None:
    """Answer until this process is ended.

    Args:
        prometheus: its URL; None is this machine's own figures.
        hub: where the servers of users are reached: the Hub's proxy.
        users: the Unix user of a Hub's user, as a template.

    Raises:
        TfGpuError: no Hub has started this, it cannot listen where the Hub says, or the template is none.
    """
    try:
        prefix, where = os.environ["JUPYTERHUB_SERVICE_PREFIX"], urlsplit(os.environ["JUPYTERHUB_SERVICE_URL"])
    except KeyError as error:
        raise TfGpuError(f"a JupyterHub runs this, as a service that has a url: {error.args[0]} is not set.") from error
    known = False
    with contextlib.suppress(LookupError, ValueError, AttributeError):
        known = unix_user(users, "ann") != unix_user(users, "ben")
    if not known:
        raise TfGpuError(f"{users!r} does not name the Unix user of a Hub's user. Write one as hub-{{name}}.")
    figures = SharedUsage(Prometheus(prometheus) if prometheus else MachineUsage())
    given = {"figures": figures, "hub": hub, "users": users}
    pages: list[Any] = [
        (f"{re.escape(prefix)}oauth_callback", HubOAuthCallbackHandler),
        (re.escape(prefix), UsagePage, given),
    ]
    try:
        Application(pages, cookie_secret=os.urandom(32)).listen(where.port or 0, where.hostname or "127.0.0.1")
    except OSError as error:
        raise TfGpuError(f"{where.geturl()} cannot be listened on: {error.strerror}.") from error
    await asyncio.Event().wait()
