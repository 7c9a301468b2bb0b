"""Tests of threads, forks, Ctrl-C, and the end of the interpreter."""

import ctypes
import random
import threading
from collections.abc import Callable

import numpy as np
import pytest

import tierflow
import tierflow._tierflow


def test_threads_get_their_own_bytes_back(tmp_path: object) -> None:
    """Eight threads with version numbers of their own share an engine that is too small for all of them."""
    failures: list[BaseException] = []
    calls = 400

    def work(engine: tierflow.Engine, thread: int) -> None:
        draw = random.Random(thread)
        held: dict[int, int] = {}
        number = thread
        for _ in range(calls):
            act = draw.choice(["checkpoint", "produce", "restore", "restore", "consume", "discard", "hint", "ask"])
            if act in ("checkpoint", "produce"):
                size = draw.randrange(1, 40_000)
                value = (number * 31 + size) % 251
                if act == "checkpoint":
                    engine.checkpoint(number, np.full(size, value, "u1"))
                else:
                    try:
                        with engine.produce(number, size, "u1") as slot:
                            np.asarray(slot)[:] = value
                    except tierflow.NoRoomError:
                        number += 8
                        continue
                held[number] = size
                number += 8
            elif act == "hint":
                engine.hint(draw.sample(sorted(held), min(4, len(held))))
            elif act == "ask":
                assert set(held) <= set(engine.versions())
                engine.metrics()
            elif held:
                version = draw.choice(sorted(held))
                size = held[version]
                value = (version * 31 + size) % 251
                if act == "discard":
                    engine.discard(version)
                    del held[version]
                elif act == "restore":
                    back = np.zeros(size, "u1")
                    engine.restore(version, back)
                    assert (back == value).all(), version
                else:
                    with engine.consume(version) as slot:
                        assert (np.asarray(slot) == value).all(), version

    def guarded(engine: tierflow.Engine, thread: int) -> None:
        try:
            work(engine, thread)
        except BaseException as error:
            failures.append(error)

    with tierflow.Engine(device="host", device_cache="256KiB", host_cache="512KiB", scratch=str(tmp_path)) as engine:
        threads = [threading.Thread(target=guarded, args=(engine, thread)) for thread in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert failures == []


def test_a_child_is_told(python: Callable[[str], str]) -> None:
    told = python(
        """
        import os, threading, warnings
        import numpy as np
        import tierflow

        warnings.simplefilter("ignore", DeprecationWarning)  # of forking with threads
        engine = tierflow.Engine(device="host", device_cache="1MiB", host_cache="1MiB")
        engine.checkpoint(0, bytes(1000))
        slot, view = engine.produce(1, 10, "u1"), np.asarray(engine.consume(0))
        stop = threading.Event()

        def busy():
            # A lock that is held at the moment of the fork stays locked in the child.
            while not stop.is_set():
                engine.metrics()
                engine.restore(0, bytearray(1000))

        threads = [threading.Thread(target=busy) for _ in range(4)]
        for thread in threads:
            thread.start()
        for _ in range(20):
            child = os.fork()
            if child == 0:
                calls = [
                    lambda: engine.checkpoint(5, b"0"),
                    lambda: engine.restore(0, bytearray(1000)),
                    lambda: engine.hint([1]),
                    engine.versions, engine.latest, engine.metrics, engine.wait, engine.close,
                    lambda: engine.produce(6, 1, "u1"),
                    lambda: engine.consume(0),
                    slot.commit, lambda: memoryview(slot), slot.__dlpack__,
                ]
                for call in calls:
                    try:
                        call()
                    except (tierflow.ForkedError, BufferError):
                        pass
                    else:
                        os._exit(1)
                # The child drops its copies of the parent's objects silently, and a new engine belongs to the child.
                del engine, slot, view, calls, call
                with tierflow.Engine(device="host", host_cache="1MiB") as own:
                    own.checkpoint(0, b"0123")
                os._exit(0)
            _, status = os.waitpid(child, 0)
            assert os.waitstatus_to_exitcode(status) == 0, status
        stop.set()
        for thread in threads:
            thread.join()
        slot.commit()
        assert view.tobytes() == bytes(1000)
        assert engine.versions() == [0, 1]
        print("done")
        """
    )
    assert told == "done\n"


def test_signals_of_a_notice_act_in_a_fork_as_before(python: Callable[[str], str]) -> None:
    told = python(
        """
        import os, signal, warnings
        import tierflow

        warnings.simplefilter("ignore", DeprecationWarning)  # of forking with threads
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        handled = []
        signal.signal(signal.SIGUSR2, lambda number, frame: handled.append(number))
        real_time = signal.SIGRTMIN + 1
        notice = tierflow.Notice([signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, real_time], grace=60)

        def child(act):
            pid = os.fork()
            if pid == 0:
                signal.alarm(20)
                act()
                os._exit(7)
            return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

        def dropped():
            global notice
            del notice

        def with_its_own():
            own = tierflow.Notice([signal.SIGTERM], grace=5)
            # Its own forks have none.
            assert child(lambda: os.kill(os.getpid(), signal.SIGTERM)) == -signal.SIGTERM
            os.kill(os.getpid(), signal.SIGTERM)
            while own.left is None:
                pass

        def heard():
            os.kill(os.getpid(), signal.SIGUSR2)
            while not handled:
                pass

        print(
            child(lambda: os.kill(os.getpid(), signal.SIGTERM)) == -signal.SIGTERM,
            child(lambda: os.kill(os.getpid(), real_time)) == 128 + real_time,
            child(lambda: os.kill(os.getpid(), signal.SIGUSR1)),
            child(heard),
            child(dropped),
            child(with_its_own),
            notice.left,
        )
        os.kill(os.getpid(), signal.SIGTERM)
        while notice.left is None:
            pass
        """
    )
    assert told == "True True 7 7 7 7 None\n"


def test_ctrl_c_ends_a_change_of_a_caches_size(python: Callable[[str], str]) -> None:
    told = python(
        """
        import signal
        import tierflow

        def ring(*_):
            raise KeyboardInterrupt

        signal.signal(signal.SIGALRM, ring)
        with tierflow.Engine(device="host", device_cache="1MiB", host_cache="1MiB") as engine:
            # The cache is not empty before the slot is given back.
            with engine.produce(0, 1000, "u1"):
                try:
                    signal.setitimer(signal.ITIMER_REAL, 0.05)
                    engine.resize_device_cache(0, timeout=float("inf"))
                except KeyboardInterrupt:
                    print("interrupted")
            print(engine.resize_device_cache(0))
        """
    )
    assert told == "interrupted\n0\n"


def test_ctrl_c_ends_a_wait(python: Callable[[str], str], tmp_path: object) -> None:
    """Each try has twice as much to flush, until the signal comes before the end of the wait."""
    told = python(
        f"""
        import signal
        import numpy as np
        import tierflow

        def ring(*_):
            raise KeyboardInterrupt

        signal.signal(signal.SIGALRM, ring)
        for megabytes in (128, 256, 512, 1024, 2048):
            field = np.ones(megabytes << 20, "u1")
            with tierflow.Engine(device="host", host_cache=field.nbytes, scratch={str(tmp_path)!r}) as engine:
                engine.checkpoint(0, field)
                signal.setitimer(signal.ITIMER_REAL, 0.02)
                try:
                    engine.wait()
                except KeyboardInterrupt:
                    try:
                        engine.wait(timeout=0)
                    except tierflow.TimedOutError:
                        pass
                    else:
                        continue
                    engine.restore(0, np.zeros_like(field))
                    print("interrupted")
                    break
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
        """
    )
    assert told == "interrupted\n"


def test_ctrl_c_ends_a_call_that_waits_for_room(python: Callable[[str], str], tmp_path: object) -> None:
    """The call gets room once the version before is flushed. The version is twice as large in each try, until the signal comes first."""
    told = python(
        f"""
        import signal
        import numpy as np
        import tierflow

        def ring(*_):
            raise KeyboardInterrupt

        signal.signal(signal.SIGALRM, ring)
        for megabytes in (128, 256, 512, 1024, 2048):
            field = np.ones(megabytes << 20, "u1")
            with tierflow.Engine(device="host", host_cache=field.nbytes, scratch={str(tmp_path)!r}) as engine:
                engine.checkpoint(0, field)
                try:
                    engine.produce(1, field.nbytes, "u1", timeout=0).give_up()
                    continue
                except tierflow.TimedOutError:
                    pass
                signal.setitimer(signal.ITIMER_REAL, 0.02)
                try:
                    engine.produce(1, field.nbytes, "u1").give_up()
                    signal.setitimer(signal.ITIMER_REAL, 0)
                except KeyboardInterrupt:
                    # The call came to nothing, and the next one is served.
                    assert engine.versions() == [0]
                    engine.produce(1, field.nbytes, "u1").commit()
                    print("interrupted")
                    break
        """
    )
    assert told == "interrupted\n"


def test_ctrl_c_in_a_drop_is_raised_behind_it(python: Callable[[str], str], tmp_path: object) -> None:
    """The signal comes while the end of the engine warns of a loss. No call of the library follows."""
    told = python(
        f"""
        import shutil
        import signal
        import time
        import warnings
        import tierflow

        def rings(*_):
            print("warned")
            signal.raise_signal(signal.SIGINT)

        warnings.simplefilter("always")
        warnings.showwarning = rings
        engine = tierflow.Engine(device="host", host_cache="1MiB", external={str(tmp_path)!r} + "/lost", closing_patience=0.1)
        shutil.rmtree({str(tmp_path)!r} + "/lost")
        engine.checkpoint(7, b"0")
        try:
            del engine
            for _ in range(1000):
                time.sleep(0.01)
        except KeyboardInterrupt:
            print("interrupted")
        """
    )
    assert told == "warned\ninterrupted\n"


def test_a_wait_lets_others_run(tmp_path: object) -> None:
    """A thread that waits does not hold the interpreter's lock: this thread works meanwhile."""
    with tierflow.Engine(device="host", host_cache="256MiB", scratch=str(tmp_path)) as engine:
        for version in range(8):
            engine.checkpoint(version, np.ones(16 << 20, "u1"))
        waiting = threading.Thread(target=engine.wait)
        waiting.start()
        for version in range(8):
            engine.restore(version, np.zeros(16 << 20, "u1"))
        waiting.join()


@pytest.mark.parametrize("left", ["engine", "slot", "view", "tensor", "thread"])
def test_the_end_of_the_interpreter(python: Callable[[str], str], left: str) -> None:
    """The process ends, whatever objects are still there."""
    python(
        f"""
        import threading, time
        import numpy as np
        import tierflow

        engine = tierflow.Engine(device="host", device_cache="1MiB", host_cache="1MiB")
        engine.checkpoint(0, bytes(1000))
        slot = engine.consume(0)
        view, tensor = np.asarray(slot), np.from_dlpack(slot)

        def busy():
            while True:
                engine.restore(0, bytearray(1000))

        if {left!r} == "thread":
            threading.Thread(target=busy, daemon=True).start()
            time.sleep(0.05)
        for name in {{"engine", "slot", "view", "tensor"}} - {{{left!r}, "engine"}}:
            del globals()[name]
        if {left!r} not in ("engine", "thread"):
            del engine
        """
    )


def test_nothing_of_a_framework_is_imported(python: Callable[[str], str]) -> None:
    told = python(
        """
        import sys
        import tierflow

        with tierflow.Engine(device="host", host_cache="1MiB") as engine:
            engine.checkpoint(0, b"0123")
            engine.metrics()._repr_html_()
        others = ("numpy", "torch", "cupy", "jax", "checkpoint_schedules")
        print([name for name in others if name in sys.modules])
        """
    )
    assert told == "[]\n"


def test_nothing_of_cuda_is_linked() -> None:
    """The driver is loaded at run time, when an engine asks for a GPU."""
    library = ctypes.CDLL(tierflow._tierflow.__file__)
    assert hasattr(library, "PyInit__tierflow")
    assert not hasattr(library, "cuInit")
