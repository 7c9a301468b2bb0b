"""Tests with the frameworks that are installed, in main memory."""

import ctypes
from typing import Any

import numpy as np
import pytest

import tierflow


class Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32 * 2),
        ("dimensions", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("offset", ctypes.c_uint64),
    ]


class TestExchange:
    """A framework that describes its tensors in place."""

    @pytest.fixture
    def framework(self) -> type:
        shape, strides = (ctypes.c_int64 * 2)(), (ctypes.c_int64 * 2)()

        @ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(Tensor))
        def describe(of: Any, tensor: Any) -> int:
            array = of.array
            shape[:], strides[:] = array.shape, [stride // array.itemsize for stride in array.strides]
            tensor[0].data, tensor[0].device[:] = array.ctypes.data - 16, (1, 0)
            tensor[0].dimensions, tensor[0].offset = 2, 16
            tensor[0].code, tensor[0].bits, tensor[0].lanes = 2, 64, 1
            tensor[0].shape = ctypes.cast(shape, ctypes.POINTER(ctypes.c_int64))
            tensor[0].strides = ctypes.cast(strides, ctypes.POINTER(ctypes.c_int64))
            return 0

        @ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int32, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p))
        def stream(_kind: int, _number: int, _stream: Any) -> int:
            raise AssertionError("there is no stream in main memory")

        address = [ctypes.cast(function, ctypes.c_void_p).value for function in (describe, stream)]
        # The fields: version 1.3, no older table, allocate, to and from managed tensors, describe, stream.
        table = (ctypes.c_uint64 * 7)(1 | 3 << 32, 0, 0, 0, 0, *address)
        # A table of another major version points to the table that the library understands.
        newer = (ctypes.c_uint64 * 2)(2, ctypes.addressof(table))
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]

        class Framework:
            __dlpack_c_exchange_api__ = new(ctypes.addressof(newer), b"dlpack_exchange_api", None)
            kept = (describe, stream, table, newer)
            requires_grad = False

            def __init__(self, array: np.ndarray) -> None:
                self.array = array

        return Framework

    def test_tensors_come_back(self, engine: tierflow.Engine, framework: type) -> None:
        field, back = np.arange(24.0).reshape(4, 6), np.zeros((4, 6))
        engine.checkpoint(0, framework(field), framework(field[:2]))
        engine.restore(0, framework(back), framework(np.zeros((2, 6))))
        assert (back == field).all()

    def test_arguments_that_are_refused(self, engine: tierflow.Engine, framework: Any) -> None:
        with pytest.raises(tierflow.ArrayError, match="C order"):
            engine.checkpoint(0, framework(np.zeros((4, 6)).T))
        tensor = framework(np.zeros((4, 6)))
        tensor.requires_grad = True
        with pytest.raises(tierflow.ArrayError, match=r"t\.detach\(\)"):
            engine.checkpoint(0, tensor)
        tensor.requires_grad, tensor.is_conj, tensor.is_neg = False, lambda: False, lambda: True
        with pytest.raises(tierflow.ArrayError, match=r"t\.resolve_neg\(\)"):
            engine.checkpoint(0, tensor)


def test_a_tensor_that_only_dlpack_shows_has_no_lazy_math(engine: tierflow.Engine) -> None:
    torch = pytest.importorskip("torch")

    class OnlyDLPack:
        def __init__(self, tensor: Any) -> None:
            self.is_neg, self.is_conj = tensor.is_neg, tensor.is_conj
            self.__dlpack__, self.__dlpack_device__ = tensor.__dlpack__, tensor.__dlpack_device__

    lazy = torch.ones(4, dtype=torch.complex64).conj()
    for tensor, remedy in ((lazy, "conj"), (lazy.imag, "neg")):
        with pytest.raises(tierflow.ArrayError, match=f"pass t.resolve_{remedy}"):
            engine.checkpoint(0, OnlyDLPack(tensor))


class TestTvmFfi:
    """The C exchange API, in the smallest package that has it."""

    @pytest.fixture
    def ffi(self) -> Any:
        return pytest.importorskip("tvm_ffi")

    def test_tensors_come_back(self, engine: tierflow.Engine, ffi: Any) -> None:
        def exchanged(array: np.ndarray) -> Any:
            tensor = ffi.core.DLTensorTestWrapper(ffi.from_dlpack(array))
            assert hasattr(type(tensor), "__dlpack_c_exchange_api__")
            return tensor

        field, back = np.arange(24.0).reshape(4, 6), np.zeros((4, 6))
        engine.checkpoint(0, ffi.from_dlpack(field), exchanged(field[1]))
        engine.restore(0, exchanged(back), ffi.from_dlpack(np.zeros(6)))
        assert (back == field).all()
        strided = ffi.from_dlpack(np.zeros((4, 6))[:, ::2], require_contiguous=False)
        for bad in (strided, ffi.core.DLTensorTestWrapper(strided)):
            with pytest.raises(tierflow.ArrayError, match="C order"):
                engine.checkpoint(1, bad)

    def test_slots_are_tensors(self, engine: tierflow.Engine, ffi: Any) -> None:
        slot = engine.produce(0, (2, 3), "float32")
        tensor = ffi.from_dlpack(slot)
        assert (tuple(tensor.shape), str(tensor.dtype)) == ((2, 3), "float32")
        np.from_dlpack(tensor)[:] = 4
        with pytest.raises(BufferError):
            slot.commit()
        del tensor
        slot.commit()
        assert np.asarray(engine.consume(0, (2, 3), "f4")).sum() == 24


class TestTorch:
    @pytest.fixture
    def torch(self) -> Any:
        return pytest.importorskip("torch")

    @pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int64", "uint8", "complex64"])
    def test_tensors_come_back(self, engine: tierflow.Engine, torch: Any, dtype: str) -> None:
        field = torch.arange(24).reshape(2, 3, 4).to(getattr(torch, dtype))
        engine.checkpoint(0, field, field[1])
        back, part = torch.zeros_like(field), torch.zeros_like(field[1])
        engine.restore(0, back, part)
        assert torch.equal(back, field)
        assert torch.equal(part, field[1])

    def test_arguments_that_are_refused(self, engine: tierflow.Engine, torch: Any) -> None:
        weight = torch.zeros(4, 6, requires_grad=True)
        with pytest.raises(tierflow.ArrayError, match=r"t\.detach\(\)"):
            engine.checkpoint(0, weight)
        engine.checkpoint(0, weight.detach())
        with pytest.raises(tierflow.ArrayError, match=r"t\.detach\(\)"):
            engine.restore(0, weight)
        engine.restore(0, weight.detach())
        with pytest.raises(tierflow.ArrayError, match=r"t\.contiguous\(\)"):
            engine.checkpoint(1, weight.detach().T)
        with pytest.raises((tierflow.ArrayError, RuntimeError), match="conj"):
            engine.checkpoint(1, torch.zeros(4, dtype=torch.complex64).conj())

    @pytest.mark.filterwarnings("ignore")
    def test_objects_of_several_tensors_or_of_none(self, engine: tierflow.Engine, torch: Any) -> None:
        """The calls follow the advice of each error."""
        whole, version = torch.eye(4), 0
        meta = torch.zeros(3, device="meta")
        nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
        quantized = torch.quantize_per_tensor(whole, 0.1, 0, torch.qint8)
        sparse = whole.to_sparse().coalesce()
        rows, columns = whole.to_sparse_csr(), whole.to_sparse_csc()
        for bad, words, instead in [
            (meta, r"torch\.empty_like\(t, device", [torch.empty_like(meta, device="cpu")]),
            (sparse, r"t\.coalesce", [sparse.indices(), sparse.values()]),
            (rows, r"t\.crow_indices", [rows.values(), rows.crow_indices(), rows.col_indices()]),
            (columns, r"t\.ccol_indices", [columns.values(), columns.ccol_indices(), columns.row_indices()]),
            (whole.to_sparse_bsr((2, 2)), r"t\.to_dense", [whole.to_sparse_bsr((2, 2)).to_dense()]),
            (nested, r"\*t\.unbind", [*nested.unbind()]),
            (quantized, r"t\.int_repr", [quantized.int_repr()]),
        ]:
            with pytest.raises(tierflow.ArrayError, match=words):
                engine.checkpoint(version, bad)
            engine.checkpoint(version, *instead)
            version += 1

    def test_slots_are_tensors(self, engine: tierflow.Engine, torch: Any) -> None:
        slot = engine.produce(0, (2, 3), torch.float32)
        torch.from_dlpack(slot)[:] = 4
        slot.commit()
        with engine.consume(0, (2, 3), torch.float32) as slot:
            seen = torch.from_dlpack(slot)
            assert seen.shape == (2, 3)
            assert seen.sum() == 24
            del seen


@pytest.mark.usefixtures("on_processor")
class TestJax:
    @pytest.fixture
    def jax(self) -> Any:
        return pytest.importorskip("jax")

    def test_arrays_go_in_and_slots_come_out(self, engine: tierflow.Engine, jax: Any) -> None:
        field = jax.numpy.arange(24, dtype="float32").reshape(4, 6)
        engine.checkpoint(0, field)
        back = np.zeros((4, 6), "f4")
        engine.restore(0, back)
        assert (back == np.asarray(field)).all()
        with pytest.raises(tierflow.ArrayError, match=r"jnp\.asarray\(engine\.restore\(version\)\)"):
            engine.restore(0, field)
        assert (jax.numpy.asarray(engine.restore(0)) == field).all()
        key = jax.random.key(7)
        with pytest.raises(TypeError, match=r"jax\.random\.key_data\(a\)"):
            engine.checkpoint(1, key)
        engine.checkpoint(1, jax.random.key_data(key))
        with pytest.raises(TypeError, match="outside of that function"):
            jax.jit(lambda a: engine.checkpoint(2, a))(field)
        seen = jax.dlpack.from_dlpack(engine.consume(0, (4, 6), "float32"))
        assert (seen == field).all()
