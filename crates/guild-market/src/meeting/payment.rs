//! Whether an invoice is paid: a pure decision, made before any money moves.

use guild_protocol::amount::Msat;
use guild_protocol::bolt11::{Invoice, Network};
use guild_protocol::nostr::job::Price;

/// What may be paid in a meeting, and by what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Purse {
    /// What was bid for this request.
    pub bid: Msat,
    /// What is left of the budget of the whole meeting.
    pub left: Msat,
    /// The network on which invoices are paid.
    pub network: Network,
    /// Whether a rail is configured that pays invoices.
    pub has_rail: bool,
}

/// Why nothing is paid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Unpaid {
    /// It does not say how much.
    NoAmount,
    /// It asks for more than was bid.
    AboveBid,
    /// There is nothing that could be paid.
    NoInvoice,
    /// The invoice is none.
    Malformed,
    /// The invoice is of another network.
    OtherNetwork,
    /// The invoice asks for another amount than the provider says, or leaves it open.
    OtherAmount,
    /// The invoice cannot be paid any more, or says that it is from the future.
    Expired,
    /// The meeting has no money left.
    NoBudget,
    /// Nothing here can pay it.
    NoRail,
}

impl Unpaid {
    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Unpaid::NoAmount => "no_amount",
            Unpaid::AboveBid => "above_bid",
            Unpaid::NoInvoice => "no_invoice",
            Unpaid::Malformed => "invoice_malformed",
            Unpaid::OtherNetwork => "other_network",
            Unpaid::OtherAmount => "other_amount",
            Unpaid::Expired => "invoice_expired",
            Unpaid::NoBudget => "no_budget",
            Unpaid::NoRail => "no_rail",
        }
    }

    /// For people.
    pub fn words(self) -> &'static str {
        match self {
            Unpaid::NoAmount => "it wants to be paid and does not say how much",
            Unpaid::AboveBid => "it wants more than was bid",
            Unpaid::NoInvoice => "it wants to be paid and sends no invoice",
            Unpaid::Malformed => "its invoice cannot be read, or is not signed by its payee",
            Unpaid::OtherNetwork => "its invoice is of another network",
            Unpaid::OtherAmount => "its invoice asks for another amount than it says",
            Unpaid::Expired => "its invoice cannot be paid any more",
            Unpaid::NoBudget => "the meeting has no money left for it",
            Unpaid::NoRail => "no rail is configured that pays invoices",
        }
    }
}

/// How far ahead the clock of a payee may be.
const AHEAD_S: u64 = 900;

/// The invoice that is to be paid, or why none is. All of it is checked before it is asked whether it can be paid, so
/// what is wrong with an invoice is known also where nothing is ever paid.
pub fn consider(price: Option<&Price>, purse: &Purse, now_s: u64) -> Result<Invoice, Unpaid> {
    let price = price.ok_or(Unpaid::NoAmount)?;
    if price.msat > purse.bid {
        return Err(Unpaid::AboveBid);
    }
    let text = price.bolt11.as_deref().ok_or(Unpaid::NoInvoice)?;
    let invoice = Invoice::parse(text).map_err(|_| Unpaid::Malformed)?;
    if invoice.network != purse.network {
        return Err(Unpaid::OtherNetwork);
    }
    match invoice.amount {
        Some(amount) if amount > purse.bid => return Err(Unpaid::AboveBid),
        Some(amount) if amount == price.msat => {}
        _ => return Err(Unpaid::OtherAmount),
    }
    if invoice.expires_s() <= now_s || invoice.created_s > now_s.saturating_add(AHEAD_S) {
        return Err(Unpaid::Expired);
    }
    if price.msat > purse.left {
        return Err(Unpaid::NoBudget);
    }
    if purse.has_rail { Ok(invoice) } else { Err(Unpaid::NoRail) }
}

#[cfg(test)]
mod tests {
    use guild_protocol::bolt11::NewInvoice;
    use guild_protocol::hash::Hash;
    use guild_protocol::identity::SecretKey;

    use super::*;

    const NOW_S: u64 = 1_800_000_000;

    fn invoice(change: impl Fn(&mut NewInvoice)) -> String {
        let mut new = NewInvoice {
            network: Network::Bitcoin,
            amount: Some(Msat(900)),
            created_s: NOW_S - 10,
            expiry_s: 60,
            payment_hash: Hash::of(b"x"),
            description: "work".to_owned(),
        };
        change(&mut new);
        new.sign(&SecretKey::from_bytes([5; 32]).unwrap()).unwrap()
    }

    fn told(tag_msat: i64, bolt11: Option<String>) -> Result<Option<Msat>, &'static str> {
        let price = Price { msat: Msat(tag_msat), bolt11 };
        let purse =
            Purse { bid: Msat(1_000), left: Msat(950), network: Network::Bitcoin, has_rail: true };
        let paid = consider(Some(&price), &purse, NOW_S);
        let poor = consider(Some(&price), &Purse { has_rail: false, ..purse }, NOW_S);
        // Without a rail nothing else is different.
        assert_eq!(poor.err().unwrap(), paid.as_ref().err().copied().unwrap_or(Unpaid::NoRail));
        paid.map(|invoice| invoice.amount).map_err(Unpaid::name)
    }

    #[test]
    fn an_invoice_is_paid_if_all_of_it_is_right() {
        assert_eq!(told(900, Some(invoice(|_| {}))), Ok(Some(Msat(900))));
        let amount =
            |msat: Option<i64>| invoice(move |new: &mut NewInvoice| new.amount = msat.map(Msat));
        for (tag_msat, bolt11, why) in [
            (1_001, Some(invoice(|_| {})), "above_bid"),
            (900, Some(amount(Some(1_001))), "above_bid"),
            (900, Some(amount(Some(901))), "other_amount"),
            (900, Some(amount(None)), "other_amount"),
            (960, Some(amount(Some(960))), "no_budget"),
            (900, Some(invoice(|new| new.network = Network::Testnet)), "other_network"),
            (900, Some(invoice(|new| new.expiry_s = 10)), "invoice_expired"),
            (900, Some(invoice(|new| new.created_s = NOW_S + 901)), "invoice_expired"),
            (900, Some("lnbc1rubbish".to_owned()), "invoice_malformed"),
            (900, None, "no_invoice"),
        ] {
            assert_eq!(told(tag_msat, bolt11), Err(why));
        }
        let purse =
            Purse { bid: Msat(1), left: Msat(1), network: Network::Bitcoin, has_rail: true };
        assert_eq!(consider(None, &purse, NOW_S), Err(Unpaid::NoAmount));
    }
}
