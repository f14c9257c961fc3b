"""Small faults in Python source, found in its syntax tree: one changed expression or statement each."""

from __future__ import annotations

import ast
import hashlib
import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import zip_longest
from pathlib import Path

PACKAGES = {
    **{
        package: f"pipeline/{package}/**/*.py"
        for package in (
            "channels", "estimators", "scores", "composition", "methods", "models", "metrics", "evaluation", "analysis",
            "training",
        )
    },
    "dialog": "pipeline/dialog/**/*.py",
    "worlds": "pipeline/worlds/*.py",
    "runtime": "pipeline/runtime/adam.py",
    "workflow": "pipeline/workflow/training.py",
}  # fmt: skip

BINARY: dict[type, type] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult, ast.Pow: ast.Mult,
    ast.Mod: ast.FloorDiv, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip
COMPARISONS: dict[type, type] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip


def _map_in_both_directions(*pairs: tuple[str, str]) -> dict[str, str]:
    return {a: b for pair in pairs for a, b in (pair, pair[::-1])}


REDUCTIONS = _map_in_both_directions(
    ("sum", "mean"), ("max", "min"), ("amax", "amin"), ("argmax", "argmin"), ("any", "all"), ("maximum", "minimum"),
    ("ceil", "floor"), ("std", "var"), ("zeros", "ones"), ("zeros_like", "ones_like"), ("new_zeros", "new_ones"),
    ("softmax", "log_softmax"), ("sqrt", "square"),
)  # fmt: skip
NAMES = _map_in_both_directions(
    ("speaker", "listener"), ("captions", "images"), ("text_to_image", "image_to_text"), ("Multinomial", "Greedy"),
    ("SPEAKER_ONLY", "LISTENER_ONLY"), ("SPEAKER", "LISTENER"), ("by_caption", "by_image"),
    ("generator", "discriminator"),
)  # fmt: skip
SPLITS = {"train": "test", "val": "test", "test": "val"}
REMOVABLE = {name: f"{name} removed" for name in ("detach", "eval", "train")} | dict.fromkeys(
    ("abs", "clamp", "clamp_min", "clip", "exp", "log", "neg", "neg_", "requires_grad_"), "call removed"
)
LIBRARIES = {"F", "np", "math", "torch"}
STREAMS = {"seed", "epoch", "step"}
SHARES = {"alpha", "gamma", "lam", "rho", "share"}
OUTPUT_CALLS = {"print", "warn", "warning", "info", "debug", "update", "set_postfix"}
SKIPPED_METHODS = {"__repr__", "__str__"}
SKIPPED_KEYWORDS = {
    "encoding",
    "exist_ok",
    "frozen",
    "non_blocking",
    "parents",
    "pin_memory",
    "slots",
    "strict",
    "verbose",
}
OPAQUE = {"Field", "UserError", "cast", "isinstance"}
TYPES = {"Annotated", "Callable", "Literal", "Mapping", "dict", "tuple"}


@dataclass(frozen=True)
class Fault:
    """One fault: in `module`, the bytes from `start` to `end` become `text`."""

    module: str
    function: str  # the qualified name of the surrounding function or class; empty at the module's top
    lines: tuple[int, int]  # first and last line of the statement, of its head, or of the changed decorator
    operator: str
    start: int
    end: int
    text: str
    before: str  # the changed lines, spaces collapsed
    after: str
    repeated: int = 0  # index among equal faults of one function

    @cached_property
    def id(self) -> str:
        """Return an identifier that stays the same while other lines change."""
        values = [self.module, self.function, self.operator, self.before, self.after, str(self.repeated)]
        return hashlib.sha256("\n".join(values).encode()).hexdigest()[:8]

    @property
    def line(self) -> int:
        return self.lines[0]

    @property
    def package(self) -> str:
        """Return the package that the fault counts for."""
        return self.module.split("/")[1]

    def apply(self, source: bytes) -> bytes:
        return source[: self.start] + self.text.encode() + source[self.end :]


def find_modules(root: Path) -> list[str]:
    """Return the modules of `PACKAGES` below `root`, as paths relative to it."""
    paths = [path for pattern in PACKAGES.values() for path in root.glob(pattern)]
    return sorted(path.relative_to(root).as_posix() for path in paths)


def find_faults(module: str, source: bytes) -> list[Fault]:
    """Return all faults of a module, in the order in which the visitor finds them."""
    faults, counts = [], Counter[str]()
    for fault in _FaultVisitor(module, source).find_faults():
        faults.append(replace(fault, repeated=counts[fault.id]))
        counts[fault.id] += 1
    return faults


def sample(faults: list[Fault], number: int, seed: int, minimum: int = 20) -> list[Fault]:
    """Sample `number` faults of all operators: `minimum` per package, and the rest from the packages' other faults.

    The rest is divided in proportion to the numbers of these other faults. A package with fewer faults than `minimum`
    gives all of them. A sum of minima above `number` is cut to `number`.
    """
    packages: dict[str, list[Fault]] = defaultdict(list)
    for fault in faults:
        packages[fault.package].append(fault)
    rest = max(0, number - sum(min(minimum, len(group)) for group in packages.values()))
    surplus = {package: max(0, len(group) - minimum) for package, group in packages.items()}
    exact = {package: rest * count / (sum(surplus.values()) or 1) for package, count in surplus.items()}
    by_remainder = sorted(exact, key=lambda package: (int(exact[package]) - exact[package], package))
    rounded_up = by_remainder[: rest - sum(map(int, exact.values()))]  # so that the shares add up to `number`
    shares = {
        package: min(minimum, len(packages[package])) + int(exact[package]) + (package in rounded_up)
        for package in packages
    }
    queues = [
        _shuffle_by_operator(packages[package], f"{seed} {package}")[: shares[package]] for package in sorted(packages)
    ]
    return _interleave(queues)[:number]


def _shuffle_by_operator(faults: list[Fault], seed: str) -> list[Fault]:
    rng = random.Random(seed)
    operators: dict[str, list[Fault]] = defaultdict(list)
    for fault in faults:
        operators[fault.operator].append(fault)
    queues = [rng.sample(operators[name], len(operators[name])) for name in sorted(operators)]
    rng.shuffle(queues)
    return _interleave(queues)


def _interleave(queues: list[list[Fault]]) -> list[Fault]:
    """Return the first of each queue, then the second of each, and so on."""
    return [fault for turn in zip_longest(*queues) for fault in turn if fault is not None]


class _FaultVisitor:
    """Visitor of a module's syntax tree that yields faults; a replacement is text in place of a node."""

    def __init__(self, module: str, source: bytes) -> None:
        self.module, self.source = module, source
        self.starts = [0]
        for line in source.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))

        self.tree = ast.parse(source)
        self.imported = {
            alias.name for node in self.tree.body if isinstance(node, ast.ImportFrom) for alias in node.names
        }
        self.identifiers = {
            getattr(statement, "name", ""): {
                getattr(node, field)
                for node in ast.walk(statement)
                for field in ("id", "attr", "arg", "name")
                if isinstance(getattr(node, field, None), str)
            }
            for statement in self.tree.body
        }

    def find_faults(self) -> Iterator[Fault]:
        yield from self._visit_block(self.tree.body, [])

    def _visit_block(self, body: list[ast.stmt], names: list[str]) -> Iterator[Fault]:
        for statement in body:
            yield from self._visit_statement(statement, names)

    def _visit_statement(self, node: ast.stmt, names: list[str]) -> Iterator[Fault]:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            if node.name in SKIPPED_METHODS:
                return
            inner = [*names, node.name]
            if isinstance(node, ast.ClassDef):
                if any("Protocol" in ast.unparse(base) for base in node.bases):
                    return
                for keyword in node.keywords:
                    yield from self._visit_expression(keyword.value, node, inner)
            else:
                for default in [*node.args.defaults, *filter(None, node.args.kw_defaults)]:
                    yield from self._visit_expression(default, node, inner)
                for decorator in node.decorator_list:
                    if ast.unparse(decorator) in ("torch.no_grad()", "torch.inference_mode()"):
                        yield self._make_fault(decorator, "torch.enable_grad()", "no_grad removed", node, inner)
            yield from self._visit_block(node.body, inner)
        elif isinstance(node, ast.If | ast.While):
            if "TYPE_CHECKING" in ast.unparse(node.test):
                return
            only_raises = all(isinstance(child, ast.Raise) for child in node.body)
            if isinstance(node, ast.If) and not only_raises:
                for forced in ("True", "False"):
                    yield self._make_fault(node.test, forced, "condition forced", node, names)
            yield from self._visit_expression(node.test, node, names)
            yield from self._visit_block([*node.body, *node.orelse], names)
        elif isinstance(node, ast.For | ast.With | ast.Try):
            if isinstance(node, ast.For):
                yield from self._visit_expression(node.iter, node, names)
            for item in getattr(node, "items", []):
                if ast.unparse(item.context_expr) in ("torch.no_grad()", "torch.inference_mode()"):
                    yield self._make_fault(item.context_expr, "torch.enable_grad()", "no_grad removed", node, names)
                yield from self._visit_expression(item.context_expr, node, names)
            handlers = [child for handler in getattr(node, "handlers", []) for child in handler.body]
            rest = [*getattr(node, "orelse", []), *handlers, *getattr(node, "finalbody", [])]
            yield from self._visit_block([*node.body, *rest], names)
        elif isinstance(node, ast.Raise | ast.Assert | ast.Import | ast.ImportFrom):
            return
        elif isinstance(node, ast.AugAssign):
            other = BINARY.get(type(node.op))
            if other:
                text = f"{ast.unparse(node.target)} {_SIGNS[other]}= {ast.unparse(node.value)}"
                yield self._make_fault(node, text, "sign", node, names)
            yield self._make_fault(node, "pass", "statement removed", node, names)
            yield from self._visit_expression(node.value, node, names)
        elif isinstance(node, ast.Expr):
            if isinstance(node.value, ast.Constant):
                return
            if isinstance(node.value, ast.Call):
                called = ast.unparse(node.value.func).rpartition(".")[2]
                if called in OUTPUT_CALLS:
                    return
                if called != "__init__":
                    yield self._make_fault(node, "pass", "statement removed", node, names)
            yield from self._visit_expression(node.value, node, names)
        else:
            if isinstance(node, ast.Assign) and not names and _is_type(node.value):
                return
            value = getattr(node, "value", None)
            if value is not None:
                yield from self._visit_expression(value, node, names)

    def _visit_expression(self, root: ast.expr, statement: ast.stmt, names: list[str]) -> Iterator[Fault]:
        for node, text, operator in _walk(root):
            if operator != "name swapped" or text.rpartition(".")[2] in self._list_names_in_scope(names):
                yield self._make_fault(node, text, operator, statement, names)

    def _list_names_in_scope(self, names: list[str]) -> set[str]:
        """Return the names and attributes in the surrounding top-level function or class, and the imported names."""
        return self.identifiers.get(names[0] if names else "", set()) | self.imported

    def _make_fault(self, node: ast.AST, text: str, operator: str, statement: ast.stmt, names: list[str]) -> Fault:
        start = self.starts[node.lineno - 1] + node.col_offset
        end = self.starts[node.end_lineno - 1] + node.end_col_offset
        first = self.starts[node.lineno - 1]
        last = self.starts[node.end_lineno]
        before = self.source[first:last].decode()
        after = (self.source[first:start] + text.encode() + self.source[end:last]).decode()
        head = _find_head_end(statement)
        lines = (statement.lineno, head) if statement.lineno <= node.lineno <= head else (node.lineno, node.end_lineno)
        texts = (" ".join(before.split()), " ".join(after.split()))
        return Fault(self.module, ".".join(names), lines, operator, start, end, text, *texts)


_SIGNS = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.BitAnd: "&", ast.BitOr: "|",
}  # fmt: skip


def _find_head_end(statement: ast.stmt) -> int:
    """Return the last line of a simple statement, or of a compound statement's head."""
    body = getattr(statement, "body", None)
    return max(statement.lineno, body[0].lineno - 1) if body else statement.end_lineno or statement.lineno


def _is_type(value: ast.expr) -> bool:
    """Return True if `value` is an expression of types, such as `dict[str, int]` or `int | None`."""
    if isinstance(value, ast.Subscript):
        return ast.unparse(value.value).rpartition(".")[2] in TYPES
    return isinstance(value, ast.BinOp) and isinstance(value.op, ast.BitOr) and "SPEAKER" not in ast.unparse(value)


def _walk(node: ast.expr) -> Iterator[tuple[ast.AST, str, str]]:
    """Yield nodes of an expression, each with its replacement and its operator."""
    if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Subscript) and _is_type(node)):
        return
    yield from _find_changes(node)
    if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in OPAQUE:
        return
    if isinstance(node, ast.Lambda):
        yield from _walk(node.body)
        return
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr):
            is_value = not isinstance(node, ast.Attribute) and child is not getattr(node, "func", None)
            yield from (
                change for change in _walk(child) if change[0] is not child or is_value or change[2] != "stream"
            )
        elif isinstance(child, ast.keyword) and child.arg not in SKIPPED_KEYWORDS:
            yield from _walk(child.value)
        elif isinstance(child, ast.comprehension):
            yield from _walk(child.iter)
            for condition in child.ifs:
                yield condition, "True", "condition forced"
                yield from _walk(condition)


def _find_changes(node: ast.expr) -> Iterator[tuple[ast.AST, str, str]]:
    match node:
        case ast.BinOp():
            yield from _find_arithmetic_changes(node)
        case ast.UnaryOp(op=ast.USub() | ast.Not() | ast.Invert()):
            yield node, _unparse(node.operand), "sign" if isinstance(node.op, ast.USub) else "boolean"
        case ast.Compare(ops=[op]) if type(op) in COMPARISONS:
            changed = ast.Compare(node.left, [COMPARISONS[type(op)]()], node.comparators)
            yield node, _unparse(changed), "comparison"
        case ast.BoolOp():
            other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
            yield node, _unparse(ast.BoolOp(other, node.values)), "boolean"
        case ast.IfExp():
            yield node.test, "True", "condition forced"
            yield node.test, "False", "condition forced"
        case ast.Constant(value=bool()):
            yield node, str(not node.value), "boolean"
        case ast.Constant(value=int()):
            yield node, str(node.value + 1), "off by one"
        case ast.Constant(value=float()) if node.value == 0 or abs(node.value) > 1e-4:
            yield node, repr(2 * node.value or 1.0), "constant"
        case ast.Constant(value=str()) if node.value in SPLITS:
            yield node, repr(SPLITS[node.value]), "split"
        case ast.Slice():
            yield from _find_slice_changes(node)
        case ast.Call():
            yield from _find_call_changes(node)
        case ast.Name() | ast.Attribute():
            yield from _find_name_changes(node)


def _find_arithmetic_changes(node: ast.BinOp) -> Iterator[tuple[ast.AST, str, str]]:
    sides = (node.left, node.right)
    if any(isinstance(part, ast.JoinedStr) or isinstance(getattr(part, "value", None), str) for part in ast.walk(node)):
        return  # texts and paths
    if other := BINARY.get(type(node.op)):
        yield node, _unparse(ast.BinOp(node.left, other(), node.right)), "sign"
    if isinstance(node.op, ast.Sub) and isinstance(node.left, ast.Constant) and node.left.value == 1:
        yield node, _unparse(node.right), "complement"
    elif isinstance(node.op, ast.Mult):
        for side in sides:
            if ast.unparse(side).rpartition(".")[2] in SHARES:
                yield side, f"(1 - {ast.unparse(side)})", "complement"
    if isinstance(node.op, ast.Sub | ast.Div):
        yield node, _unparse(ast.BinOp(node.right, node.op, node.left)), "order"


def _find_slice_changes(node: ast.Slice) -> Iterator[tuple[ast.AST, str, str]]:
    for bound in (node.lower, node.upper):
        if bound is not None:
            yield bound, "None", "slice"
    if isinstance(node.lower, ast.Constant) and isinstance(node.lower.value, int) and node.lower.value:
        yield node.lower, str(node.lower.value - 1), "slice"


def _find_call_changes(node: ast.Call) -> Iterator[tuple[ast.AST, str, str]]:
    name = ast.unparse(node.func).rpartition(".")[2]
    if isinstance(node.func, ast.Attribute) and name in REMOVABLE and ast.unparse(node.func.value) not in LIBRARIES:
        yield node, ast.unparse(node.func.value), REMOVABLE[name]
    if name in REDUCTIONS:
        changed = ast.unparse(node.func)[: -len(name)] + REDUCTIONS[name]
        yield node.func, changed, "reduction"
        dims = [*node.args[:1], *(keyword.value for keyword in node.keywords if keyword.arg == "dim")]
        for dim in dims:
            if (dimension := ast.unparse(dim)) in ("0", "1", "2", "-1") and isinstance(node.func, ast.Attribute):
                yield dim, "1" if dimension == "0" else "0", "dimension"
    for keyword in node.keywords:
        if keyword.arg is not None and keyword.arg not in ("dim", "dtype", "device", *SKIPPED_KEYWORDS):
            kept = [other for other in node.keywords if other is not keyword]
            yield node, ast.unparse(ast.Call(node.func, node.args, kept)), "keyword left out"
    if name in ("isinstance", "getattr", "hasattr", "zip", "max", "min"):
        return
    for first, second in zip(node.args, node.args[1:], strict=False):
        if all(isinstance(side, ast.Name | ast.Attribute) for side in (first, second)):
            order = [{id(first): second, id(second): first}.get(id(argument), argument) for argument in node.args]
            yield node, ast.unparse(ast.Call(node.func, order, node.keywords)), "order"


def _find_name_changes(node: ast.Name | ast.Attribute) -> Iterator[tuple[ast.AST, str, str]]:
    whole = ast.unparse(node)
    name = node.id if isinstance(node, ast.Name) else node.attr
    if name in NAMES:
        yield node, whole[: -len(name)] + NAMES[name], "name swapped"
    if name in STREAMS and isinstance(node.ctx, ast.Load):
        yield node, "0", "stream"


def _unparse(node: ast.expr) -> str:
    return f"({ast.unparse(ast.fix_missing_locations(node))})"
