"""The record of memory that is held without use, on the board: a file that the collector replaces and views read."""

from __future__ import annotations

import os
import struct
import zlib
from typing import TYPE_CHECKING

from tfgpu_magic.errors import MonitorError
from tfgpu_magic.monitor.history import write
from tfgpu_magic.monitor.unused import Record

if TYPE_CHECKING:
    from tfgpu_magic.monitor.directory import BoardDirectory

NAME = "unused-2"
"""The file's name, with the version of its content."""
LARGEST = 2**22
"""The largest record, in bytes; what is longer is neither written nor read."""

_HEAD = struct.Struct("<II")  # length and checksum of the JSON that follows


def keep(place: BoardDirectory, record: Record) -> None:
    """Replace the record.

    Raises:
        OSError: it could not be written; the one before stays.
        MonitorError: something else is in its place.
    """
    text = record.to_json().encode()
    if len(text) > LARGEST:
        return
    new = f"{NAME}-new"
    place.remove(new)
    fd = place.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL)
    try:
        write(fd, _HEAD.pack(len(text), zlib.crc32(text)) + text, 0)
        place.replace(new, NAME)
    finally:
        os.close(fd)


def kept(place: BoardDirectory) -> Record | None:
    """Return the record; None where there is none, or none that is whole."""
    return RecordReader().read(place)


class RecordReader:
    """A reader of the record, which parses it when it is new."""

    def __init__(self) -> None:
        self._seen: tuple[int, int, int] | None = None
        self._record: Record | None = None

    def read(self, place: BoardDirectory) -> Record | None:
        """Return the record, the same object as long as it is the same; None as `kept`."""
        try:
            fd = place.open(NAME, os.O_RDONLY)
        except (FileNotFoundError, MonitorError):
            self._seen = self._record = None
            return None
        try:
            about = os.fstat(fd)
            seen = about.st_dev, about.st_ino, about.st_mtime_ns
            if seen != self._seen:
                self._seen, self._record = seen, _record(os.pread(fd, _HEAD.size + LARGEST, 0))
        except OSError:
            self._seen = self._record = None
        finally:
            os.close(fd)
        return self._record


def _record(data: bytes) -> Record | None:
    if len(data) < _HEAD.size:
        return None
    length, check = _HEAD.unpack_from(data)
    text = data[_HEAD.size : _HEAD.size + length]
    if len(text) != length or zlib.crc32(text) != check:
        return None
    try:
        return Record.from_json(text.decode())
    except ValueError:
        return None
