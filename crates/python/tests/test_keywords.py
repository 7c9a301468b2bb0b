"""The texts of the package mention each parameter of what is public."""

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest

import tierflow


def _is_ours(kind: type) -> bool:
    return kind.__module__.startswith("tierflow")


def _names_of_ours(kind: type) -> set[str]:
    return {name for base in kind.__mro__ if _is_ours(base) for name in vars(base)}


def _described_fields(kind: type) -> set[str]:
    """Returns the fields of a class that are followed by a text."""
    try:
        (body,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    except (OSError, TypeError):
        return set()
    assert isinstance(body, ast.ClassDef)
    following = zip(body.body, body.body[1:], strict=False)
    texts = [(one, text.value) for one, text in following if isinstance(text, ast.Expr)]
    return {
        one.target.id
        for one, text in texts
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name) and isinstance(text, ast.Constant)
    }


def _public(module: Any) -> Iterator[tuple[str, Any]]:
    """Returns a module's functions, classes and methods. Methods that override those of other packages are described there."""
    for name in getattr(module, "__all__", vars(module)):
        it = getattr(module, name)
        if name.startswith("_") or not callable(it):
            continue
        if not str(getattr(it, "__module__", None)).startswith("tierflow"):
            continue
        yield name, it
        if not inspect.isclass(it) or issubclass(it, Exception):
            continue
        inherited = {name for kind in it.__mro__ if not _is_ours(kind) for name in vars(kind)}
        for method in sorted(_names_of_ours(it) - inherited):
            if not method.startswith("_") and callable(getattr(it, method)):
                yield f"{name}.{method}", getattr(it, method)


@pytest.mark.parametrize("name", ["", *sorted(tierflow._MODULES)])
def test_every_parameter_is_described(name: str) -> None:
    module = import_module(f"tierflow.{name}") if name else tierflow
    missing: list[str] = []
    looked_at = 0
    for of, it in _public(module):
        if inspect.isclass(it) and (issubclass(it, Exception) or not {"__init__", "__new__"} & _names_of_ours(it)):
            continue
        text = inspect.getdoc(it) or ""
        described = _described_fields(it) if inspect.isclass(it) else set()
        for parameter in inspect.signature(it).parameters:
            looked_at += 1
            if parameter != "self" and not re.search(rf"\b{parameter}\b", text) and parameter not in described:
                missing.append(f"{of}: {parameter}")
    assert looked_at
    assert not missing
