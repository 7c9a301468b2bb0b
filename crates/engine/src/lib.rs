//! The checkpoint cache: keeps the history of checkpoints across device, host and files, and brings each back before it is asked for.
