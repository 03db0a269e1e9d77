//! A relay of another make.
