"""Groups of engines: the ranks of an MPI communicator, by mpi4py.

    from mpi4py import MPI

    engine = tierflow.Engine(host_cache="4GiB", node_local="/nvme/job", group=MPI.COMM_WORLD, redundancy="xor:8")

`Engine(group=communicator)` makes a `Group` of the communicator. Any object with the attributes and methods of a `Group` can be a group, too.
"""

import ctypes
import threading
import time
from typing import Any

# Number of tags that MPI guarantees. Each group uses one tag.
_TAGS = 32768
# Messages on their way to a rank at most; the next message waits.
_WINDOW = 8

_groups = 0
# Requests that have not ended, each with the memory that MPI reads or writes until the end. The list outlives groups, as a group may be
# deleted before its requests end. Messages have their group's tag and their rank. A lock lets only one thread test a request at a time.
_under_way: list[tuple[int | None, int | None, Any, Any]] = []
_testing = threading.Lock()
# MPI ends after the interpreter, so the interpreter must not free the memory when it ends.
ctypes.pythonapi.Py_IncRef(ctypes.py_object(_under_way))


class Group:
    """The ranks of a `communicator` that has the methods of mpi4py's.

    A rank waits for another one for `patience` seconds at most, also while the group is made. Redundancy is made in the background if MPI was
    initialised with `MPI_THREAD_MULTIPLE`, as mpi4py does by default. Else only `Engine(...)`, `wait`, `protect` and `close` make
    redundancy, and all ranks must call them at about the same time.
    """

    def __init__(self, communicator: Any, *, patience: float = 300.0) -> None:
        from mpi4py import MPI

        global _groups
        self._mpi = MPI
        end = time.monotonic() + patience
        # No message has the tag -1. The ranks agree on the group's tag below.
        self._tag = -1
        # `_meet` is for collectives and `_talk` for messages between two ranks. Both are copies, so the application's messages stay apart.
        self._meet = self._copy(communicator, end)
        self._talk = self._copy(communicator, end)
        self.rank: int = self._meet.Get_rank()
        self.ranks: int = self._meet.Get_size()
        known = self.all_gather((_groups + 1).to_bytes(8, "little"), end - time.monotonic())
        _groups = max(int.from_bytes(number, "little") for number in known)
        self._tag = _groups % _TAGS
        self.threads: bool = MPI.Query_thread() == MPI.THREAD_MULTIPLE
        self.patience = patience

    def all_gather(self, mine: bytes, seconds: float) -> list[bytes]:
        """Gives `mine` to all ranks, and returns the bytes of every rank, in the order of the ranks. Raises `TimeoutError` if some rank does not
        call it within `seconds`.
        """
        end = time.monotonic() + seconds
        lengths = bytearray(8 * self.ranks)
        self._gather(len(mine).to_bytes(8, "little"), lengths, end)
        sizes = [int.from_bytes(lengths[at : at + 8], "little") for at in range(0, len(lengths), 8)]
        longest = max(sizes)
        if longest == 0:
            return [b""] * self.ranks
        everything = bytearray(longest * self.ranks)
        self._gather(mine.ljust(longest, b"\0"), everything, end)
        return [bytes(everything[longest * rank :][:size]) for rank, size in enumerate(sizes)]

    def send(self, to: int, message: bytes, seconds: float) -> bool:
        """Sends a `message` to the rank `to`. Waits if too many earlier messages to it are on their way. Returns true if the message was sent
        within `seconds`.
        """
        self._is_there()
        if not self._waits_until(lambda: self._sends(to) < _WINDOW, seconds):
            return False
        request = self._talk.Isend([message, self._mpi.BYTE], dest=to, tag=self._tag)
        with _testing:
            _under_way.append((self._tag, to, request, message))
        return True

    def receive(self, source: int, seconds: float) -> bytes | None:
        """Returns the next message of the rank `source`, or None if no message comes within `seconds`."""
        self._is_there()
        status = self._mpi.Status()
        found: Any = None

        def is_there() -> bool:
            nonlocal found
            self._sends()
            # Takes the message out of the queue. Another thread may look for one of the same rank at the same time.
            found = self._talk.Improbe(source=source, tag=self._tag, status=status)
            return found is not None

        if not self._waits_until(is_there, seconds):
            return None
        message = bytearray(status.Get_count(self._mpi.BYTE))
        found.Recv([message, self._mpi.BYTE])
        return bytes(message)

    def flush(self, seconds: float) -> bool:
        """Waits until all messages that this rank sent can arrive without further calls here. Returns false if that takes longer than `seconds`."""
        self._is_there()
        return self._waits_until(lambda: self._sends() == 0, seconds)

    def _is_there(self) -> None:
        if self._mpi.Is_finalized():
            raise RuntimeError("MPI was finalized before the engine was closed")

    def _gather(self, mine: bytes, everything: bytearray, end: float) -> None:
        self._is_there()
        byte = self._mpi.BYTE
        self._meets(self._meet.Iallgather([mine, byte], [everything, byte]), (mine, everything), end)

    def _copy(self, communicator: Any, end: float) -> Any:
        copy, request = communicator.Idup()
        self._meets(request, copy, end)
        return copy

    def _meets(self, request: Any, written: Any, end: float) -> None:
        has_ended = False
        try:
            self._sends()
            has_ended = self._waits_until(request.Test, end - time.monotonic())
        finally:
            # After a timeout or an exception, MPI may still write to the memory.
            if not has_ended:
                with _testing:
                    _under_way.append((None, None, request, written))
        if not has_ended:
            raise TimeoutError("some rank of the group did not come")

    def _sends(self, to: int | None = None) -> int:
        """Returns the number of messages of this group on their way, to the rank `to` or in all."""
        with _testing:
            _under_way[:] = [one for one in _under_way if not self._has_ended(*one[:3])]
            return sum(tag == self._tag and to in (None, rank) for tag, rank, *_ in _under_way)

    def _has_ended(self, tag: int | None, rank: int | None, request: Any) -> bool:
        """Returns true if a request has ended. An error of another group's request is left to that group."""
        try:
            return bool(request.Test())
        except Exception:
            if tag == self._tag:
                raise
            return False

    @staticmethod
    def _waits_until(is_so: Any, seconds: float) -> bool:
        """Waits until `is_so` returns true: calls it often at first, then every millisecond. Returns false if that takes longer than `seconds`."""
        end = time.monotonic() + seconds
        looks = 0
        while not is_so():
            if time.monotonic() > end:
                return False
            time.sleep(0 if looks < 50 else 5e-5 if looks < 200 else 1e-3)
            looks += 1
        return True
