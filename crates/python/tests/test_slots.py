"""Tests of slots, parts of the cache as arrays: their owners, their end, and the calls that they refuse."""

import ctypes
import gc
import weakref

import numpy as np
import pytest

import tierflow

DTYPES = [
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "float32",
    "float64",
]


@pytest.mark.parametrize("dtype", [*DTYPES, "complex64", "complex128"])
def test_produced_is_consumed(engine: tierflow.Engine, dtype: str) -> None:
    expected = np.arange(60).reshape(3, 4, 5).astype(dtype)
    slot = engine.produce(0, (3, 4, 5), dtype)
    assert (slot.version, slot.shape, slot.dtype, slot.nbytes) == (0, (3, 4, 5), dtype, expected.nbytes)
    np.copyto(np.asarray(slot), expected)
    assert (np.from_dlpack(slot) == expected).all()
    assert engine.versions() == []
    slot.commit()
    assert engine.versions() == [0]
    with engine.consume(0, (3, 4, 5), dtype) as slot:
        assert slot.is_cached
        for seen in (np.asarray(slot), np.from_dlpack(slot), np.array(memoryview(slot))):
            assert seen.dtype == dtype
            assert (seen == expected).all()


def test_no_bytes_are_copied(engine: tierflow.Engine) -> None:
    slot = engine.produce(0, 8, "u1")
    one, other = np.asarray(slot), np.from_dlpack(slot)
    one[3] = 7
    assert other[3] == 7
    assert one.__array_interface__["data"][0] == other.__array_interface__["data"][0]


@pytest.mark.parametrize(
    ("named", "dtype"),
    [
        ("f4", "float32"),
        ("<f8", "float64"),
        (np.float16, "float16"),
        (np.dtype("i2"), "int16"),
        (np.bool_, "bool"),
        (float, "float64"),
        (int, "int64"),
        (bool, "bool"),
        (complex, "complex128"),
        ("bfloat16", "bfloat16"),
    ],
)
def test_names_of_types(engine: tierflow.Engine, named: object, dtype: str) -> None:
    assert engine.produce(0, 4, named).dtype == dtype


@pytest.mark.parametrize(
    "bad", ["f3", ">f4", np.dtype(">f4"), np.dtype("O"), "object", str, np.dtype("i4,f8"), None, 4]
)
def test_types_and_shapes_that_no_slot_has(engine: tierflow.Engine, bad: object) -> None:
    with pytest.raises(TypeError, match="float32"):
        engine.produce(0, 4, bad)


def test_a_type_that_buffers_have_no_name_for(engine: tierflow.Engine) -> None:
    slot = engine.produce(0, 4, "bfloat16")
    with pytest.raises((BufferError, ValueError), match="DLPack"):
        memoryview(slot)
    assert slot.__dlpack_device__() == (1, 0)
    slot.give_up()


def test_shapes(engine: tierflow.Engine) -> None:
    assert engine.produce(0, 5, "u1").shape == (5,)
    assert engine.produce(1, [2, 3], "u1").shape == (2, 3)
    assert engine.produce(2, (), "f8").nbytes == 8
    with pytest.raises(tierflow.ArgumentError, match="no bytes"):
        engine.produce(3, (0, 3), "u1")
    with pytest.raises(tierflow.ArgumentError, match="addresses"):
        engine.produce(3, (1 << 40, 1 << 40), "u1")
    with pytest.raises(tierflow.ArgumentError, match="addresses"):
        engine.produce(3, (1 << 40, 0, 1 << 62), "f8")
    for shape in (-1, (-1,), 1 << 64):
        with pytest.raises(OverflowError):
            engine.produce(3, shape, "u1")


def test_an_object_whose_dtype_is_itself_is_no_element_type(engine: tierflow.Engine) -> None:
    class Own:
        @property
        def dtype(self) -> "Own":
            return self

    with pytest.raises(TypeError, match="no element type"):
        engine.produce(0, 5, Own())


def test_views_have_the_order_that_was_asked_for(engine: tierflow.Engine) -> None:
    call, view = ctypes.pythonapi, (ctypes.c_void_p * 16)()
    release = ctypes.pythonapi.PyBuffer_Release
    nd, strides = 0x8, 0x18
    c_order, fortran, any_order = strides | 0x20, strides | 0x40, strides | 0x80
    for version, (shape, in_fortran) in enumerate({(3, 4): False, (4,): True, (1, 4, 1): True, (): True}.items()):
        slot = engine.produce(version, shape, "f8")
        for flags in (nd, strides, c_order, any_order, fortran):
            if flags == fortran and not in_fortran:
                with pytest.raises(BufferError, match="Fortran order"):
                    call.PyObject_GetBuffer(ctypes.py_object(slot), view, flags)
                continue
            call.PyObject_GetBuffer(ctypes.py_object(slot), view, flags)
            # The fields `shape` and `strides`: a scalar has none.
            assert (view[6] is None, view[7] is None) == (shape == (), shape == () or flags == nd)
            release(view)
        slot.give_up()


def test_a_consumed_shape_has_the_bytes_that_there_are(engine: tierflow.Engine) -> None:
    engine.checkpoint(0, np.arange(6, dtype="i4"))
    assert np.asarray(engine.consume(0)).view("i4").tolist() == [0, 1, 2, 3, 4, 5]
    assert engine.consume(0, dtype="i4").shape == (6,)
    assert engine.consume(0, (2, 3), "i4").shape == (2, 3)
    for shape, dtype in [((7,), "i4"), ((2, 2), "i4"), (None, "c16")]:
        with pytest.raises(tierflow.ArgumentError, match="24 bytes"):
            engine.consume(0, shape, dtype)


def test_a_commit_waits_for_no_view(engine: tierflow.Engine) -> None:
    slot = engine.produce(0, 100, "f8")
    views = [np.asarray(slot), memoryview(slot), np.from_dlpack(slot), slot.__dlpack__()]
    while views:
        with pytest.raises(BufferError, match=f"{len(views)} of them"):
            slot.commit()
        with pytest.raises(BufferError, match=f"{len(views)} of them"):
            slot.give_up()
        views.pop()
    slot.commit()
    for call in (slot.commit, slot.give_up, slot.__dlpack__, slot.__dlpack_device__):
        with pytest.raises(tierflow.ClosedError, match="given back"):
            call()
    with pytest.raises((tierflow.ClosedError, BufferError)):
        memoryview(slot)


def test_a_block_commits_or_gives_up(engine: tierflow.Engine) -> None:
    with engine.produce(0, 4, "u1") as slot:
        np.asarray(slot)[:] = 9
    assert engine.versions() == [0]
    with pytest.raises(RuntimeError, match="mine"), engine.produce(1, 4, "u1") as slot:
        kept = np.asarray(slot)
        raise RuntimeError("mine")
    assert engine.versions() == [0]
    # The view that is left has the slot's memory alone.
    kept[:] = 1
    with pytest.raises(tierflow.ClosedError):
        slot.commit()
    del kept
    with engine.produce(1, 4, "u1") as slot:
        np.asarray(slot)[:] = 8
        slot.commit()
    assert engine.versions() == [0, 1]


def test_the_last_reference_gives_up_what_was_not_committed() -> None:
    with tierflow.Engine(device="host", device_cache="64KiB") as engine:
        views = [np.asarray(engine.produce(0, 60_000, "u1")), np.from_dlpack(engine.produce(1, 1000, "u1"))]
        assert engine.metrics()["tiers"][0]["used"] > 60_000
        with pytest.raises(tierflow.NoRoomError):
            engine.produce(2, 60_000, "u1")
        views.clear()
        assert engine.metrics()["tiers"][0]["used"] == 0
        assert engine.versions() == []
        engine.produce(0, 60_000, "u1").commit()


def test_the_last_reference_consumes() -> None:
    with tierflow.Engine(device="host", device_cache="64KiB", after_restore="discard") as engine:
        engine.checkpoint(0, bytes(10))
        slot = engine.consume(0)
        view = np.asarray(slot)
        tensor = np.from_dlpack(slot)
        slot.finish()
        with pytest.raises(tierflow.ClosedError):
            slot.finish()
        assert engine.versions() == [0]
        del view
        assert engine.versions() == [0]
        assert tensor.tobytes() == bytes(10)
        del tensor
        assert engine.versions() == []


def test_a_version_given_back_is_not_consumed() -> None:
    with tierflow.Engine(device="host", device_cache="64KiB", after_restore="discard") as engine:
        engine.checkpoint(0, b"0123")
        slot = engine.consume(0)
        slot.give_back()
        assert engine.versions() == [0]
        with engine.consume(0) as slot:
            assert bytes(slot) == b"0123"
        assert engine.versions() == []


def test_a_consumed_slot_is_read_only(engine: tierflow.Engine) -> None:
    engine.checkpoint(0, bytes(10))
    slot = engine.consume(0)
    assert not np.asarray(slot).flags.writeable
    assert not np.from_dlpack(slot).flags.writeable
    assert memoryview(slot).readonly
    with pytest.raises(tierflow.ArrayError, match="read-only"):
        engine.restore(0, slot)


def test_a_slot_outlives_its_engine_for_those_who_hold_it() -> None:
    engine = tierflow.Engine(device="host", device_cache="1MiB")
    engine.checkpoint(0, np.arange(1000))
    view = np.asarray(engine.consume(0, dtype="i8"))
    tensor = np.from_dlpack(engine.consume(0, dtype="i8"))
    produced = engine.produce(1, 10, "i8")
    engine.close()
    assert (view == np.arange(1000)).all()
    del engine, view
    gc.collect()
    assert (tensor == np.arange(1000)).all()
    np.asarray(produced)[:] = 1
    produced.commit()


def test_slots_are_arrays_for_the_engine_too(engine: tierflow.Engine) -> None:
    with engine.produce(0, (2, 3), "f8") as slot:
        np.asarray(slot)[:] = 5
        engine.checkpoint(1, slot)
    with engine.produce(2, (2, 3), "f8") as slot:
        engine.restore(1, slot)
    back = np.zeros((2, 3))
    engine.restore(2, back)
    assert (back == 5).all()


def test_dlpack_asks_for_what_it_gets(engine: tierflow.Engine) -> None:
    slot = engine.produce(0, 4, "u1")
    assert "dltensor_versioned" in repr(slot.__dlpack__(max_version=(1, 0)))
    assert '"dltensor"' in repr(slot.__dlpack__())
    assert '"dltensor"' in repr(slot.__dlpack__(max_version=(0, 8)))
    slot.__dlpack__(dl_device=(1, 0), copy=False, stream=None)
    with pytest.raises(BufferError, match="copy"):
        slot.__dlpack__(copy=True)
    with pytest.raises(BufferError, match="dl_device"):
        slot.__dlpack__(dl_device=(2, 0))
    assert not hasattr(slot, "__cuda_array_interface__")
    slot.commit()


def test_without_memory_there_are_no_slots(tmp_path: object) -> None:
    with tierflow.Engine(device="host", scratch=str(tmp_path)) as engine:
        with pytest.raises(tierflow.ArgumentError, match="no memory to lend"):
            engine.produce(0, 4, "u1")


def test_slots_can_be_watched(engine: tierflow.Engine) -> None:
    slot = engine.produce(0, 4, "u1")
    watch = weakref.ref(slot)
    view = np.asarray(slot)
    del slot
    assert watch() is not None
    del view
    assert watch() is None


def test_slots_say_what_they_are(engine: tierflow.Engine) -> None:
    slot = engine.produce(3, (2, 2), "f4")
    assert repr(slot) == "<tierflow.ProduceSlot of version 3, float32[2, 2], host>"
    slot.commit()
    assert "given back" in repr(slot)


def test_copies_to_and_from_a_slot(engine: tierflow.Engine) -> None:
    whole = np.arange(1000, dtype="f4")
    slot = engine.produce(0, 1000, "f4")
    slot.write(whole[:600])
    slot.write(whole[600:], 2400)
    slot.write(np.zeros(0))
    for offset in (2401, 1 << 62):
        with pytest.raises(tierflow.ArgumentError):
            slot.write(whole[600:], offset)
    with pytest.raises(tierflow.ArrayError, match="ascontiguousarray"):
        slot.write(whole[::2])
    slot.commit()
    with pytest.raises(tierflow.ClosedError):
        slot.write(whole)
    with engine.consume(0) as slot:
        part = np.zeros(10, "f4")
        slot.read(part, 400)
        assert (part == whole[100:110]).all()
        part.flags.writeable = False
        with pytest.raises(tierflow.ArrayError, match="read-only"):
            slot.read(part)


def test_a_slot_given_back_is_not_consumed(engine: tierflow.Engine) -> None:
    with tierflow.Engine(device="host", host_cache="1MiB", after_restore="discard") as engine:
        engine.checkpoint(0, b"1234")
        slot = engine.consume(0)
        view = memoryview(slot)
        slot.give_back()
        assert bytes(view) == b"1234"
        del view
        assert engine.versions() == [0]
        del slot
        engine.consume(0).finish()
        assert engine.versions() == []
