"""Python's and TypeScript's types of the messages are the same, field by field, and what is sent is of these types."""

from __future__ import annotations

import ast
import inspect
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest

from tests.figures import pytorch, tensorflow
from tests.sizes import GIB
from tests.views.tables import ABSENT, BUSY, EMPTY, HOSTILE, process
from tests.views.test_message import live
from tfgpu_magic.model import TENSORFLOW
from tfgpu_magic.model.report import GpuUse
from tfgpu_magic.model.rows import Notebook, Table, Who
from tfgpu_magic.monitor.board.history import History
from tfgpu_magic.monitor.table import message

PAGE = Path(__file__).parents[2] / "labextension/src/view"
WIRE = (PAGE / "wire.ts").read_text()

_LITERALS = {"Who": Who}

Fields = dict[str, tuple[str, bool]]
"""The type of each field as TypeScript writes it, and whether it may be absent."""


def theirs() -> dict[str, Fields]:
    """Return what TypeScript takes messages for."""
    text = re.sub(r"/\*\*.*?\*/|//[^\n]*", "", WIRE, flags=re.DOTALL)
    bodies = re.findall(r"export interface (\w+) \{(.*?)\n\}", text, re.DOTALL)
    return {
        name: {
            field: (kind, bool(absent))
            for field, absent, kind in re.findall(r"^  (\w+)(\??): (.*);$", body, re.MULTILINE)
        }
        for name, body in bodies
    }


def ours() -> dict[str, Fields]:
    """Return what Python takes them for."""
    found: dict[str, Fields] = {}
    for node in ast.parse(inspect.getsource(message).replace("Wire", "")).body:
        if isinstance(node, ast.ClassDef) and [ast.unparse(base) for base in node.bases] == ["TypedDict"]:
            found[node.name] = {
                ast.unparse(field.target): _field(field.annotation)
                for field in node.body
                if isinstance(field, ast.AnnAssign)
            }
    return found


def _field(annotation: ast.expr) -> tuple[str, bool]:
    match annotation:
        case ast.Subscript(value=ast.Name(id="NotRequired"), slice=inner):
            return _typescript(inner), True
    return _typescript(annotation), False


def _typescript(kind: ast.expr) -> str:
    plain = {"int": "number", "float": "number", "str": "string", "object": "unknown", "None": "null"}
    match kind:
        case ast.Subscript(value=ast.Name(id="dict"), slice=ast.Tuple(elts=[key, value])):
            return f"Record<{_typescript(key)}, {_typescript(value)}>"
        case ast.Subscript(value=ast.Name(id="list"), slice=inner):
            one = _typescript(inner)
            return f"({one})[]" if " " in one else f"{one}[]"
        case ast.Subscript(value=ast.Name(id="Literal"), slice=ast.Constant(value=value)):
            return "true" if value is True else repr(value)
        case ast.BinOp(left=left, right=right):
            return f"{_typescript(left)} | {_typescript(right)}"
    name = ast.unparse(kind)
    return plain.get(name, name)


def fits(value: object, kind: str) -> bool:
    """Tell whether a value of a message is of a type."""
    if kind in (types := ours()):
        fields = types[kind]
        assert isinstance(value, dict)
        required = {name for name, (_, absent) in fields.items() if not absent}
        return required <= value.keys() <= fields.keys() and all(
            fits(one, fields[name][0]) for name, one in value.items()
        )
    if inner := re.fullmatch(r"Record<string, (.*)>", kind):
        return isinstance(value, dict) and all(fits(one, inner[1]) for one in value.values())
    if inner := re.fullmatch(r"\(?(.*?)\)?\[\]", kind):
        return isinstance(value, list) and all(fits(one, inner[1]) for one in value)
    if " | " in kind:
        return any(fits(value, one) for one in kind.split(" | "))
    if kind in _LITERALS:
        return value in get_args(_LITERALS[kind])
    if kind in ("number", "string"):
        return type(value) in ((int, float) if kind == "number" else (str,))
    return json.dumps(value) == kind.replace("'", '"') or kind == "unknown"


def test_both_sides_have_the_same_types() -> None:
    assert ours() == theirs()
    assert {"Gpu", "Row", "State", "Past", "OwnHours", "Full", "Tick"} == set(ours())


def test_both_sides_know_the_same_version_owners_and_framework_of_the_policy() -> None:
    assert f"const OWN = '{TENSORFLOW}';" in (PAGE / "row.ts").read_text()
    assert f"export const VERSION = {message.VERSION};" in WIRE
    for name, kind in _LITERALS.items():
        assert f"export type {name} = {' | '.join(map(repr, get_args(kind)))};" in WIRE


def everything() -> Table:
    """Return a table with a value in every field."""
    use = GpuUse(gpu="0", policy="growth", figures=(*tensorflow(1, 2), *pytorch(1, 2)))
    notebook = Notebook(path="a.ipynb", kernel="k", state="idle", active=1.0, also=("b.ipynb",))
    row = replace(process(8), use=use, notebook=notebook, kernel=7, tone=3)
    child = replace(row, pid=8, call=True, child="python3", owner="a's python3")
    parked = GpuUse(gpu="0", parked=GIB, back=3.2)
    orphan = replace(process(8), pid=9, kernel=9, began=123, utilisation=0, unused=1.0, use=parked)
    told = replace(BUSY.gpus[0], utilisation=3, temperature=54, power=61_000)
    gpu = replace(told, uuid="GPU-1", error="others", mig=True, instance=True, unified=True)
    gpu = replace(gpu, limit=GIB)
    untold = replace(gpu, gpu="1", shares=tuple(replace(one, text="not told whose") for one in gpu.shares))
    return replace(BUSY, gpus=(gpu, untold), processes=(row, child, orphan), simulated=True, time=1000.0)


@pytest.mark.parametrize(
    "table", [EMPTY, BUSY, ABSENT, everything(), replace(EMPTY, processes=(process(owner=HOSTILE),))]
)
def test_what_is_sent_is_of_these_types(table: Table) -> None:
    state = message.state(live(table, stale=90.0, every=3.0))
    history = History((1.0, 2.0), {"GPU-1": (5, None)})
    full: dict[str, Any] = json.loads(message.full(3, state, history, 0.5))

    assert fits(full, "Full")
    assert fits(json.loads(message.tick(4, 3, {"time": 1.0})), "Tick")
    assert fits(message.state(Table(error="Nobody answers.")), "State")


def test_every_field_is_sent_where_there_is_something_to_say() -> None:
    state = message.state(live(everything(), time=1000.0, stale=90.0, every=3.0))
    sent = {
        "Gpu": {name for gpu in state["gpus"].values() for name in gpu},
        "Row": {name for row in state["rows"].values() for name in row},
    }

    assert sent == {kind: set(ours()[kind]) for kind in sent}
