"""Tests of JAX's loops over an engine, on the processor."""

import gc
from collections.abc import Callable
from typing import Any

import pytest

import tierflow

jax = pytest.importorskip("jax")
jnp = jax.numpy
pytestmark = pytest.mark.usefixtures("on_processor")


def step(state: Any, x: Any) -> Any:
    u, v, count = state
    u, v = u + 0.1 * jnp.sin(v) * x, v * 0.99 + jnp.roll(u, 1)
    return (u, v, count + 1), (u * v).sum()


def misfit(loop: Any, rate: Any, start: Any, xs: Any) -> Any:
    def scaled(state: Any, x: Any) -> Any:
        (u, v, count), y = step(state, x)
        # The value `rate`, over which the function closes, has a gradient, too.
        return (u * rate, v, count), y

    (u, v, count), ys = loop(scaled, (start, 2 * start, jnp.float32(0)), xs)
    return (u * v).sum() + ys.sum() + count


def arguments(steps: int = 50, size: int = 1000) -> tuple[Any, Any, Any]:
    keys = jax.random.split(jax.random.key(0), 2)
    return jnp.float32(0.999), jax.random.normal(keys[0], (size,)), jax.random.normal(keys[1], (steps,))


def plain(body: Any, init: Any, xs: Any) -> Any:
    return jax.lax.scan(jax.checkpoint(body), init, xs)


def taped(tape: tierflow.Tape) -> Any:
    return lambda body, init, xs: tierflow.jax.scan(tape, body, init, xs)


def gradient(loop: Any) -> Any:
    return jax.jit(jax.value_and_grad(lambda *given: misfit(loop, *given), argnums=(0, 1, 2)))


def test_gradients_are_those_of_jax(engine: tierflow.Engine) -> None:
    tape = tierflow.Tape(engine)
    expected = gradient(plain)(*arguments())
    compiled = gradient(taped(tape))
    for _ in range(3):
        got = compiled(*arguments())
        for one, other in zip(jax.tree.leaves(expected), jax.tree.leaves(got), strict=True):
            assert (one == other).all()
    assert len(tape) == 0
    assert engine.versions() == []
    assert engine.metrics()["produce"]["count"] == 150


def test_the_program_has_no_host_callback(engine: tierflow.Engine) -> None:
    text = gradient(taped(tierflow.Tape(engine))).lower(*arguments()).as_text()
    assert "tierflow_save" in text
    assert "callback" not in text


def test_without_a_gradient_nothing_is_saved(engine: tierflow.Engine) -> None:
    tape = tierflow.Tape(engine)
    value = jax.jit(lambda *given: misfit(taped(tape), *given))(*arguments())
    assert value == gradient(plain)(*arguments())[0]
    assert engine.metrics()["produce"]["count"] == 0


def test_through_all_tiers(tmp_path: object) -> None:
    """A state has 40 000 bytes, and the memory holds ten."""
    with tierflow.Engine(
        device="host", device_cache="200KiB", host_cache="200KiB", scratch=str(tmp_path), after_restore="discard"
    ) as engine:
        tape = tierflow.Tape(engine, 1000)
        given = arguments(steps=100, size=5000)
        for one, other in zip(
            jax.tree.leaves(gradient(plain)(*given)), jax.tree.leaves(gradient(taped(tape))(*given)), strict=True
        ):
            assert (one == other).all()
        assert engine.metrics()["tiers"][-1]["peak"] > 1 << 20


def test_loops_one_after_the_other_and_nested_ways_back(engine: tierflow.Engine) -> None:
    tape = tierflow.Tape(engine)

    def twice(loop: Any) -> Any:
        def both(rate: Any, start: Any, xs: Any) -> Any:
            return misfit(loop, rate, start, xs) * misfit(loop, rate * rate, start + 1, xs[:20])

        return jax.jit(jax.grad(both, argnums=(0, 1, 2)))

    for one, other in zip(twice(plain)(*arguments()), twice(taped(tape))(*arguments()), strict=True):
        assert jnp.allclose(one, other, rtol=1e-5)
    # Outside of one program, each forward pass has a number of its own.
    values, pulls = zip(
        *(jax.vjp(lambda start: misfit(taped(tape), *given(start)), at) for at in starts()), strict=True
    )
    for at, pull in zip(starts(), pulls, strict=True):
        expected = jax.grad(lambda start: misfit(plain, *given(start)))(at)
        assert jnp.allclose(pull(jnp.float32(1))[0], expected, rtol=1e-5)
    assert len(values) == 2
    assert len(tape) == 0


def given(start: Any) -> tuple[Any, Any, Any]:
    rate, _, xs = arguments()
    return rate, start, xs


def starts() -> tuple[Any, Any]:
    _, start, _ = arguments()
    return start, start + 1


def test_a_way_forward_that_is_not_gone_back(engine: tierflow.Engine) -> None:
    tape = tierflow.Tape(engine)
    rate, start, xs = arguments()
    value, _pull = jax.vjp(lambda start: misfit(taped(tape), rate, start, xs), start)
    value.block_until_ready()
    assert len(tape) == 50
    tape.clear()
    assert len(tape) == 0
    assert engine.versions() == []


def test_a_program_that_ends_early_leaves_nothing(engine: tierflow.Engine) -> None:
    """The states go at the end of the tape's block, whatever ended it, and with the tape."""
    rate, start, xs = arguments()

    def forward(tape: tierflow.Tape) -> None:
        jax.vjp(lambda start: misfit(taped(tape), rate, start, xs), start)[0].block_until_ready()
        assert len(engine) == len(tape) == 50

    with pytest.raises(KeyError), tierflow.Tape(engine) as tape:
        forward(tape)
        raise KeyError("another's error")
    assert (len(tape), engine.versions()) == (0, [])
    tape = tierflow.Tape(engine, engine.reserve(0).start)
    forward(tape)
    del tape
    jax.clear_caches()
    gc.collect()
    assert engine.versions() == []


@pytest.mark.parametrize("what", ["cleared", "room", "gone"])
def test_errors_are_those_of_the_program(python: Callable[[str], str], what: str) -> None:
    """Runs in its own process, as JAX remembers errors to the end of the process."""
    told = python(
        f"""
        import gc, os
        os.environ["JAX_PLATFORMS"] = "cpu"
        import jax, jax.numpy as jnp, tierflow

        def total(tape, start):
            (end, ys) = tierflow.jax.scan(tape, lambda state, x: (state * 1.5, state.sum()), start, length=100)
            return end.sum() + ys.sum()

        engine = tierflow.Engine(device="host", host_cache="64KiB" if {what!r} == "room" else "64MiB")
        tape = tierflow.Tape(engine)
        program = jax.jit(lambda start: jax.vjp(lambda start: total(tape, start), start))
        value, pull = program(jnp.ones(1000))
        try:
            jax.block_until_ready(value)
            tape.clear()
            if {what!r} == "gone":
                del program, tape
                jax.clear_caches()
                gc.collect()
            jax.block_until_ready(pull(jnp.float32(1)))
        except Exception as error:
            print(error)
        """
    )
    # JAX may keep the tape for as long as a program that was made with it.
    assert what in told or (what == "gone" and "cleared" in told)


def test_a_load_that_fails_loses_nothing(python: Callable[[str], str], tmp_path: object) -> None:
    """Loads of damaged files fail, and succeed once the bytes are mended. Runs in its own process, as JAX remembers errors to its end."""
    told = python(
        f"""
        import os, pathlib, sys
        os.environ["JAX_PLATFORMS"] = "cpu"
        import jax, jax.numpy as jnp, tierflow

        def total(start):
            end, ys = tierflow.jax.scan(tape, lambda state, x: (jnp.sin(state) * 1.5, state.sum()), start, length=8)
            return end.sum() + ys.sum()

        def fails(pull):
            try:
                jax.block_until_ready(pull(jnp.float32(1)))
            except Exception as error:
                return str(error).replace(chr(10), " ")
            return "no error"

        def forward():
            value, pull = jax.vjp(total, jnp.ones(4000))
            value.block_until_ready()
            engine.wait()
            return pull

        def damage(piece):
            damaged = bytearray(piece)
            for at in range(5000, len(damaged), 5000):
                damaged[at] ^= 255
            return damaged

        place = pathlib.Path({str(tmp_path)!r})
        # Memory for four states: the older four are in the file alone.
        engine = tierflow.Engine(device="host", host_cache="64KiB", external=str(place))
        tape = tierflow.Tape(engine)
        pull = forward()
        (file,) = place.glob("rank-0/*.open")
        piece = file.read_bytes()
        file.write_bytes(damage(piece))
        print("first:", fails(pull))
        print("left:", len(tape), len(engine.versions()))
        # Others were loaded before: a gradient from here on would be of the wrong states.
        print("again:", fails(pull))
        tape.clear()
        print("cleared:", len(tape), engine.versions())
        # A forward pass drops what the failed one left, too.
        file.write_bytes(piece)
        pull = forward()
        piece = file.read_bytes()
        file.write_bytes(damage(piece))
        print("second:", fails(pull))
        file.write_bytes(piece)
        pull = forward()
        print("begun anew:", len(tape), len(engine.versions()))
        (slope,) = pull(jnp.float32(1))
        def plain(start):
            end, ys = jax.lax.scan(lambda state, x: (jnp.sin(state) * 1.5, state.sum()), start, length=8)
            return end.sum() + ys.sum()
        # After the first load failed, the backward pass can run again.
        pull, _other = forward(), forward()
        piece = file.read_bytes()
        file.write_bytes(damage(piece))
        print("third:", fails(pull))
        file.write_bytes(piece)
        print("mended:", fails(pull), len(tape))
        tape.clear()
        print("equal:", bool(jnp.allclose(slope, jax.grad(plain)(jnp.ones(4000)))), engine.versions())
        # JAX raises what it remembers when it ends.
        sys.stdout.flush()
        os._exit(0)
        """
    )
    lines = dict(line.split(": ", 1) for line in told.splitlines())
    assert "damaged" in lines["first"]
    held, there = lines["left"].split()
    # The state whose load failed is on the tape, as those below it are.
    assert held == there != "0"
    assert "run the forward pass again" in lines["again"]
    assert lines["cleared"] == "0 []"
    assert "damaged" in lines["second"]
    assert lines["begun anew"] == "8 8"
    assert "damaged" in lines["third"]
    assert lines["mended"] == "no error 8"
    assert lines["equal"] == "True []"


def test_a_save_that_fails_leaves_nothing(python: Callable[[str], str]) -> None:
    told = python(
        """
        import os
        os.environ["JAX_PLATFORMS"] = "cpu"
        import jax, jax.numpy as jnp, tierflow

        def total(start):
            end, _ = tierflow.jax.scan(tape, lambda state, x: (state * 1.5, None), start, length=100)
            return end.sum()

        with tierflow.Engine(device="host", host_cache="64KiB") as engine:
            tape = tierflow.Tape(engine)
            try:
                jax.block_until_ready(jax.jit(jax.grad(total))(jnp.ones(4000)))
            except Exception as error:
                print("room" in str(error))
            print(len(tape), engine.versions(), flush=True)
        os._exit(0)
        """
    )
    assert told.splitlines() == ["True", "0 []"]


def test_a_state_of_many_kinds(engine: tierflow.Engine) -> None:
    tape = tierflow.Tape(engine)

    def kinds(state: Any, _: Any) -> Any:
        small, whole, nothing = state["small"], state["whole"], state["nothing"]
        return {
            "small": (small * 2).astype(small.dtype),
            "whole": whole.at[0].add(small.sum()),
            "nothing": nothing,
        }, None

    def total(loop: Any, small: Any) -> Any:
        state = {"small": small, "whole": jnp.ones((3, 5)), "nothing": jnp.zeros((0, 4))}
        end, _ = loop(kinds, state, jnp.arange(4.0))
        return end["whole"].sum() + end["small"].astype("float32").sum()

    small = jnp.ones(7, jnp.bfloat16)
    expected = jax.jit(jax.grad(lambda small: total(plain, small)))(small)
    assert (jax.jit(jax.grad(lambda small: total(taped(tape), small)))(small) == expected).all()


def test_integers_beside_the_state(engine: tierflow.Engine) -> None:
    tape = tierflow.Tape(engine)
    table = jnp.linspace(0, 1, 10)

    def total(loop: Any, start: Any, scale: Any) -> Any:
        def step(state: Any, x: Any) -> Any:
            state = state * table[x["index"]] + x["scale"]
            return state, {"sum": state.sum(), "index": x["index"] + 1}

        end, ys = loop(step, start, {"index": jnp.arange(10), "scale": scale})
        return end.sum() + (ys["sum"] * ys["index"]).sum()

    given = (jnp.arange(5.0), jnp.linspace(1, 2, 10))
    expected = jax.jit(jax.grad(lambda *given: total(plain, *given), argnums=(0, 1)))(*given)
    got = jax.jit(jax.grad(lambda *given: total(taped(tape), *given), argnums=(0, 1)))(*given)
    assert all((one == other).all() for one, other in zip(expected, got, strict=True))
    with pytest.raises(TypeError, match=r"xs=jnp\.arange"):
        tierflow.jax.scan(tape, lambda state, _: (state + 1, None), jnp.int32(0), length=3)


@pytest.mark.parametrize("unroll", [1, 4])
def test_reversed_and_unrolled(engine: tierflow.Engine, unroll: int) -> None:
    tape = tierflow.Tape(engine)
    how = {"reverse": True, "unroll": unroll}
    expected = gradient(lambda body, init, xs: jax.lax.scan(jax.checkpoint(body), init, xs, reverse=True))(*arguments())
    got = gradient(lambda body, init, xs: tierflow.jax.scan(tape, body, init, xs, **how))(*arguments())
    for one, other in zip(jax.tree.leaves(expected), jax.tree.leaves(got), strict=True):
        # Steps that are compiled together are rounded together.
        assert jnp.abs(one - other).max() <= (0 if unroll == 1 else 1e-3) * jnp.abs(one).max()
    assert len(tape) == 0


def test_errors_of_loops_that_are_not_supported(engine: tierflow.Engine) -> None:
    tape = tierflow.Tape(engine)
    start = jnp.ones(3)

    def total(start: Any) -> Any:
        end, _ = tierflow.jax.scan(tape, lambda u, x: (jnp.sin(u) + x, None), start, jnp.arange(3.0))
        return end.sum()

    two = jnp.stack([start, start])
    expected = jax.vmap(lambda start: total(start))(two)
    assert expected.shape == (2,)
    with pytest.raises(NotImplementedError, match="no vmap"):
        jax.vmap(jax.grad(total))(two)
    with pytest.raises(TypeError, match="forward-mode"):
        jax.jvp(total, (start,), (start,))
    with pytest.raises(TypeError, match="first derivatives only"):
        jax.hessian(total)(start)
    with pytest.raises(NotImplementedError, match="Effects not supported"):
        jax.grad(jax.checkpoint(total))(start)
    tape.clear()


def test_a_state_that_fails_to_load_stays_on_the_tape(engine: tierflow.Engine) -> None:
    tape = tierflow.Tape(engine)
    _, back = jax.vjp(lambda *given: misfit(taped(tape), *given), *arguments(steps=5))
    engine.discard(engine.versions()[3])
    with pytest.raises(Exception, match="version"):
        jax.block_until_ready(back(jnp.float32(1)))
    # The state behind it was loaded.
    assert len(tape) == 4
    tape.clear()
    assert len(tape) == 0
    assert engine.versions() == []


def test_a_while_loop_of_many_kinds(engine: tierflow.Engine) -> None:
    """The loop has integers, truth values, a buffer that it fills, and numbers over which it closes."""
    tape = tierflow.Tape(engine)
    limit, table = jnp.int32(20), jnp.linspace(1, 2, 32)

    def body(state: Any, rate: Any) -> Any:
        u = jnp.sin(state["u"]) * rate + table[state["count"]] * state["odd"]
        seen = state["seen"].at[state["count"]].set(u.sum())
        return {"u": u, "count": state["count"] + 1, "odd": ~state["odd"], "seen": seen, "still": state["still"]}

    def begun(start: Any, still: Any) -> Any:
        return {"u": start, "count": jnp.int32(0), "odd": jnp.bool_(False), "seen": jnp.zeros(32), "still": still}

    def value(end: Any) -> Any:
        return (end["u"] ** 2).sum() + (end["seen"] * table).sum() + end["still"].sum()

    def looped(start: Any, rate: Any, still: Any, limit: Any) -> Any:
        end = tierflow.jax.while_loop(
            tape,
            lambda state: (state["count"] < limit) & (state["u"].sum() < 1e6),
            lambda state: body(state, rate),
            begun(start, still),
            buffers=lambda state: state["seen"],
        )
        return value(end)

    def unrolled(start: Any, rate: Any, still: Any) -> Any:
        state = begun(start, still)
        for _ in range(20):
            state = body(state, rate)
        return value(state)

    given = jnp.linspace(0, 1, 5), jnp.float32(0.9), jnp.ones(2)
    expected = jax.jit(jax.value_and_grad(unrolled, argnums=(0, 1, 2)))(*given)
    got = jax.jit(jax.value_and_grad(jax.jit(looped), argnums=(0, 1, 2)))(*given, limit)
    for one, other in zip(jax.tree.leaves(expected), jax.tree.leaves(got), strict=True):
        assert jnp.allclose(one, other, rtol=1e-5)
    assert engine.metrics()["produce"]["count"] == 20
    assert len(tape) == 0
    assert looped(*given, jnp.int32(0)) == value(begun(given[0], given[2]))


def test_a_while_loop_ends_at_the_most_steps(engine: tierflow.Engine) -> None:
    tape = tierflow.Tape(engine)

    def looped(start: Any) -> Any:
        return tierflow.jax.while_loop(tape, lambda u: u > 0, lambda u: 2 * u, start, max_steps=5)

    assert jax.jit(jax.value_and_grad(looped))(jnp.float32(3)) == (96, 32)
    with pytest.raises(TypeError, match="the body makes"):
        tierflow.jax.while_loop(tape, lambda u: u > 0, lambda u: (u, u), jnp.float32(3))
