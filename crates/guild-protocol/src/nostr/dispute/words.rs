//! The words of a dispute.

macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$of:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum $name { $($(#[$of])* $variant,)+ }

        impl $name {
            /// All of them.
            pub const ALL: &'static [$name] = &[$($name::$variant,)+];

            /// The word in messages, in the database and in answers.
            pub fn as_str(self) -> &'static str {
                match self { $($name::$variant => $word,)+ }
            }

            /// What this word means.
            pub fn parse(word: &str) -> Option<$name> {
                $name::ALL.iter().copied().find(|one| one.as_str() == word)
            }
        }
    };
}

words! {
    /// What somebody is in a dispute.
    Side {
        /// Who asked for the work, and pays.
        Buyer = "buyer",
        /// Who did it, and is paid.
        Provider = "provider",
        /// Who may decide.
        Arbiter = "arbiter",
    }
}

impl Side {
    /// The other of the two. An arbiter has none.
    pub fn other(self) -> Option<Side> {
        match self {
            Side::Buyer => Some(Side::Provider),
            Side::Provider => Some(Side::Buyer),
            Side::Arbiter => None,
        }
    }

    /// What this side would have the money do.
    pub fn wish(self) -> Option<Outcome> {
        match self {
            Side::Buyer => Some(Outcome::Withhold),
            Side::Provider => Some(Outcome::Release),
            Side::Arbiter => None,
        }
    }
}

words! {
    /// Why a result is disputed.
    Reason {
        /// The buyer: it is not what was ordered.
        ResultWrong = "result_wrong",
        /// The provider: it is what was ordered, and was not accepted.
        VerdictWrong = "verdict_wrong",
        /// The provider: nothing was paid, and nobody said why.
        NotPaid = "not_paid",
        /// It came too late, or is said to have.
        Late = "late",
        /// It is the work of somebody else.
        Copied = "copied",
        /// Price, privacy or whatever else was agreed was not kept.
        Terms = "terms",
        /// What the statement says.
        Other = "other",
    }
}

impl Reason {
    /// Whether doing the work again tells who is right.
    pub fn is_checkable(self) -> bool {
        matches!(self, Reason::ResultWrong | Reason::VerdictWrong | Reason::NotPaid)
    }

    /// Whether this side can give it as its reason.
    pub fn is_of(self, side: Side) -> bool {
        match self {
            Reason::ResultWrong => side == Side::Buyer,
            Reason::VerdictWrong | Reason::NotPaid => side == Side::Provider,
            _ => side != Side::Arbiter,
        }
    }
}

words! {
    /// What the money does.
    Outcome {
        /// The provider is paid.
        Release = "release",
        /// The buyer keeps it.
        Withhold = "withhold",
    }
}

words! {
    /// By what a dispute was decided.
    By {
        /// The work was checked again, or a rule leaves no choice.
        Rule = "rule",
        /// The arbiter says so.
        Arbiter = "arbiter",
        /// Whoever would have gained by the opposite has given in.
        Concession = "concession",
        /// Nobody decided in time.
        Deadline = "deadline",
        /// Whoever filed it has lost too many in a row: nothing is held for it any more.
        Record = "record",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_read_as_what_it_is() {
        assert!(Side::ALL.iter().all(|one| Side::parse(one.as_str()) == Some(*one)));
        assert!(Reason::ALL.iter().all(|one| Reason::parse(one.as_str()) == Some(*one)));
        assert!(Outcome::ALL.iter().all(|one| Outcome::parse(one.as_str()) == Some(*one)));
        assert!(By::ALL.iter().all(|one| By::parse(one.as_str()) == Some(*one)));
        assert_eq!(Reason::parse("Late"), None);
    }

    #[test]
    fn the_two_wish_the_opposite_and_an_arbiter_nothing() {
        assert_ne!(Side::Buyer.wish(), Side::Provider.wish());
        assert_eq!((Side::Arbiter.wish(), Side::Arbiter.other()), (None, None));
        for reason in Reason::ALL {
            assert!(!reason.is_of(Side::Arbiter));
            assert!(reason.is_of(Side::Buyer) || reason.is_of(Side::Provider));
        }
    }
}
