"""For PyTorch: saved tensors that leave the GPU until the backward, and distributed checkpoints.

- `offload`: a context for the forward.
- `StorageWriter`, `StorageReader`: for `torch.distributed.checkpoint`.
- `AsyncCheckpointer`: the state of a training loop, each so many steps.
"""

from ._checkpoint import StorageReader, StorageWriter
from ._offload import offload
from ._training import AsyncCheckpointer

__all__ = ["AsyncCheckpointer", "StorageReader", "StorageWriter", "offload"]
