"""For PyTorch: saved tensors that leave the GPU until the backward, and checkpoints.

- `offload`: a context for the forward, whose saved tensors leave.
- `StorageWriter`, `StorageReader`: for `torch.distributed.checkpoint`. `load_latest` loads the newest version that can be loaded.
- `AsyncCheckpointer`: saves the state of a training loop at regular steps.
"""

from ._checkpoint import StorageReader, StorageWriter
from ._latest import load_latest
from ._offload import offload
from ._training import AsyncCheckpointer

__all__ = ["AsyncCheckpointer", "StorageReader", "StorageWriter", "load_latest", "offload"]
