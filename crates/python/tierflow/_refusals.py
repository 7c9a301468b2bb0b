"""Texts of errors that say what to pass in place of an array that the engine cannot use, and the check of engines for schedules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._errors import ArgumentError

if TYPE_CHECKING:
    from ._tierflow import Engine

__all__ = ["check_keeps", "no_array", "not_contiguous", "read_only", "scattered"]

# Texts for PyTorch's tensors whose bytes do not lie in one place, by the attribute that tells them.
_SCATTERED = {
    "is_meta": 'it is a meta tensor, which has a shape and no bytes: make a real one, as torch.empty_like(t, device="cpu") does',
    "is_nested": "it is nested, and lies in several tensors: pass those, as *t.unbind()",
    "is_quantized": "it is quantized: pass t.int_repr(), and keep its scale and its zero point",
    "is_sparse": "it is sparse, and lies in several tensors: pass those, as t.indices() and t.values() of t.coalesce(), or t.to_dense()",
}
_COMPRESSED = (
    "it is sparse, and lies in several tensors: pass those, as t.values(), with t.crow_indices() and t.col_indices() of CSR "
    "and BSR, or t.ccol_indices() and t.row_indices() of CSC and BSC; or pass t.to_dense()"
)


def _is_of(array: Any, *packages: str) -> bool:
    # The compiled part of a package has a name that begins with the package's, such as `jaxlib`.
    return type(array).__module__.startswith(packages)


def scattered(array: Any) -> str | None:
    for attribute, instead in _SCATTERED.items():
        if getattr(array, attribute, False):
            return instead
    layout = str(getattr(array, "layout", "torch.strided"))
    return None if layout == "torch.strided" else _COMPRESSED


def no_array(given: Any) -> str:
    if _is_of(given, "jax"):
        kind = type(given).__name__
        if kind.endswith("KeyArray"):
            return "pass its numbers, as jax.random.key_data(a)"
        if kind.endswith("Tracer"):
            return (
                "it stands for an array while JAX compiles a function: call the engine outside of that function; for loops, "
                "see tierflow.jax.scan"
            )
    for dense in ("toarray", "todense"):
        if hasattr(given, dense):
            return f"pass the arrays that it is made of, or a.{dense}()"
    return (
        "pass arrays of NumPy, CuPy, PyTorch or JAX, or whatever has the buffer protocol, DLPack or "
        "__cuda_array_interface__; for numbers, np.asarray(a)"
    )


def not_contiguous(array: Any, is_restored: bool, is_fortran: bool) -> str:
    copy = "t.contiguous()" if _is_of(array, "torch") else "np.ascontiguousarray(a)"
    if _is_of(array, "cupy"):
        copy = "cp.ascontiguousarray(a)"
    if is_fortran:
        return f"its first index runs fastest: pass a.T, which has the same bytes in C order, every time, or {copy}"
    instead = f"restore to b = {copy}, then a[...] = b" if is_restored else f"pass {copy}"
    return f"its bytes do not lie in one run in C order: {instead}"


def read_only(array: Any) -> str:
    if _is_of(array, "jax"):
        return (
            "arrays of JAX never change: restore to a NumPy array, or make a new one of what comes back, as "
            "jnp.asarray(engine.restore(version))"
        )
    return "it is read-only: restore to a copy that may be written, as of a.copy() or bytearray(a)"


def check_keeps(engine: Engine) -> None:
    """Raises `ArgumentError` if an engine discards versions that were restored: a schedule restores some states more than once."""
    if engine.after_restore != "keep":
        raise ArgumentError(
            "a schedule restores states more than once, and this engine discards what was restored: "
            'open it with after_restore="keep", which is the default'
        )
