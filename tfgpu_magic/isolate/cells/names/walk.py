"""Walks through a cell's syntax in the order in which it runs; `assignment` keeps what that settles."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterable
from typing import Any

from tfgpu_magic.isolate.cells.names.assignment import Assignments, ClassBody, Settled, met
from tfgpu_magic.isolate.cells.names.functions import Function, Functions, mentioned
from tfgpu_magic.isolate.cells.names.magics import meaning
from tfgpu_magic.isolate.cells.names.syntax import bounds, parameters, swallows, unsure

_ALIKE = {
    "AsyncFor": "For",
    "AsyncFunctionDef": "FunctionDef",
    "AsyncWith": "With",
    "DictComp": "ListComp",
    "GeneratorExp": "ListComp",
    "ImportFrom": "Import",
    "MatchStar": "MatchAs",
    "SetComp": "ListComp",
    "TryStar": "Try",
}
"""The nodes that are walked in the same way as others."""


def walked(source: str) -> Assignments:
    """Return what Python source does to names; nothing at all if it does not compile."""
    walk = _Walk()
    walk.run(source)
    return walk


class _LoopTarget(ast.AST):
    """The names that a loop binds at each iteration."""

    def __init__(self, target: ast.expr) -> None:
        super().__init__()
        self.target = target


class _Walk(Assignments, ast.NodeVisitor):
    """The walk through a cell. A loop is walked once: no name is ever unsettled, so its first iteration sees most."""

    def __init__(self) -> None:
        super().__init__()
        self.breaks: list[list[Settled]] = []
        self.functions = Functions("")

    def run(self, source: str) -> None:
        """Walk Python source that runs at this point; walk nothing if it does not compile."""
        try:
            tree = ast.parse(source)
            compile(tree, "<cell>", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
            functions = Functions(source)
        except (SyntaxError, ValueError):  # ValueError: a null byte
            return
        around, self.functions = self.functions, functions
        self._each(tree.body)
        self.functions = around

    def visit(self, node: ast.AST) -> None:
        kind = type(node).__name__
        getattr(self, f"visit_{_ALIKE.get(kind, kind)}", self.generic_visit)(node)

    def _each(self, nodes: Iterable[ast.AST | None]) -> None:
        for node in nodes:
            if node is not None:
                self.visit(node)

    def _branch(self, start: Settled, nodes: Iterable[ast.AST]) -> Settled:
        """Walk nodes that may or may not run; return what is settled after them."""
        self.settled = start
        self.branches += 1
        self._each(nodes)
        self.branches -= 1
        return self.settled

    # Names as such.

    def visit_Name(self, node: ast.Name) -> None:
        {ast.Load: self.read, ast.Store: self.bind, ast.Del: self.unbind}[type(node.ctx)](node.id)

    def visit_Constant(self, node: ast.Constant) -> None:
        for name in mentioned(node):
            self.read(name)

    def visit_Import(self, node: ast.Import | ast.ImportFrom) -> None:
        for alias in node.names:
            if alias.name != "*":
                self.bind(alias.asname or alias.name.partition(".")[0], imported=True)

    def visit_Global(self, node: ast.Global) -> None:
        if self.inside:
            self.inside.globals.update(node.names)

    def visit_Assign(self, node: ast.Assign) -> None:
        self._each([node.value, *node.targets])

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self._each([node.value, node.target])

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Name):
            self.read(node.target.id)
        self._each([node.value, node.target])

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        bare = node.value is None and isinstance(node.target, ast.Name)
        self._each([node.value, None if bare else node.target, node.annotation])

    # Expressions of which a part may not run.

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        self._surely(node.values[:1], node.values[1:])

    def visit_Compare(self, node: ast.Compare) -> None:
        self._surely([node.left, node.comparators[0]], node.comparators[1:])

    def visit_Assert(self, node: ast.Assert) -> None:
        self._surely([node.test], [node.msg] if node.msg else [])

    def _surely(self, first: Iterable[ast.AST], perhaps: Iterable[ast.AST]) -> None:
        self._each(first)
        after = self.settled
        self._branch(after, perhaps)
        self.settled = after

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self.visit(node.test)
        start = self.settled
        self.settled = met([self._branch(start, [node.body]), self._branch(start, [node.orelse])])

    def visit_Dict(self, node: ast.Dict) -> None:
        self._each(part for pair in zip(node.keys, node.values, strict=True) for part in pair)

    def visit_Call(self, node: ast.Call) -> None:
        magic = meaning(node)
        if magic is None:
            self.generic_visit(node)
        elif magic.apart:
            for name in _inside_function(magic.source):
                self.read(name)
        else:
            self.run(magic.source)

    # Statements of which a part may not run.

    def visit_If(self, node: ast.If) -> None:
        self.visit(node.test)
        start = self.settled
        self.settled = met([self._branch(start, node.body), self._branch(start, node.orelse)])

    def visit_While(self, node: ast.While) -> None:
        self.visit(node.test)
        forever = isinstance(node.test, ast.Constant) and bool(node.test.value)
        self._loop(node.body, node.orelse, ends=None if forever else self.settled)

    def visit_For(self, node: ast.For | ast.AsyncFor) -> None:
        self.visit(node.iter)
        self._loop([_LoopTarget(node.target), *node.body], node.orelse, ends=self.settled)

    def visit__LoopTarget(self, node: _LoopTarget) -> None:
        self.turning = True
        self.visit(node.target)
        self.turning = False

    def _loop(self, body: Iterable[ast.AST], orelse: Iterable[ast.AST], *, ends: Settled) -> None:
        """Walk a loop; `ends` is what is at least settled when it ends by itself, or None if it never does."""
        self.breaks.append([])
        self._branch(self.settled, body)
        broken = self.breaks.pop()
        self.settled = met([self._branch(ends, orelse), *broken])

    def visit_Break(self, _: ast.Break) -> None:
        self.breaks[-1].append(self.settled)
        self.settled = None

    def visit_Continue(self, _: ast.Continue) -> None:
        self.settled = None

    def visit_Raise(self, node: ast.Raise) -> None:
        self.generic_visit(node)
        self.settled = None

    def visit_Try(self, node: Any) -> None:  # ast.Try, or ast.TryStar from 3.11 on
        start = self.settled
        branches = [self._branch(start, [*node.body, *node.orelse])]
        branches += [self._branch(start, [handler]) for handler in node.handlers]
        self.settled = start
        self._each(node.finalbody)
        tried = met(branches)
        self.settled = None if tried is None or self.settled is None else tried | self.settled

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        self._each([node.type])
        if node.name and not self.local(node.name):
            self.settle(node.name)  # unbound again at the end of the handler
        self._each(node.body)

    def visit_With(self, node: ast.With | ast.AsyncWith) -> None:
        start = self.settled
        if any(swallows(item.context_expr) for item in node.items):
            self._branch(start, [*node.items, *node.body])
            self.settled = start
        else:
            self._each([*node.items, *node.body])
        if self.settled is None:  # a body that always raises is meant to be caught: the code after it does run
            self.settled = start

    def visit_Match(self, node: ast.Match) -> None:
        self.visit(node.subject)
        start = self.settled
        branches = [self._branch(start, [case]) for case in node.cases]
        match node.cases[-1]:
            case ast.match_case(pattern=ast.MatchAs(pattern=None), guard=None):
                self.settled = met(branches)
            case _:
                self.settled = met([start, *branches])

    def visit_MatchAs(self, node: ast.MatchAs | ast.MatchStar) -> None:
        self.generic_visit(node)
        if node.name:
            self.bind(node.name)

    def visit_MatchMapping(self, node: ast.MatchMapping) -> None:
        self.generic_visit(node)
        if node.rest:
            self.bind(node.rest)

    # Scopes.

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._each(node.decorator_list)
        before = self.inside.before if self.inside else self.settled
        with self.hiding(parameters(node)):
            self._each([*bounds(node), *node.bases, *node.keywords])
            with self.scope(ClassBody(before, unsure(node), set())):
                self._branch(self.settled, node.body)
        self.bind(node.name)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._each([*node.decorator_list, *node.args.defaults, *node.args.kw_defaults])
        with self.hiding(parameters(node)):
            self._each([*bounds(node), node.args, node.returns])
        self._later(node)
        self.bind(node.name)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self.visit(node.args)
        self._later(node)

    def visit_TypeAlias(self, node: Any) -> None:  # ast.TypeAlias, from 3.12 on
        with self.hiding(parameters(node)):
            self._each([*bounds(node), node.value])
        self.visit(node.name)

    def _later(self, node: Function) -> None:
        body = self.functions.body(node)
        inner = set[str]().union(*map(_inside_function, body.magics))
        for name in body.reads | (inner - body.own):
            self.read(name, nested=True)
        for name in body.binds:
            self.keep(name, imported=name in body.imports)
            self.lasting.add(name)

    def visit_ListComp(self, node: Any) -> None:
        first = node.generators[0]
        self.visit(first.iter)
        targets = (part for generator in node.generators for part in ast.walk(generator.target))
        stored = [part.id for part in targets if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)]
        with self.scope(None), self.hiding(stored):
            for generator in node.generators:
                self._each([generator.iter] * (generator is not first))
                self._each([generator.target, *generator.ifs])
            self._each([node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt])


def _inside_function(source: str) -> set[str]:
    """Return the names that code reads which runs in a function of its own."""
    return walked("def timed():\n pass\n" + textwrap.indent(source, " ")).reads
