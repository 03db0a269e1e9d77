//! Suites of pytest, and what can be seen of forgeries there.
