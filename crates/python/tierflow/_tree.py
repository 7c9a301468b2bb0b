"""Takes trees of arrays and plain values apart for a checkpoint, and puts them together again.

`flatten` turns a tree into its arrays, each with a name, and a structure of JSON's types that says where the arrays belong. `unflatten`
turns both back into the tree. A name is the way to the array as a JSON Pointer (RFC 6901) without its first slash: keys, indices and
fields, with `~1` for a slash and `~0` for a tilde within a key.

A structure is a value of JSON if Python has the same value: None, bool, int, finite float, str, list. Any other value is an object that
names its kind: `{"tuple": [...]}`, `{"dict": [[key, node], ...]}`, `{"named tuple": class, "fields": [[name, node], ...]}`,
`{"dataclass": class, "fields": ...}`, `{"array": name, "of": framework}`, `{"float": "nan"}`, `{"complex": [real, imaginary]}`,
`{"bytes": base64}`, and `{"pickle": base64}` if the caller asked for it.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import pickle
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import isfinite
from typing import Any

from . import _tierflow
from ._errors import ArgumentError, StorageError

__all__ = ["ANEW", "child", "children", "dtype_of", "flatten", "framework", "subtree", "unflatten"]

# The element types that regions can have.
_DTYPES = frozenset(
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64 complex128 bfloat16 "
    "float8_e4m3fn float8_e5m2".split()
)
# The value of `into` for a tree, or a part of one, that is made anew.
ANEW: Any = object()


def framework(value: Any) -> str | None:
    """Returns the framework of an array: "torch", "jax", "cupy" or "numpy"; "scalar" for a NumPy scalar, and None for any other value."""
    for name, kind in (("torch", "Tensor"), ("jax", "Array"), ("cupy", "ndarray"), ("numpy", "ndarray")):
        # If the value is an array, its framework was imported.
        kinds = getattr(sys.modules.get(name), kind, None)
        if kinds is not None and isinstance(value, kinds):
            return name
    numpy = sys.modules.get("numpy")
    return "scalar" if numpy is not None and isinstance(value, numpy.generic) else None


def dtype_of(array: Any) -> str:
    """Returns the name of an array's element type: "float32" for `torch.float32` and for NumPy's `float32`."""
    return getattr(array.dtype, "name", None) or str(array.dtype).removeprefix("torch.")


def child(way: str, key: Any) -> str:
    """Returns the name of the value that `key` leads to, below `way`."""
    step = str(key).replace("~", "~0").replace("/", "~1")
    return f"{way}/{step}" if way else step


def _at(way: str) -> str:
    return f"{way!r} of the tree" if way else "the tree"


def _fields_of(kind: Any) -> tuple[str, ...] | None:
    """Returns the fields of a class of named tuples or of dataclasses; None for any other value."""
    if not isinstance(kind, type):
        return None
    if issubclass(kind, tuple):
        fields = getattr(kind, "_fields", None)
        return fields if isinstance(fields, tuple) else None
    return tuple(field.name for field in dataclasses.fields(kind)) if dataclasses.is_dataclass(kind) else None


def _branch(value: Any) -> tuple[str, list[tuple[Any, Any]]] | None:
    """Returns the kind of a branch, and its keys and values in their order; None for a leaf."""
    if isinstance(value, dict):
        return "dict", list(value.items())
    fields = _fields_of(type(value))
    if isinstance(value, list) or (isinstance(value, tuple) and fields is None):
        return "list" if isinstance(value, list) else "tuple", list(enumerate(value))
    if fields is None:
        return None
    if isinstance(value, tuple):
        return "named tuple", list(zip(fields, value, strict=True))
    return "dataclass", [(name, getattr(value, name)) for name in fields]


def _class_of(value: Any) -> str:
    kind = type(value)
    return f"{kind.__module__}:{kind.__qualname__}"


def flatten(tree: Any, *, pickle: bool = False) -> tuple[dict[str, Any], Any]:
    """Returns the arrays of `tree` by their names, in its order, and its structure. The arrays are the tree's own.

    A subclass of dict, list or tuple counts as that type. With `pickle`, a value that the structure has no kind for is pickled.

    Raises:
        ArgumentError: if a value has no kind, a key is no plain value, or the tree contains itself.
    """
    arrays, text, _ = _tierflow.flatten(tree, pickle)
    return arrays, json.loads(text)


# `_tierflow.flatten` calls the functions that follow.


def element_of(array: Any) -> tuple[bool, bool]:
    """Returns true if regions can have the array's element type, and true if the elements are in the machine's byte order."""
    return dtype_of(array) in _DTYPES, getattr(array.dtype, "isnative", True)


def rare(value: Any, way: str, pickled: bool, is_array: bool) -> str | tuple[str, str, list[Any], list[Any]]:
    """Returns the JSON of a leaf that is neither a plain value nor an array that fits a region; or the kind, class, keys and values of a branch.

    Raises:
        ArgumentError: if the value is neither, and is not to be pickled.
    """
    branch = _branch(value)
    if branch is not None:
        kind, parts = branch
        return kind, _class_of(value), [key for key, _ in parts], [part for _, part in parts]
    # A text with half of a character (a lone surrogate), or a float that is not finite.
    if type(value) in (str, float):
        return json.dumps(_number(value))
    if type(value) is complex:
        return json.dumps({"complex": [_number(value.real), _number(value.imag)]})
    if type(value) is bytes:
        return json.dumps({"bytes": base64.b64encode(value).decode()})
    if pickled:
        return json.dumps({"pickle": base64.b64encode(pickle.dumps(value)).decode()})
    if is_array:
        what = f"an array of {dtype_of(value)} with {value.ndim} dimensions"
        raise ArgumentError(f"{_at(way)} is {what}: view it as one of {', '.join(sorted(_DTYPES))}, of 8 at most")
    raise ArgumentError(
        f"{_at(way)} is a {_class_of(value).replace(':', '.')}: a tree has dicts, lists, tuples, dataclasses and named tuples of "
        "arrays, numbers, texts and bytes; pass pickle=True to have anything else pickled"
    )


def _number(value: Any) -> Any:
    return {"float": repr(value)} if type(value) is float and not isfinite(value) else value


def endless(way: str, is_within_itself: bool) -> ArgumentError:
    what = "contains itself: take the reference out" if is_within_itself else "has too many levels: make it flatter"
    return ArgumentError(f"{_at(way)} {what}")


def no_key(way: str, key: Any) -> ArgumentError:
    return ArgumentError(f"{_at(way)} has the key {key!r}: a key is a text, a number, a bool or None")


def _loaded(named: str, fields: list[str], way: str) -> Any:
    """Returns a class of the program by its name. Imports nothing, as a file must not choose the code that runs."""
    module, _, qualname = named.partition(":")
    found: Any = sys.modules.get(module)
    for part in qualname.split("."):
        found = getattr(found, part, None)
    has = _fields_of(found)
    if has is None or set(has) != set(fields):
        raise ArgumentError(
            f"{_at(way)} is a {module}.{qualname} of {', '.join(fields) or 'no fields'}, and the program has no such class: import "
            f"{module} first, pass a tree of your own as into=, or plain=True for dicts and tuples in its place"
        )
    return found


def _made(kind: type, fields: dict[str, Any]) -> Any:
    """Makes an instance with these fields. Calls no `__init__`, as a file must not choose the code that runs."""
    if issubclass(kind, tuple):
        names: tuple[str, ...] = kind._fields  # type: ignore[attr-defined]
        return tuple.__new__(kind, [fields[name] for name in names])
    made = object.__new__(kind)
    for name, value in fields.items():
        object.__setattr__(made, name, value)
    return made


@dataclasses.dataclass(frozen=True)
class _Unflattening:
    leaf: Callable[[str, str, Any], Any]
    plain: bool
    pickled: bool

    def value(self, node: Any, into: Any, way: str) -> Any:
        if isinstance(node, list):
            return self._branch(node, into, way)
        if not isinstance(node, dict):
            return node
        match node:
            case {"array": name, "of": of}:
                if into is not ANEW and framework(into) is None:
                    raise ArgumentError(f"{_at(way)} is an array, and into= has a {type(into).__name__} there")
                return self.leaf(name, of, None if into is ANEW else into)
            case {"tuple": _} | {"dict": _} | {"fields": _}:
                return self._branch(node, into, way)
            case {"float": text}:
                return float(text)
            case {"complex": [real, imaginary]}:
                return complex(self.value(real, ANEW, way), self.value(imaginary, ANEW, way))
            case {"bytes": text}:
                return base64.b64decode(text)
            case {"pickle": text}:
                if not self.pickled:
                    raise ArgumentError(f"{_at(way)} was pickled: pass pickle=True if you trust whoever wrote it")
                return pickle.loads(base64.b64decode(text))
        raise StorageError(f"{_at(way)} is of a kind that this version does not know: {sorted(node)}")

    def _branch(self, node: Any, into: Any, way: str) -> Any:
        kind, named = ("list", "") if isinstance(node, list) else next(iter(node.items()))
        parts = dict(children(node))
        keys = list(parts)
        of, targets = _branch(into) or ("", [])
        of_keys = dict(targets)
        if into is not ANEW and (set(of_keys) != set(keys) or (of != kind and "fields" not in node)):
            raise ArgumentError(f"{_at(way)} is {_described(kind, keys)}, and into= has {_short(into)} there")
        made = {key: self.value(part, of_keys.get(key, ANEW), child(way, key)) for key, part in parts.items()}
        match kind:
            case "list" | "tuple":
                return list(made.values()) if kind == "list" else tuple(made.values())
            case "dict":
                return made
        if self.plain and into is ANEW:
            return made
        return _made(_loaded(named, keys, way) if into is ANEW or isinstance(into, dict) else type(into), made)


def _listed(names: Any) -> str:
    texts = sorted(map(repr, names))
    return ", ".join(texts[:8]) + (f" and {len(texts) - 8} more" if len(texts) > 8 else "")


def _described(kind: str, keys: Sequence[Any]) -> str:
    return f"a {kind} of {len(keys) if kind in ('list', 'tuple') else _listed(keys)}"


def _short(value: Any) -> str:
    kind, parts = _branch(value) or (type(value).__name__, None)
    return f"a {kind}" if parts is None else _described(kind, [key for key, _ in parts])


def unflatten(
    structure: Any,
    arrays: Mapping[str, Any] | Callable[[str, str, Any], Any],
    *,
    into: Any = ANEW,
    plain: bool = False,
    pickle: bool = False,
) -> Any:
    """Returns the tree of a structure. `arrays` has the arrays by their names, or is a function of an array's name, its framework and
    its counterpart in `into`, which is None without `into`.

    With `into`, branches have the classes that they have there. Without `into`, classes of dataclasses and named tuples are found in the
    loaded modules; with `plain` these branches become dicts.

    Raises:
        ArgumentError: if `into` has another form, a class is not loaded, or a value was pickled and `pickle` is false.
        StorageError: if the structure has a newer kind of value.
    """
    leaf = (lambda name, of, target: arrays[name]) if isinstance(arrays, Mapping) else arrays
    return _Unflattening(leaf, plain, pickle).value(structure, into, "")


def subtree(structure: Any, way: str) -> Any:
    """Returns the structure of the part at `way`, such as "model/layers/0".

    Raises:
        ArgumentError: if nothing lies there. The text names the parts that exist.
    """
    node, at = structure, ""
    while at != way:
        steps = {child(at, key): part for key, part in children(node)}
        # Keys are compared as a whole: the next key ends at the end of `way`, or at a slash.
        further = [step for step in steps if way == step or way.startswith(step + "/")]
        if not further:
            raise ArgumentError(f"there is no {way!r}: {_at(at)} has {_listed(steps) or 'no parts'}")
        at = further[0]
        node = steps[at]
    return node


def children(node: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(node, list):
        yield from enumerate(node)
    elif isinstance(node, dict):
        yield from enumerate(node.get("tuple", ()))
        yield from map(tuple, (*node.get("dict", ()), *node.get("fields", ())))
