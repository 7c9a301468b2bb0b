"""Every object with bytes is checkpointed and restored, or refused with advice."""

import array
import mmap

import numpy as np
import pytest

import tierflow
from tierflow._tierflow import gather

DTYPES = ["?", "i1", "u1", "i2", "u4", "i8", "f2", "f4", "f8", "c8", "c16", ">f8", "M8[ns]", "S7", "U3", "V5", "i4,f8"]


def bytes_of(dtype: str, count: int) -> np.ndarray:
    raw = np.random.default_rng(count).integers(0, 2, np.dtype(dtype).itemsize * count, dtype="u1")
    return raw.view(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_numpy_comes_back(engine: tierflow.Engine, dtype: str) -> None:
    field = bytes_of(dtype, 60).reshape(3, 4, 5)
    engine.checkpoint(0, field)
    back = np.empty_like(field)
    engine.restore(0, back)
    assert back.tobytes() == field.tobytes()


def test_the_array_may_change_at_once(engine: tierflow.Engine) -> None:
    field = np.arange(1000.0)
    engine.checkpoint(0, field)
    field[:] = 0
    engine.restore(0, field)
    assert (field == np.arange(1000.0)).all()


def test_arrays_make_one_version_in_their_order(engine: tierflow.Engine) -> None:
    numbers = array.array("d", [1.5, 2.5])
    engine.checkpoint(
        0, b"bytes", bytearray(b"more"), memoryview(b"a view")[2:], numbers, np.float32(4), np.zeros((0, 3))
    )
    assert engine.restore_size(0) == 5 + 4 + 4 + 16 + 4
    back = [bytearray(5), bytearray(4), bytearray(4), array.array("d", [0, 0]), np.zeros((), "f4")]
    engine.restore(0, *back)
    assert back[:4] == [b"bytes", b"more", b"view", numbers]
    assert back[4] == 4


def test_a_file_in_memory(engine: tierflow.Engine) -> None:
    with mmap.mmap(-1, 8192) as memory:
        memory[:5] = b"hello"
        engine.checkpoint(0, memory)
        memory[:5] = b"other"
        engine.restore(0, memory)
        assert memory[:5] == b"hello"


def test_a_row_of_an_array(engine: tierflow.Engine) -> None:
    field = np.arange(12.0).reshape(3, 4)
    engine.checkpoint(0, field[1])
    engine.restore(0, field[2])
    assert field[2].tolist() == [4, 5, 6, 7]
    assert field[1].tolist() == [4, 5, 6, 7]


def read_only() -> np.ndarray:
    field = np.zeros((4, 6))
    field.flags.writeable = False
    return field


@pytest.mark.parametrize(
    ("bad", "instead"),
    [
        (np.zeros((4, 6))[:, ::2], r"np\.ascontiguousarray\(a\)"),
        (np.zeros((4, 6))[::-1], r"np\.ascontiguousarray\(a\)"),
        (np.zeros((4, 6)).T, r"pass a\.T"),
        (np.array([None]), "dtype of numbers"),
        (memoryview(b"0123")[::2], r"np\.ascontiguousarray\(a\)"),
    ],
)
def test_objects_that_cannot_be_checkpointed(engine: tierflow.Engine, bad: object, instead: str) -> None:
    with pytest.raises(tierflow.ArrayError, match=instead) as caught:
        engine.checkpoint(0, np.zeros(3), bad)
    assert isinstance(caught.value, ValueError)
    assert str(caught.value).startswith("array 1, a ")
    assert engine.versions() == []


@pytest.mark.parametrize(
    ("bad", "instead"),
    [
        (np.zeros((4, 6))[:, ::2], r"then a\[\.\.\.\] = b"),
        (np.zeros((4, 6)).T, r"pass a\.T"),
        (read_only(), r"a\.copy\(\)"),
        (b"0123", r"bytearray\(a\)"),
    ],
)
def test_targets_that_cannot_be_restored_to(engine: tierflow.Engine, bad: object, instead: str) -> None:
    engine.checkpoint(0, np.ones(24))
    with pytest.raises(tierflow.ArrayError, match=instead):
        engine.restore(0, bad)
    back = np.zeros(24)
    engine.restore(0, back)
    assert (back == 1).all()


class Masked(np.ma.MaskedArray):
    """A subclass of NumPy's array."""


class Tensor:
    """A tensor of PyTorch without memory, with the attributes that the test needs."""

    def __init__(self, kind: str) -> None:
        setattr(self, kind, True)

    def __dlpack_device__(self) -> tuple[int, int]:
        raise ValueError("Unknown device type meta for Dlpack")


@pytest.mark.parametrize(
    ("bad", "instead"),
    [
        (np.ma.masked_array(np.zeros(3), mask=[0, 1, 0]), r"np\.ma\.getmaskarray\(a\)"),
        (np.zeros(3).view(Masked), r"np\.ma\.getmaskarray\(a\)"),
        (Tensor("is_meta"), r"torch\.empty_like\(t, device"),
        (Tensor("is_sparse"), r"t\.values\(\)"),
    ],
)
def test_objects_of_several_arrays_or_of_none(engine: tierflow.Engine, bad: object, instead: str) -> None:
    with pytest.raises(tierflow.ArrayError, match=instead):
        engine.checkpoint(0, bad)
    with pytest.raises(tierflow.ArrayError, match=instead):
        engine.restore(0, bad)


@pytest.mark.parametrize("bad", [[1, 2], 3.0, "text", None, {"a": 1}, object()])
def test_objects_that_are_no_arrays(engine: tierflow.Engine, bad: object) -> None:
    with pytest.raises(TypeError, match=r"np\.asarray"):
        engine.checkpoint(0, bad)
    with pytest.raises(TypeError, match=r"np\.asarray"):
        engine.restore(0, bad)


@pytest.mark.parametrize("count", [1, 3, 400])
def test_arrays_are_gathered_at_their_offsets(engine: tierflow.Engine, count: int) -> None:
    arrays = tuple(np.arange(n, n + n % 7, dtype=np.int32) for n in range(count))
    offsets = [32 * (count - 1 - n) for n in range(count)]
    slot = engine.produce(1, 32 * count, "uint8")
    gather(engine, slot, arrays, offsets)
    other = np.zeros(32 * count, np.uint8)
    gather(engine, other, arrays, offsets)
    whole = np.asarray(slot)
    for found in (whole, other):
        for given, at in zip(arrays, offsets, strict=True):
            assert found[at : at + given.nbytes].tobytes() == given.tobytes()
    del whole, found
    slot.give_up()


def test_arrays_that_cannot_be_gathered(engine: tierflow.Engine) -> None:
    room, part = np.zeros(100, np.uint8), np.ones(10, np.uint8)
    for offset in (91, 1 << 63):
        with pytest.raises(tierflow.ArgumentError, match="do not lie within"):
            gather(engine, room, (part,), [offset])
    with pytest.raises(tierflow.ArgumentError, match="2 offsets of 1 arrays"):
        gather(engine, room, (part,), [0, 10])
    with pytest.raises(tierflow.ArrayError, match="shares memory"):
        gather(engine, room, (part, room[90:]), [0, 50])
    with pytest.raises(tierflow.ArrayError, match="read-only"):
        gather(engine, b"abc", (part[:3],), [0])
    assert not room.any()


def test_targets_that_overlap(engine: tierflow.Engine) -> None:
    engine.checkpoint(0, np.ones(8))
    field = np.zeros(6)
    with pytest.raises(tierflow.ArrayError, match="share memory"):
        engine.restore(0, field[:4], field[2:])
    with pytest.raises(tierflow.ArrayError, match="arrays 1 and 3 share memory"):
        engine.restore(0, np.zeros(2), field[3:], field[:0], field[1:4])
    engine.checkpoint(1, field[:4], field[2:])
    engine.restore(0, field[4:], field[3:3], np.zeros(2), field[:4])
    assert (field == 1).all()


class Tensor:
    """An array that has only DLPack, in a given version."""

    def __init__(self, of: np.ndarray, *, versioned: bool = True, device: tuple[int, int] = (1, 0)) -> None:
        self.of, self.versioned, self.device = of, versioned, device

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device

    def __dlpack__(self, **keywords: object) -> object:
        assert "stream" not in keywords, "an array in main memory has no stream"
        if not self.versioned:
            if "max_version" in keywords:
                raise TypeError("unexpected keyword")
            return self.of.__dlpack__()
        return self.of.__dlpack__(**keywords)


@pytest.mark.parametrize("versioned", [False, True])
def test_dlpack_comes_back(engine: tierflow.Engine, versioned: bool) -> None:
    field = np.arange(24, dtype="i2").reshape(2, 3, 4)
    engine.checkpoint(0, Tensor(field, versioned=versioned))
    back = np.zeros_like(field)
    engine.restore(0, Tensor(back, versioned=versioned))
    assert (back == field).all()


def test_dlpack_that_will_not_do(engine: tierflow.Engine) -> None:
    field = np.zeros((4, 6))
    with pytest.raises(tierflow.ArrayError, match="C order"):
        engine.checkpoint(0, Tensor(field.T))
    engine.checkpoint(0, Tensor(read_only()))
    with pytest.raises(tierflow.ArrayError, match="read-only"):
        engine.restore(0, Tensor(read_only()))
    with pytest.raises(tierflow.ArrayError, match="kind 4"):
        engine.checkpoint(1, Device(4))
    with pytest.raises(tierflow.ArrayError, match='device="cuda:1"'):
        engine.checkpoint(1, Device(2))
    with pytest.raises(tierflow.ArrayError, match="no memory of its own"):
        engine.checkpoint(1, Device(1, address=0))


class Device:
    """A tensor that claims to be on some device. The pointer must be read last."""

    def __init__(self, kind: int, address: int = 4096) -> None:
        import ctypes

        self.kind = kind
        self.shape = (ctypes.c_int64 * 1)(5)
        # DLManagedTensor: data, device, dimensions, type, shape, strides, offset, context, deleter.
        self.tensor = (ctypes.c_int64 * 8)(address, kind | 1 << 32, 1 | 2 << 32 | 32 << 40 | 1 << 48, 0, 0, 0, 0, 0)
        self.tensor[3] = ctypes.addressof(self.shape)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (self.kind, 1)

    def __dlpack__(self, **_keywords: object) -> object:
        import ctypes

        new = ctypes.pythonapi.PyCapsule_New
        new.restype = ctypes.py_object
        new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return new(ctypes.addressof(self.tensor), b"dltensor", None)


def test_a_capsule_is_used_once(engine: tierflow.Engine) -> None:
    capsule = np.zeros(3).__dlpack__()

    class Again:
        def __dlpack_device__(self) -> tuple[int, int]:
            return (1, 0)

        def __dlpack__(self, **_keywords: object) -> object:
            return capsule

    engine.checkpoint(0, Again())
    with pytest.raises(BufferError, match="used before"):
        engine.checkpoint(1, Again())


def test_an_array_of_a_gpu_for_plain_memory(engine: tierflow.Engine) -> None:
    class Cuda:
        @property
        def __cuda_array_interface__(self) -> dict[str, object]:
            return {"shape": (4,), "typestr": "<f4", "data": (4096, False), "version": 3}

    with pytest.raises(tierflow.ArrayError, match='device="cuda"'):
        engine.checkpoint(0, Cuda())


def test_a_stream_needs_a_gpu(engine: tierflow.Engine) -> None:
    with pytest.raises(tierflow.ArgumentError, match="leave it out"):
        engine.checkpoint(0, np.zeros(3), stream=1)
    with pytest.raises(TypeError, match="__cuda_stream__"):
        engine.checkpoint(0, np.zeros(3), stream="mine")
