//! Adaptive local stores.
