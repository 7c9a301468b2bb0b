//! Which contiguous window of a checkpoint cache to give up: allocation table and eviction policies.
