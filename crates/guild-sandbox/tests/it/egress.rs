//! The proxy as programs meet it: over sockets, and from inside real sandboxes. Everything stays on 127.0.0.1.

mod hostile;
mod inside;
mod limits;
mod place;
mod plain;
mod tls;
