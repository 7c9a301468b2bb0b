//! The mechanisms of papers that experiments compare Tierflow with, and that no crate ships.

pub(crate) mod uvm;
pub mod veloc;
