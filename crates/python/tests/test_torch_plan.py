"""Tests of the planner alone, which chooses the saved tensors that leave."""

import pytest

pytest.importorskip("torch")

from tierflow.torch._plan import SHARE, WINDOW, Bus, Plan, Saved, plan

MIB = 1 << 20


def layers(count: int, size: int = 32 * MIB, step: float = 1e-3) -> list[Saved]:
    """Returns one tensor for each step of the forward pass. The backward pass uses them in reverse at half that speed."""
    end = count * step
    return [Saved(size, index * step, end + 2 * (count - index) * step) for index in range(count)]


def bus(rate: float) -> Bus:
    return Bus(rate / SHARE, rate / SHARE)


def late(saved: list[Saved], made: Plan, rate: float) -> float:
    """Returns the seconds that the work waits for tensors, with copies that begin as planned. No tensor comes back before it is out."""
    free_at, waited = 0.0, 0.0
    for index, use in made.back:
        begins = saved[made.uses[use]].used_at + waited
        free_at = max(free_at, begins) + saved[index].bytes / rate
        waited += max(0.0, free_at - saved[index].used_at - waited)
    return waited


@pytest.mark.parametrize("rate", [4e9, 16e9, 64e9])
def test_as_much_leaves_as_the_bus_takes(rate: float) -> None:
    saved = layers(100)
    made = plan(saved, bus(rate), budget=None, room=1 << 40)
    carried = rate * saved[-1].saved_at
    assert made.leaving == made.hidden
    assert 0.8 * min(carried, made.saved) <= made.leaving <= carried + WINDOW
    # A copy that begins at a use, and not between two uses, may be a step late.
    assert late(saved, made, rate) <= 2e-3


def test_tensors_used_soon_stay() -> None:
    saved = layers(100)
    made = plan(saved, bus(16e9), budget=None, room=1 << 40)
    assert 99 not in made.leaves
    assert 0 in made.leaves
    assert made.uses == tuple(reversed(range(100)))
    assert [index for index, _ in made.back] == sorted(made.leaves, reverse=True)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9, 1.0])
def test_a_budget_is_obeyed(share: float) -> None:
    saved = layers(100)
    total = sum(one.bytes for one in saved)
    made = plan(saved, bus(16e9), budget=int(share * total), room=1 << 40)
    assert made.staying <= share * total
    # No more bytes leave than needed.
    assert made.staying > share * total - 32 * MIB - 1


def test_no_more_leaves_than_there_is_room_for() -> None:
    made = plan(layers(100), bus(64e9), budget=None, room=320 * MIB)
    assert made.leaving == 320 * MIB


def test_large_ones_leave_alone_where_small_ones_add_little() -> None:
    saved = []
    for step in range(40):
        at, back = step * 4e-3, 0.16 + 2 * (40 - step) * 4e-3
        saved.append(Saved(128 * MIB, at, back))
        saved += [Saved(4 * MIB, at + part * 1e-4, back - part * 1e-4) for part in range(1, 9)]
    made = plan(saved, bus(16e9), budget=None, room=1 << 40)
    assert {saved[index].bytes for index in made.leaves} == {128 * MIB}
    # A faster bus can take more than the large ones.
    made = plan(saved, bus(64e9), budget=None, room=1 << 40)
    assert {saved[index].bytes for index in made.leaves} == {4 * MIB, 128 * MIB}


def test_tensors_held_by_others_stay() -> None:
    saved = [
        Saved(one.bytes, one.saved_at, None if index % 2 else one.used_at) for index, one in enumerate(layers(100))
    ]
    made = plan(saved, bus(16e9), budget=0, room=1 << 40)
    assert made.leaves == frozenset(range(0, 100, 2))


def test_a_tensor_larger_than_the_window_leaves_alone() -> None:
    saved = layers(20, size=2 * WINDOW, step=20e-3)
    made = plan(saved, bus(64e9), budget=None, room=1 << 40)
    assert len(made.leaves) > 15


def test_nothing_was_saved() -> None:
    assert plan([], bus(1e9), budget=None, room=0).leaves == frozenset()
