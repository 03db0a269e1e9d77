//! Set-up, tests, benches and the rules of the tree.

fn main() {}
