"""Requests that the server refuses: those that Jupyter Server would refuse everywhere else, too."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from http.cookiejar import CookieJar

import pytest

from tests.jupyter import Server
from tests.server.acting import post
from tests.server.conftest import Serve
from tests.server.streaming import refused, streaming

OUTSIDE = {
    "no token": {},
    "a wrong token": {"Authorization": "token 0123456789abcdef"},
}
NOT_THE_GPUS = """
from jupyter_server.auth import Authorizer

class NotTheGpus(Authorizer):
    def is_authorized(self, handler, user, action, resource):
        assert resource != "tfgpu_magic" or action in ("read", "execute")
        return resource != "tfgpu_magic"

c.ServerApp.authorizer_class = NotTheGpus
"""
BEFORE_2_13 = """
from jupyter_server.auth import decorator

theirs = vars(decorator).pop("ws_authenticated", None)
import tfgpu_magic.server.handlers
if theirs:
    decorator.ws_authenticated = theirs
"""


def answered(server: Server, headers: dict[str, str] | None) -> int:
    try:
        with server.open("tfgpu-magic/snapshot", headers=headers) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        text = error.read().decode()
        error.close()
        assert "gpus" not in text
        return error.code


def cookie(server: Server) -> str:
    """Log in as a browser does, and return the cookie."""
    jar = CookieJar()
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(jar))
    opener.open(f"http://{server.base}login?token={server.token}", timeout=240).close()
    return "; ".join(f"{one.name}={one.value}" for one in jar)


@pytest.mark.parametrize("headers", OUTSIDE.values(), ids=OUTSIDE)
def test_without_a_token_there_is_nothing_to_see(server: Server, headers: dict[str, str]) -> None:
    assert answered(server, headers) == 403
    assert refused(server, headers=headers) == 403


@pytest.mark.parametrize("config", ["", BEFORE_2_13], ids=["today", "before Jupyter Server's own check"])
def test_nor_where_the_server_lets_strangers_at_pages_that_forget_to_ask(serve: Serve, config: str) -> None:
    server = serve(strangers=True, config=config)

    assert refused(server) == 101
    for headers in OUTSIDE.values():
        assert answered(server, headers) == 403
        assert refused(server, headers=headers) == 403


def test_a_browser_that_has_logged_in_may_look_from_this_servers_pages_only(server: Server) -> None:
    headers = {"Cookie": cookie(server)}
    ours, theirs = ({**headers, "Origin": f"http://{host}"} for host in (server.base.rstrip("/"), "evil.example"))

    assert (answered(server, ours), refused(server, headers=ours)) == (200, 101)
    assert (answered(server, theirs), refused(server, headers=theirs)) == (404, 403)


def test_whom_the_authorizer_lets_not_read_is_refused(serve: Serve) -> None:
    server = serve(config=NOT_THE_GPUS)

    assert answered(server, None) == 403
    assert refused(server) == 403
    assert server.call("status")


def test_a_server_without_a_token_is_open_as_all_of_it_is(serve: Serve) -> None:
    server = serve(token="")

    assert answered(server, {}) == 200
    with streaming(server) as stream:
        assert stream.messages


def test_nothing_warns_of_an_endpoint_that_forgets_to_ask(server: Server) -> None:
    log = server.log.read_text()

    assert "tfgpu_magic.server | extension was successfully loaded." in log
    assert "of SnapshotHandler registered" not in log
    assert "of StreamHandler registered" not in log
    assert json.dumps(server.token) not in log


@pytest.mark.parametrize(
    ("action", "bodies"),
    [
        ("end", [{}, [], {"pid": 1}, {"pid": "1", "began": 5}, {"pid": True, "began": 5}, {"pid": 5, "began": -1}]),
        ("stop", [{}, [], {"pid": "1"}, {"pid": True}, {"pid": -1}, {"pid": 0}]),
    ],
)
def test_what_is_no_request_and_what_strangers_ask_is_not_done(
    server: Server, action: str, bodies: list[object]
) -> None:
    assert [post(server, action, body)[0] for body in bodies] == [400] * len(bodies)
    assert post(server, action, {"kernel": "k", "pid": 1, "began": 5}, headers={})[0] == 403
