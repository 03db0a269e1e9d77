//! Verdicts over time, on real databases.
