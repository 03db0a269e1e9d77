//! HTTP in front of the roles: translate and authorise, nothing else.
