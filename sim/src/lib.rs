//! Seeded whole-system simulation: one thread, a virtual clock, crashes at every fault point.
