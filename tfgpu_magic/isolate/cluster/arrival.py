"""What a Dask worker runs of a call, sent as text: see that the call can be understood there, and hand it on.

Text, because a worker may have another Python, whose code is none for ours and the other way round: it would crash.
So nothing here is newer than Python 3.8, and nothing but the standard library is imported before versions are compared.
"""

from __future__ import annotations

ABSENT, OTHER = "absent", "other version"
"""How a task ends that is not understood, before the machine's name, and why it is not, or what has which version."""


def run(versions, request, work):  # type: ignore[no-untyped-def]  # it is text
    """Run a call of a caller with these versions, if they are those of here as far as that matters; see `message`."""
    import importlib.metadata
    import socket
    import sys

    where = f"{socket.gethostname()} ({sys.executable})"
    for name, theirs in versions.items():
        try:
            ours = ".".join(map(str, sys.version_info[:2])) if name == "Python" else importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # that there is none is told below, or whoever needs it tells
        if not f"{ours}.".startswith(f"{theirs}."):
            return [OTHER, where, name, ours]
    try:
        from tfgpu_magic._version import __version__
        from tfgpu_magic.isolate.cluster import remote
    except ImportError as error:
        return [ABSENT, where, str(error)]
    theirs = versions["tfgpu-magic"]
    return remote.run(request, work) if __version__ == theirs else [OTHER, where, "tfgpu-magic", __version__]
