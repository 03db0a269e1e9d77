//! Wake-up bells between the parts of a node.
