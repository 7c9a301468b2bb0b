//! How a checkpoint lies on a disk.
