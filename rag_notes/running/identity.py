"""The code that something is made of, as a hash: what a run compares to know whether its samples still stand."""

import ast
import hashlib
import inspect
import re
import sys
import sysconfig
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

_INSTALLED = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
_TRANSPORT = "rag_notes.llm"  # carries prompts and answers, and decides neither


def code_hash(function: Callable[..., Any]) -> str:
    """SHA-256 of a function and of all functions, classes and constants that it uses, ours and those written beside it.

    Comments, docstrings and layout do not count. What is installed does not either: its versions are in run.json.
    """
    function = unwrapped(function)
    parts: dict[str, str] = {}
    waiting: list[Any] = [function]
    while waiting:
        thing = waiting.pop()
        place = f"{thing.__module__}.{thing.__qualname__}"
        if place not in parts:
            parts[place], names, attributes = _parsed(thing)
            for name, value in _used(names, attributes, vars(inspect.getmodule(thing) or object)):
                if isinstance(found := inspect.unwrap(value) if callable(value) else value, FunctionType | type):
                    if _is_ours(found.__module__):
                        waiting.append(found)
                else:
                    parts[f"{thing.__module__}.{name} ="] = _constant(value)
    return hashlib.sha256(repr(sorted(parts.items())).encode()).hexdigest()


def unwrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function itself, of one that has some of its arguments already."""
    return unwrapped(function.func) if isinstance(function, partial) else function


@cache
def _parsed(thing: Any) -> tuple[str, list[str], list[tuple[str, str]]]:
    """The code of a thing without its texts, the names that stand in it, and the names with an attribute."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(thing)))
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            node.body = [line for line in node.body if not _is_text(line)] or [ast.Pass()]
        elif isinstance(node, ast.Module) and body:
            node.body = [line for line in node.body if not _is_text(line)]
    nodes = list(ast.walk(tree))
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    attributes = {
        (node.value.id, node.attr)
        for node in nodes
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    }
    return ast.dump(tree), sorted(names), sorted(attributes)


def _is_text(line: ast.stmt) -> bool:
    return isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant) and isinstance(line.value.value, str)


def _used(
    names: Sequence[str], attributes: Sequence[tuple[str, str]], known: Mapping[str, Any]
) -> Iterator[tuple[str, Any]]:
    """Which of the names a module knows, with what they stand for; of a module the attributes used."""
    for name in names:
        if name in known and not isinstance(known[name], ModuleType):
            yield name, known[name]
    for name, attribute in attributes:
        module = known.get(name)
        if isinstance(module, ModuleType) and hasattr(module, attribute):
            yield f"{name}.{attribute}", getattr(module, attribute)


@cache
def _is_ours(module: str) -> bool:
    """Whether a module is of this package or written beside it, not installed."""
    if module.partition(".")[0] == "rag_notes":
        return not f"{module}.".startswith(f"{_TRANSPORT}.")
    file = getattr(sys.modules.get(module), "__file__", None)
    return module == "__main__" or (
        file is not None and not any(Path(file).is_relative_to(place) for place in _INSTALLED)
    )


def _constant(value: Any) -> str:
    """A constant as text that is the same in every process; of what is no plain value the type alone."""
    match value:
        case re.Pattern():
            return f"pattern {value.pattern!r} {value.flags}"
        case dict():
            return f"{{{', '.join(f'{_constant(key)}: {_constant(item)}' for key, item in value.items())}}}"
        case set() | frozenset():
            return f"{{{', '.join(sorted(map(_constant, value)))}}}"
        case list() | tuple():
            return f"[{', '.join(map(_constant, value))}]"
        case str() | bytes() | bool() | int() | float() | None:
            return repr(value)
    return type(value).__name__
