"""A real JupyterHub that runs the services of the administrators' page, and a browser without a screen for its users.

No proxy of JupyterHub's is installed here. What it would do, `Front` does: it passes on what it is asked, by the path.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import subprocess
import sys
import threading
import urllib.parse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.cookies import SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import psutil

from tests.jupyter import free_port
from tests.waiting import until

PAGE = (Path(__file__).parents[2] / "docs" / "administrators.md").read_text()
(BLOCK,) = (block for block in re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE) if "gpus" in block)
"""What the page has administrators write."""

_CONFIG = """
import copy, json
from jupyterhub.proxy import Proxy

class NoProxy(Proxy):
    should_start = False
    async def add_route(self, *_): pass
    async def delete_route(self, *_): pass
    async def get_all_routes(self): return {}

rig = json.load(open("rig.json"))
(page,), c.JupyterHub.services = c.JupyterHub.services, [{"name": "other", "api_token": rig["token"]}]
del page["user"]
for name, (url, words) in rig["services"].items():
    command = [*rig["command"], page["command"][1], *words]
    one = {"name": name, "url": url, "command": command, "environment": rig["environment"]}
    c.JupyterHub.services.append(page | one)
scopes = c.JupyterHub.load_roles[0]["scopes"]
assert scopes.pop() == "access:services!service=gpus"
scopes += [f"access:services!service={name}" for name in rig["services"]]
c.JupyterHub.load_roles.append({"name": "other", "services": ["other"], "scopes": ["access:services", "tokens"]})
c.JupyterHub.proxy_class, c.JupyterHub.redirect_to_server = NoProxy, False
c.JupyterHub.bind_url, c.JupyterHub.hub_bind_url = rig["url"], rig["hub"]
c.JupyterHub.authenticator_class = "dummy"
c.Authenticator.allowed_users, c.Authenticator.admin_users = set(rig["users"]), {rig["users"][-1]}
"""


class Front(BaseHTTPRequestHandler):
    """What stands in for the Hub's proxy, and for the servers of its users, which answer what they are told to."""

    ports: Mapping[str, int]
    answers: dict[str, tuple[int, Any]]
    asked: list[tuple[str, str]]

    def do_GET(self) -> None:
        if self.path.startswith("/user/"):
            self.asked.append((self.path, self.headers["Authorization"]))
            status, found = self.answers.get(self.path.split("/")[2], (503, None))
            self.respond(status, [], found if isinstance(found, bytes) else json.dumps(found).encode())
            return
        prefix = next(prefix for prefix in self.ports if self.path.startswith(prefix))
        body = self.rfile.read(int(self.headers["Content-Length"] or 0))
        connection = http.client.HTTPConnection("127.0.0.1", self.ports[prefix], timeout=120)
        try:
            connection.request(self.command, self.path, body, dict(self.headers.items()))
            answer = connection.getresponse()
            self.respond(answer.status, answer.getheaders(), answer.read())
        except OSError:
            self.respond(503, [], b"")
        finally:
            connection.close()

    do_POST = do_HEAD = do_GET  # noqa: N815  as the library calls them

    def respond(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        self.send_response_only(status)
        for name, value in headers:
            if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        with contextlib.suppress(OSError):
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@dataclass
class Hub:
    """A Hub that runs.

    Attributes:
        url: that of the proxy.
        token: a service's, which may access services.
        answers: what users' servers answer, by user: the status and the body.
        asked: what came to servers: the path and the authorization.
    """

    url: str
    token: str
    answers: dict[str, tuple[int, Any]]
    asked: list[tuple[str, str]]

    def ask(self, path: str, cookies: dict[str, str] | None = None, **more: Any) -> http.client.HTTPResponse:
        """Ask, and follow it nowhere; return the answer, which is read already as `text`."""
        where = urllib.parse.urlsplit(self.url)
        connection = http.client.HTTPConnection(where.netloc, timeout=120)
        headers = {"Cookie": "; ".join(f"{name}={value}" for name, value in (cookies or {}).items())}
        connection.request(more.get("method", "GET"), path, more.get("body"), headers | more.get("headers", {}))
        answer = connection.getresponse()
        answer.text = answer.read().decode()  # type: ignore[attr-defined]
        connection.close()
        for line in answer.headers.get_all("Set-Cookie") or []:
            for name, morsel in SimpleCookie(line).items():
                if cookies is not None:
                    cookies[name] = morsel.value
        return answer


@dataclass
class Visitor:
    """Somebody's browser.

    Attributes:
        hub: the Hub.
        cookies: what it keeps.
    """

    hub: Hub
    name: str
    cookies: dict[str, str] = field(default_factory=dict)

    def open(self, path: str, method: str = "GET", body: str | None = None, **headers: str) -> tuple[int, str]:
        """Go to a page, and where that leads; return the status and the text."""
        for _ in range(12):
            answer = self.hub.ask(path, self.cookies, method=method, body=body, headers=headers)
            where = answer.headers["Location"]
            if not 300 <= answer.status < 400 or where is None:
                break
            path, method, body = (
                urllib.parse.urljoin(self.hub.url + path, where).removeprefix(self.hub.url),
                "GET",
                None,
            )
        return answer.status, answer.text  # type: ignore[attr-defined]

    def log_in(self) -> Visitor:
        """Log in to the Hub."""
        self.open("/hub/login")
        form = {"username": self.name, "password": "-", "_xsrf": self.cookies["_xsrf"]}
        kind = {"Content-Type": "application/x-www-form-urlencoded"}
        status, text = self.open("/hub/login", "POST", urllib.parse.urlencode(form), **kind)
        assert "jupyterhub-session-id" in self.cookies, (status, text)
        return self


@contextlib.contextmanager
def running(
    folder: Path, users: list[str], services: Mapping[str, list[str]], environment: Mapping[str, str]
) -> Iterator[Hub]:
    """Run a Hub.

    Args:
        folder: for what it writes.
        users: may log in; the last one is its administrator.
        services: those of the page, by name: what `tfgpu hub` is told.
        environment: of these.
    """
    ports = {f"/services/{name}/": free_port() for name in services} | {"/": free_port()}
    kept: dict[str, Any] = {"ports": ports, "answers": {}, "asked": []}
    front = ThreadingHTTPServer(("127.0.0.1", 0), type("OneFront", (Front,), kept))
    threading.Thread(target=front.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{front.server_port}"
    told = {
        name: (f"http://127.0.0.1:{ports[f'/services/{name}/']}", [*words, "--hub", url])
        for name, words in services.items()
    }
    rig = {
        "url": url,
        "hub": f"http://127.0.0.1:{ports['/']}",
        "users": users,
        "services": told,
        "environment": dict(environment),
        "command": [sys.executable, "-m", "tfgpu_magic"],
        "token": "0123456789abcdef" * 2,
    }
    (folder / "rig.json").write_text(json.dumps(rig))
    (folder / "jupyterhub_config.py").write_text(BLOCK + _CONFIG)
    command = [sys.executable, "-m", "jupyterhub", "--config", "jupyterhub_config.py"]
    hub = Hub(url, str(rig["token"]), kept["answers"], kept["asked"])
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    try:

        def ready() -> bool:
            assert process.poll() is None, (folder / "log").read_text()
            return all(hub.ask(path).status == 302 for path in ports)

        until(ready, seconds=120, every=0.2)
        yield hub
    finally:
        # It ends its services, unless it is still about to start the last one.
        started = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(60)
        process.kill()
        process.wait()
        for service in started:
            with contextlib.suppress(psutil.Error):
                service.kill()
        psutil.wait_procs(started)
        front.shutdown()
        front.server_close()
