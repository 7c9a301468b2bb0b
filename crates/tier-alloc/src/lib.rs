//! Arenas that become usable piece by piece: mapped, touched and pinned in the background.
