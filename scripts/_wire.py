"""Writes the page's types of the messages, `labextension/src/view/wire.ts`, from the records that they are made of.

`python -m scripts._wire` does so after a change of these records.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, get_args

from tfgpu_magic.ground import report, rows, snapshot
from tfgpu_magic.tell import page_json

WIRE = Path(__file__).parents[1] / "labextension" / "src" / "view" / "wire.ts"

RECORDS: dict[str, type] = {
    "Gpu": rows.GpuRow,
    "Row": rows.ProcessRow,
    "Share": rows.Share,
    "Parked": report.Parked,
    "Note": page_json.WireNote,
    "State": page_json.WireState,
    "Past": page_json.Past,
    "OwnHours": page_json.OwnHours,
    "Full": page_json.Full,
    "Tick": page_json.Tick,
}
"""What is an interface of its own, by the page's name for it."""

WHO = " | ".join(map(repr, get_args(rows.Who)))
"""Whose a process may be, as TypeScript writes it."""

HEAD = """\
// Types of the server's and the kernel's messages, which `python -m scripts._wire` makes of Python's.
// Unknown values are absent; sizes are bytes, times seconds since the epoch. Texts are English.
"""

_TYPED = (page_json.WireNote, page_json.WireState, page_json.Past, page_json.OwnHours, page_json.Full, page_json.Tick)
_NAMES = {**vars(snapshot), **vars(rows), **vars(report)}
_PLAIN = {"int": "number", "float": "number", "str": "string", "object": "unknown", "None": "null", "bool": "true"}


class Member(NamedTuple):
    """A member of an interface: its name, its type in TypeScript, whether it may be absent, and what it is."""

    name: str
    type: str
    absent: bool
    meaning: str


def types() -> dict[str, list[Member]]:
    """Return the members of each interface."""
    return {name: list(_members(record, "")) for name, record in RECORDS.items()}


def meaning(name: str) -> str:
    """Return what an interface is, in a line."""
    return (RECORDS[name].__doc__ or "").partition("\n")[0]


def text() -> str:
    """Return the file."""
    interfaces = (
        f"/** {meaning(name)} */\nexport interface {name} {{\n"
        + "".join(f"  /** {one.meaning} */\n  {one.name}{'?' * one.absent}: {one.type};\n" for one in members)
        + "}\n"
        for name, members in types().items()
    )
    return "\n".join([
        HEAD,
        f"/** The version of the messages that this code reads. */\nexport const VERSION = {page_json.VERSION};\n",
        f"export type Who = {WHO};\n",
        *interfaces,
        "export type Message = Full | Tick;\n",
    ])  # fmt: skip


def _members(record: Any, part: str) -> Iterator[Member]:
    texts = dict(re.findall(r"^ {8}(\w+): (.*(?:\n {12}.*)*)", record.__doc__ or "", re.MULTILINE))
    kinds = {name: getattr(kind, "__forward_arg__", kind) for name, kind in record.__annotations__.items()}
    parameters = {} if record in _TYPED else inspect.signature(record).parameters
    for name, member in page_json.members(tuple(kinds), part):
        if name in page_json.PARTS and name not in page_json.SENT and (inner := _NAMES.get(kinds[name].split(" ")[0])):
            yield from _members(inner, name)
            continue
        kind = page_json.SENT[name].__annotations__["return"] if name in page_json.SENT else kinds[name]
        absent = "NotRequired" in kind or (
            name in parameters and parameters[name].default is not inspect.Parameter.empty
        )
        typed = _typescript(ast.parse(kind, mode="eval").body).removesuffix(" | null")  # what is unknown is absent
        words = re.sub(r"\b(None|empty)\b", "absent", " ".join(texts[name].split()).replace("``", "`"))
        yield Member(member, typed, absent, words[0].upper() + words[1:])


def _typescript(kind: ast.expr) -> str:
    match kind:
        case ast.Subscript(value=ast.Name(id="NotRequired"), slice=inner):
            return _typescript(inner)
        case ast.Subscript(value=ast.Name(id="dict"), slice=ast.Tuple(elts=[key, value])):
            return f"Record<{_typescript(key)}, {_typescript(value)}>"
        case ast.Subscript(value=ast.Name(id="list"), slice=inner):
            one = _typescript(inner)
            return f"({one})[]" if " " in one else f"{one}[]"
        case ast.Subscript(value=ast.Name(id="Literal"), slice=ast.Constant(value=value)):
            return "true" if value is True else repr(value)
        case ast.Subscript(value=ast.Name(id="Literal"), slice=ast.Tuple(elts=elements)):
            return " | ".join(map(ast.unparse, elements))
        case ast.BinOp(left=left, right=right):
            return f"{_typescript(left)} | {_typescript(right)}"
    name = ast.unparse(kind).removeprefix("Wire")
    return _PLAIN.get(name, name)


def main() -> None:
    """Write the file."""
    WIRE.write_text(text())


if __name__ == "__main__":
    main()
