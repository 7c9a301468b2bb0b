//! The life cycle of one copy of a checkpoint: its states and the legal moves between them.
