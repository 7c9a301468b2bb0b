//! The cost of allocating caches while they are used: the figures of Maurya et al., *Towards Efficient Cache
//! Allocation for High-Frequency Checkpointing* (HiPC'22), and our own goals.

mod child;
pub(super) mod figures;
pub(super) mod goals;
mod passes;
mod scale;

pub(super) use child::child;
