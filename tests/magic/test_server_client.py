"""Where a kernel sends its server's token: to the server that it comes from, and to no other listener at its port."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import ssl
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.jupyter import free_port
from tfgpu_magic.notebook.server_client import Server

SECRET = "the-token"
FIND = """
import sys
from pathlib import Path
from tfgpu_magic.notebook import restart
from tfgpu_magic.errors import Refused
try:
    server = restart._find_server(Path("kernel-0123-abc.json"))
    print("found", server.token)
except Refused as refusal:
    print(refusal)
"""


ELSEWHERE = """
import sys
sys.modules |= dict.fromkeys(("ipykernel", "jupyter_client", "jupyter_core", "zmq"))
from tfgpu_magic.errors import Refused
from tfgpu_magic.notebook.restart import restart
try:
    restart("limit 1GiB")
except Refused as refusal:
    print(refusal)
"""


class Listener:
    """A program that listens at a port, answers all alike, and keeps what was said."""

    def __init__(self, answer: str = "200 OK", *, family: int = socket.AF_INET, port: int = 0, https: bool = False):
        self.heard = ""
        self._answer = answer
        self._https = https
        self._socket = socket.socket(family)
        self._socket.bind(("127.0.0.1" if family == socket.AF_INET else "::1", port))
        self._socket.listen()
        self.port = self._socket.getsockname()[1]
        self._thread = threading.Thread(target=self._listen)
        self._thread.start()

    def _listen(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._socket.accept()
                with contextlib.suppress(OSError), connection:
                    self._serve(connection)

    def _serve(self, connection: socket.socket) -> None:
        if self._https:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(os.environ["TEST_CERTIFICATE"])
            connection = context.wrap_socket(connection, server_side=True)
        said = connection.recv(65536)
        if said.startswith(b"\xff"):
            return  # ZeroMQ's greeting: somebody looks for a kernel of another test, which had this port
        self.heard += said.decode()
        connection.sendall(f"HTTP/1.1 {self._answer}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())
        connection.close()

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()


@contextlib.contextmanager
def listening(answer: str = "200 OK", **options: object) -> Iterator[Listener]:
    listener = Listener(answer, **options)  # type: ignore[arg-type]
    try:
        yield listener
    finally:
        listener.close()


def dead_pid() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def tell(runtime: Path, port: int, *, pid: int | None = None, token: str = SECRET, **more: object) -> None:
    """Write the info file of a server: of this process, unless another is said."""
    pid = os.getpid() if pid is None else pid
    url = f"http://localhost:{port}/user/me/"
    info = {"url": url, "token": token, "pid": pid, "port": port, "sock": "", **more}
    (runtime / f"jpserver-{pid}.json").write_text(json.dumps(info))


def asked(runtime: Path, *, wrapped: str = FIND, **environment: str) -> str:
    """Return what a kernel that this process has started finds."""
    variables = {"JUPYTER_RUNTIME_DIR": str(runtime), "JPY_PARENT_PID": str(os.getpid()), **environment}
    done = subprocess.run(
        [sys.executable, "-c", wrapped], env=os.environ | variables, capture_output=True, text=True, check=True
    )
    return done.stdout


@pytest.mark.parametrize(
    ("token", "hub", "found"), [(SECRET, "", SECRET), ("", "the-hubs", "the-hubs")], ids=["its own", "JupyterHub's"]
)
def test_the_server_that_a_kernel_comes_from_is_found_and_gets_its_token(
    tmp_path: Path, token: str, hub: str, found: str
) -> None:
    with listening() as ours:
        tell(tmp_path, ours.port, token=token)

        assert asked(tmp_path, **({"JUPYTERHUB_API_TOKEN": hub} if hub else {})) == f"found {found}\n"
    assert ours.heard.startswith("GET /user/me/api/kernels/0123-abc HTTP/1.1\r\n")
    assert f"Authorization: token {found}\r\n" in ours.heard
    assert f"Host: localhost:{ours.port}\r\n" in ours.heard


def test_so_it_is_where_a_program_between_them_has_started_the_kernel(tmp_path: Path) -> None:
    between = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {FIND!r}])"
    with listening() as ours:
        tell(tmp_path, ours.port)

        assert asked(tmp_path, wrapped=between, JPY_PARENT_PID="1") == f"found {SECRET}\n"


def test_who_listens_at_the_port_of_a_dead_server_hears_nothing(tmp_path: Path) -> None:
    for pid in (dead_pid(), 1):
        with listening() as stranger:
            tell(tmp_path, stranger.port, pid=pid)

            said = asked(tmp_path, JUPYTERHUB_API_TOKEN=SECRET, JPY_PARENT_PID=str(pid))
            assert "Restart the kernel from its menu" in said
        assert stranger.heard == ""


def test_another_server_of_the_same_user_hears_nothing(tmp_path: Path) -> None:
    code = textwrap.dedent("""
        import socket, sys
        listener = socket.socket(); listener.bind(("127.0.0.1", 0)); listener.listen()
        print(listener.getsockname()[1], flush=True)
        listener.settimeout(60)
        sys.stdin.close() if sys.stdin.read(1) else None
        listener.settimeout(0)
        try:
            while (said := listener.accept()[0].recv(1000)).startswith(b"\\xff"):
                pass  # ZeroMQ's greeting, as above
            print(said)
        except BlockingIOError: print("nobody came")
    """)
    with subprocess.Popen([sys.executable, "-c", code], stdin=-1, stdout=-1, text=True) as other:
        assert other.stdin
        assert other.stdout
        tell(tmp_path, int(other.stdout.readline()), pid=other.pid)
        # As a substring the number of our parent may be in another's.
        said = asked(tmp_path, JPY_PARENT_PID=str(other.pid)[:-1])
        other.stdin.write(".")
        other.stdin.close()

        assert said.startswith("No Jupyter Server")
        assert other.stdout.read() == "nobody came\n"


def test_where_the_server_listens_no_longer_nobody_else_hears_the_token(tmp_path: Path) -> None:
    code = "import socket, sys; one = socket.create_server(('127.0.0.1', int(sys.argv[1]))); input()"
    port = free_port()
    with subprocess.Popen([sys.executable, "-c", code, str(port)], stdin=-1):  # a process that is not this one
        tell(tmp_path, port)  # and this one wrote that it would listen there

        assert f"does not listen at port {port}" in asked(tmp_path)


@pytest.mark.skipif(not socket.has_ipv6, reason="there is no IPv6 here")
def test_a_stranger_at_another_address_of_the_same_name_hears_nothing(tmp_path: Path) -> None:
    with listening() as ours:
        try:
            stranger = Listener(family=socket.AF_INET6, port=ours.port)
        except OSError:
            pytest.skip("there is no ::1 here")
        tell(tmp_path, ours.port, url=f"http://[::1]:{ours.port}/")
        said = asked(tmp_path)
        stranger.close()

    assert said == f"found {SECRET}\n"
    assert stranger.heard == ""


def test_who_took_its_port_while_it_was_called_hears_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with listening() as stranger:
        addresses = iter([("127.0.0.1", stranger.port), ("127.0.0.2", stranger.port)])  # before and after it connects
        monkeypatch.setattr(Server, "address", lambda _: next(addresses))
        server = Server(os.getpid(), 0.0, f"http://localhost:{stranger.port}/", SECRET, "0123-abc")

        with pytest.raises(OSError, match="listens there no longer"):
            server.call()
    assert stranger.heard == ""


def test_a_redirect_is_not_followed(tmp_path: Path) -> None:
    with listening() as stranger:
        with listening(f"302 Found\r\nLocation: http://127.0.0.1:{stranger.port}/") as ours:
            tell(tmp_path, ours.port)

            assert "HTTP status 302" in asked(tmp_path)
        assert stranger.heard == ""


def test_no_proxy_hears_it_either(tmp_path: Path) -> None:
    with listening() as proxy, listening() as ours:
        tell(tmp_path, ours.port)

        assert asked(tmp_path, http_proxy=f"http://127.0.0.1:{proxy.port}", no_proxy="") == f"found {SECRET}\n"
        assert proxy.heard == ""


def test_https_with_a_certificate_of_its_own_is_spoken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = tmp_path / "both.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=host.example", "-days", "2"]
    try:
        subprocess.run([*command, "-keyout", made, "-out", tmp_path / "c.pem"], check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("there is no openssl here")
    made.write_text(made.read_text() + (tmp_path / "c.pem").read_text())
    monkeypatch.setenv("TEST_CERTIFICATE", str(made))
    with listening(https=True) as ours:
        tell(tmp_path, ours.port, url=f"https://host.example:{ours.port}/")

        assert asked(tmp_path) == f"found {SECRET}\n"


def test_a_server_at_a_unix_socket_is_refused_in_so_many_words(tmp_path: Path) -> None:
    tell(tmp_path, 0, url="http+unix://%2Ftmp%2Fjupyter.sock/", sock="/tmp/jupyter.sock")

    assert "listens on a Unix socket" in asked(tmp_path)
    assert "Restart the kernel from its menu" in asked(tmp_path)


def test_a_kernel_that_is_not_jupyters_own_is_restarted_by_hand() -> None:
    said = subprocess.run([sys.executable, "-c", ELSEWHERE], capture_output=True, text=True, check=True).stdout

    assert "not a Jupyter kernel, so no server can restart it. Restart the kernel from its menu, and run" in said
