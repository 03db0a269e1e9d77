//! What a token may do.

use std::fmt;
use std::str::FromStr;

use super::code;
use crate::{Error, Result};

macro_rules! scopes {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)+) => {
        /// One right.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, utoipa::ToSchema)]
        pub enum Scope {
            $($(#[$doc])* #[schema(rename = $text)] $name,)+
        }

        impl Scope {
            /// Every scope, in the order of the documentation.
            pub const ALL: &[Scope] = &[$(Scope::$name),+];

            /// Its name.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Scope::$name => $text,)+
                }
            }
        }
    };
}

scopes! {
    /// Read jobs.
    JobsRead = "jobs:read",
    /// Create, extend and stop jobs.
    JobsWrite = "jobs:write",
    /// Read sandboxes.
    SandboxesRead = "sandboxes:read",
    /// Create, extend, resize, stop and destroy sandboxes.
    SandboxesWrite = "sandboxes:write",
    /// Run commands and move files.
    SandboxesExec = "sandboxes:exec",
    /// Read the balance and the statement.
    BillingRead = "billing:read",
    /// Take money out.
    BillingWithdraw = "billing:withdraw",
    /// Make, list and revoke API keys.
    KeysWrite = "keys:write",
}

impl Scope {
    const fn bit(self) -> u16 {
        1 << self as u16
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Scope {
    type Err = Error;

    fn from_str(text: &str) -> Result<Scope> {
        let known = Scope::ALL.iter().find(|scope| scope.as_str() == text);
        known.copied().ok_or_else(|| {
            let known = Scopes::ALL;
            Error::refused(&code::SCOPE_UNKNOWN, format!("a scope is one of {known}"))
        })
    }
}

/// Some rights, written with spaces between them. No right is part of another.
///
/// ```
/// # use guild_hosting::access::{Scope, Scopes};
/// let some: Scopes = "sandboxes:exec jobs:read".parse()?;
/// assert_eq!(some.to_string(), "jobs:read sandboxes:exec");
/// assert!(some.has(Scope::JobsRead) && !some.has(Scope::JobsWrite));
/// assert!(Scopes::ALL.covers(some) && !some.covers(Scopes::ALL));
/// # Ok::<(), guild_hosting::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Scopes(u16);

impl Scopes {
    /// None.
    pub const NONE: Scopes = Scopes(0);
    /// All of them.
    pub const ALL: Scopes = Scopes((1 << Scope::ALL.len()) - 1);

    /// Those that only read.
    pub const READ: Scopes =
        Scopes(Scope::JobsRead.bit() | Scope::SandboxesRead.bit() | Scope::BillingRead.bit());

    /// Whether this right is among them.
    pub fn has(self, scope: Scope) -> bool {
        self.0 & scope.bit() != 0
    }

    /// Whether all of the others are among them.
    pub fn covers(self, others: Scopes) -> bool {
        others.0 & !self.0 == 0
    }

    /// Each of them, in the order of the documentation.
    pub fn iter(self) -> impl Iterator<Item = Scope> {
        Scope::ALL.iter().copied().filter(move |scope| self.has(*scope))
    }
}

impl FromIterator<Scope> for Scopes {
    fn from_iter<I: IntoIterator<Item = Scope>>(scopes: I) -> Scopes {
        Scopes(scopes.into_iter().fold(0, |bits, scope| bits | scope.bit()))
    }
}

impl fmt::Display for Scopes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.iter().map(Scope::as_str).collect();
        f.write_str(&names.join(" "))
    }
}

impl fmt::Debug for Scopes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Scopes({self})")
    }
}

impl FromStr for Scopes {
    type Err = Error;

    /// Reads names with one space between them; nothing is no scope.
    fn from_str(text: &str) -> Result<Scopes> {
        if text.is_empty() {
            return Ok(Scopes::NONE);
        }
        text.split(' ').map(Scope::from_str).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back_and_others_refused() {
        for scope in Scope::ALL {
            assert_eq!(scope.as_str().parse::<Scope>().unwrap(), *scope);
        }
        assert_eq!(Scopes::ALL.to_string().parse::<Scopes>().unwrap(), Scopes::ALL);
        assert_eq!(Scopes::ALL.iter().count(), 8);
        for bad in [
            "*",
            "jobs",
            "jobs:*",
            "JOBS:READ",
            "jobs:read ",
            "jobs:read  jobs:write",
            "jobs:read,jobs:write",
        ] {
            assert_eq!(bad.parse::<Scopes>().unwrap_err().code(), &code::SCOPE_UNKNOWN, "{bad}");
        }
    }

    #[test]
    fn one_right_never_stands_for_another() {
        for one in Scope::ALL {
            for other in Scope::ALL {
                assert_eq!(Scopes::from_iter([*one]).has(*other), one == other);
            }
        }
        assert!(
            Scopes::NONE.covers(Scopes::NONE)
                && !Scopes::NONE.covers(Scopes::from_iter([Scope::JobsRead]))
        );
    }
}
