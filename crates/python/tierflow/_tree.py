"""Trees of arrays and plain values, taken apart for a checkpoint and put together again.

`flatten` turns a tree into its arrays, each with a name, and a structure of JSON's types that says where they belong. `unflatten`
turns both back into the tree. A name is the way to the array as a JSON Pointer (RFC 6901) without its first slash: keys, indices and
fields, with `~1` for a slash and `~0` for a tilde within a key.

A structure is JSON's own value where Python has the same one: None, bool, int, finite float, str, list. All else is an object that
names its kind: `{"tuple": [...]}`, `{"dict": [[key, node], ...]}`, `{"named tuple": class, "fields": [[name, node], ...]}`,
`{"dataclass": class, "fields": ...}`, `{"array": name, "of": framework}`, `{"float": "nan"}`, `{"complex": [real, imaginary]}`,
`{"bytes": base64}`, and `{"pickle": base64}` where the caller asked for it.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import pickle
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from math import isfinite
from operator import attrgetter
from typing import Any

from ._errors import ArgumentError, StorageError

__all__ = ["ANEW", "Flattened", "child", "children", "dtype_of", "flatten", "framework", "subtree", "unflatten"]

# The element types of the format's regions, and the most dimensions that one has.
_DTYPES = frozenset(
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64 complex128 bfloat16 "
    "float8_e4m3fn float8_e5m2".split()
)
_DIMENSIONS = 8

_PLAIN = frozenset((type(None), bool, int, str))
_KEYS = _PLAIN | {float}

# What `into` has where a tree is made anew.
ANEW: Any = object()


@lru_cache(256)
def _framework_of(kind: type[Any]) -> str | None:
    """What `framework` returns for all values of a type; None if that is not known by the type."""
    for name, array in (("torch", "Tensor"), ("jax", "Array"), ("cupy", "ndarray"), ("numpy", "ndarray")):
        # An array's framework was imported.
        found = getattr(sys.modules.get(name), array, None)
        if found is not None and issubclass(kind, found):
            return name
    numpy = sys.modules.get("numpy")
    return "scalar" if numpy is not None and issubclass(kind, numpy.generic) else None


def framework(value: Any) -> str | None:
    """The framework of an array: "torch", "jax", "cupy" or "numpy"; "scalar" for a scalar of NumPy's, and None for no array."""
    kind: Any = type(value)
    found = _framework_of(kind)
    # A tracer of JAX's is an array, and its type says nothing of that.
    jax = None if found else sys.modules.get("jax")
    return "jax" if jax is not None and isinstance(value, jax.Array) else found


def dtype_of(array: Any) -> str:
    """The name of an array's element type, as "float32" for `torch.float32` and for NumPy's."""
    return getattr(array.dtype, "name", None) or str(array.dtype).removeprefix("torch.")


def child(way: str, key: Any) -> str:
    """The name of what `key` leads to, below `way`."""
    step = str(key).replace("~", "~0").replace("/", "~1")
    return f"{way}/{step}" if way else step


def _at(way: str) -> str:
    return f"{way!r} of the tree" if way else "the tree"


def _fields_of(kind: Any) -> tuple[str, ...] | None:
    """The fields of a class of named tuples or of dataclasses; None for anything else."""
    if not isinstance(kind, type):
        return None
    if issubclass(kind, tuple):
        fields = getattr(kind, "_fields", None)
        return fields if isinstance(fields, tuple) else None
    return tuple(field.name for field in dataclasses.fields(kind)) if dataclasses.is_dataclass(kind) else None


def _branch(value: Any) -> tuple[str, list[tuple[Any, Any]]] | None:
    """The kind of a branch, and its keys and values in their order; None for a leaf."""
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


_TEXTS = {str}
_kind_of = attrgetter("dtype", "ndim")

_json = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


# Element types and dimensions of arrays that were seen, and that are stored as they are.
_seen: set[tuple[Any, int]] = set()


@lru_cache(8192)
def _of_arrays(way: str, keys: tuple[str, ...], kinds: tuple[type, ...]) -> tuple[list[str], str] | None:
    """The names of a dict's values, and its JSON, if all of them are arrays. Trees have the same ones in each save."""
    frameworks = [_framework_of(kind) for kind in kinds]
    if "scalar" in frameworks or not all(frameworks):
        return None
    names = [child(way, key) for key in keys]
    nodes = zip(keys, names, frameworks, strict=True)
    return names, _json({"dict": [[key, {"array": name, "of": of}] for key, name, of in nodes]})


class Flattened:
    """A tree taken apart: its own `arrays` by their names, in its order, and its structure as a `text` of JSON.

    A subclass of dict, list or tuple counts as that. What a structure has no kind for is pickled with `pickle`.

    Raises:
        ArgumentError: for any other value, another type of key, and a tree that contains itself.
    """

    def __init__(self, tree: Any, *, pickle: bool = False) -> None:
        self.arrays: dict[str, Any] = {}
        # Whether the arrays may be taken in as they are, as far as their types say it.
        self.is_plain = True
        self._pickled = pickle
        self._open: set[int] = set()
        self.text = self._node(tree, "")

    def _node(self, value: Any, way: str) -> str:
        if type(value) is dict and (found := self._dict_of_arrays(value, way)) is not None:
            return found
        # A list of plain values, such as an optimizer's of its parameters, may be long.
        if type(value) in _PLAIN or (type(value) is list and _PLAIN.issuperset(map(type, value))):
            return _json(value)
        if type(value) is float:
            return _json(value if isfinite(value) else {"float": repr(value)})
        kind = framework(value)
        if kind is not None and dtype_of(value) in _DTYPES and value.ndim <= _DIMENSIONS:
            if kind == "scalar" or not getattr(value.dtype, "isnative", True):
                self.is_plain = False
            else:
                _seen.add(_kind_of(value))
            return _json({"array": self._named(value, way), "of": kind})
        branch = _branch(value)
        if branch is not None:
            return self._branch(value, *branch, way)
        if type(value) is complex:
            return f'{{"complex":[{self._node(value.real, way)},{self._node(value.imag, way)}]}}'
        if type(value) is bytes:
            return _json({"bytes": base64.b64encode(value).decode()})
        if self._pickled:
            return _json({"pickle": base64.b64encode(pickle.dumps(value)).decode()})
        if kind is not None:
            what = f"an array of {dtype_of(value)} with {value.ndim} dimensions"
            raise ArgumentError(f"{_at(way)} is {what}: view it as one of {', '.join(sorted(_DTYPES))}, of 8 at most")
        raise ArgumentError(
            f"{_at(way)} is a {_class_of(value).replace(':', '.')}: a tree has dicts, lists, tuples, dataclasses and named tuples of "
            "arrays, numbers, texts and bytes; pass pickle=True to have anything else pickled"
        )

    def _named(self, array: Any, way: str) -> str:
        # A root has no name, and the keys 0 and "0" have the same one: `~0` and `~1` are all that a key can bring.
        name = way or "~2"
        while name in self.arrays:
            name += "~2"
        self.arrays[name] = array
        return name

    def _dict_of_arrays(self, branch: dict[Any, Any], way: str) -> str | None:
        """What `_branch` returns for a dict of texts and arrays, in less time."""
        if set(map(type, branch)) != _TEXTS:
            return None
        arrays = branch.values()
        found = _of_arrays(way, tuple(branch), tuple(map(type, arrays)))
        if found is None or not _seen.issuperset(map(_kind_of, arrays)):
            return None
        names, text = found
        if not self.arrays.keys().isdisjoint(names):
            return None
        self.arrays.update(zip(names, arrays, strict=True))
        return text

    def _branch(self, value: Any, kind: str, parts: list[tuple[Any, Any]], way: str) -> str:
        if id(value) in self._open:
            raise ArgumentError(f"{_at(way)} contains itself: take the reference out")
        if kind == "dict":
            for key, _ in parts:
                if type(key) not in _KEYS or (type(key) is float and not isfinite(key)):
                    raise ArgumentError(f"{_at(way)} has the key {key!r}: a key is a text, a number, a bool or None")
        self._open.add(id(value))
        nodes = [(key, self._node(part, child(way, key))) for key, part in parts]
        self._open.discard(id(value))
        if kind in ("list", "tuple"):
            listed = f"[{','.join(node for _, node in nodes)}]"
            return listed if kind == "list" else f'{{"tuple":{listed}}}'
        # JSON's text of an int is Python's.
        listed = ",".join(f"[{key if type(key) is int else _json(key)},{node}]" for key, node in nodes)
        return (
            f'{{"dict":[{listed}]}}'
            if kind == "dict"
            else f'{{"{kind}":{_json(_class_of(value))},"fields":[{listed}]}}'
        )


def flatten(tree: Any, *, pickle: bool = False) -> tuple[dict[str, Any], Any]:
    """The arrays of `Flattened`, and the structure itself."""
    flattened = Flattened(tree, pickle=pickle)
    return flattened.arrays, json.loads(flattened.text)


def _loaded(named: str, fields: list[str], way: str) -> Any:
    """A class of the program by its name. Nothing is imported: a file does not choose what runs."""
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
    """An instance with these fields. No `__init__` runs, as a file does not choose what runs."""
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
    """Returns the tree of a structure. `arrays` has the arrays by their names, or is called with an array's name, its framework and
    its counterpart in `into`, which is None without `into`.

    With `into`, branches are of the classes that it has. Without it, those of dataclasses and named tuples are found among the loaded
    modules; with `plain` they become dicts.

    Raises:
        ArgumentError: for another `into`, a class that is not loaded, and what was pickled, without `pickle`.
        StorageError: for a structure of a newer kind.
    """
    leaf = (lambda name, of, target: arrays[name]) if isinstance(arrays, Mapping) else arrays
    return _Unflattening(leaf, plain, pickle).value(structure, into, "")


def subtree(structure: Any, way: str) -> Any:
    """The structure of what lies at `way`, such as "model/layers/0".

    Raises:
        ArgumentError: if nothing lies there. The text says what there is.
    """
    node, at = structure, ""
    while at != way:
        steps = {child(at, key): part for key, part in children(node)}
        # Keys are compared as a whole: the next one ends at the way's end, or at a slash.
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
