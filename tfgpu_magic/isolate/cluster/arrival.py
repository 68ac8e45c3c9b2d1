"""The code of a task, sent to a Dask worker as text: it compares versions and passes the call to `remote`.

It is text, because a worker may have another Python, which would crash on bytecode of ours, and ours on its bytecode.
So nothing here is newer than Python 3.8, and nothing but the standard library is imported before versions are compared.
"""

from __future__ import annotations

ABSENT, OTHER = "absent", "other version"
"""How a task ends that cannot be run: followed by the machine's name, and the reason, or a name and its version."""


def run(versions, request, work):  # type: ignore[no-untyped-def]  # it is text
    """Run a call of a caller with these versions, if those here agree with them; see `message.versions`."""
    import importlib.metadata
    import socket
    import sys

    where = f"{socket.gethostname()} ({sys.executable})"
    for name, theirs in versions.items():
        try:
            ours = ".".join(map(str, sys.version_info[:2])) if name == "Python" else importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # a missing package is reported below, or by the code that needs it
        if not f"{ours}.".startswith(f"{theirs}."):
            return [OTHER, where, name, ours]
    try:
        from tfgpu_magic._version import __version__
        from tfgpu_magic.isolate.cluster import remote
    except ImportError as error:
        return [ABSENT, where, str(error)]
    theirs = versions["tfgpu-magic"]
    return remote.run(request, work) if __version__ == theirs else [OTHER, where, "tfgpu-magic", __version__]
