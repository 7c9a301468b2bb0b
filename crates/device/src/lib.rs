//! Memory, streams, copies and events on a back end: CUDA, or plain host memory.
