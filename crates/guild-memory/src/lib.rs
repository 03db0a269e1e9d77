//! Embeddings, and later what is remembered by them.
//!
//! | module | what it settles |
//! |---|---|
