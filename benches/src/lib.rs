//! Benchmarks and the experiments of the papers.
