"""For PyTorch: saved tensors that leave the GPU until the backward, and distributed checkpoints.

- `offload`: a context for the forward.
- `StorageWriter`, `StorageReader`: for `torch.distributed.checkpoint`.
"""

from ._checkpoint import StorageReader, StorageWriter
from ._offload import offload

__all__ = ["StorageReader", "StorageWriter", "offload"]
