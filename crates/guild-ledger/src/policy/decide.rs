//! The pure decision.

use super::{Action, Asked, Bundle};

/// What a bundle says of a payment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// What becomes of it.
    pub action: Action,
    /// The rule that decided; none if the cap did.
    pub approval_rule_id: Option<String>,
    /// Why, for people.
    pub why: String,
}

/// What the bundle says of this payment: the first rule that matches, otherwise the cap of its asset. What is no
/// payment at all (nothing to pay, a rail that does not move the asset) is denied before any rule.
pub fn decide(bundle: &Bundle, asked: &Asked) -> Decision {
    let by_default = |action, why| Decision { action, approval_rule_id: None, why };
    let (amount, asset_id) = (&asked.amount, &asked.amount.asset_id);
    if amount.units < 1 {
        return by_default(Action::Deny, "there is nothing to pay".to_owned());
    }
    if !asked.rail.carries(asset_id) {
        let why = format!("the rail {} does not move {asset_id}", asked.rail.as_str());
        return by_default(Action::Deny, why);
    }
    if let Some(rule) = bundle.rules().iter().find(|rule| rule.when.holds(asked)) {
        let why = format!("the rule {} is the first that matches", rule.id);
        return Decision { action: rule.action, approval_rule_id: Some(rule.id.clone()), why };
    }
    match bundle.caps().get(asset_id) {
        None => {
            by_default(Action::Deny, format!("no rule matches, and there is no cap for {asset_id}"))
        }
        Some(cap) if amount.units > *cap => {
            let why = format!("no rule matches, and {amount} is above the cap of {cap}");
            by_default(Action::Deny, why)
        }
        Some(cap) => {
            let why = format!("no rule matches, and {amount} is within the cap of {cap}");
            by_default(Action::Auto, why)
        }
    }
}
