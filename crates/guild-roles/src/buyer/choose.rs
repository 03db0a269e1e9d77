//! Who is hired: a pure decision.

use guild_market::discovery::Footing;
use guild_market::sandbox_run;
use guild_network::index::Provider;
use guild_protocol::amount::Msat;
use guild_protocol::identity::PublicKey;
use guild_protocol::schema::Job;

/// Somebody who could do it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// Its key.
    pub provider: PublicKey,
    /// What it asks for, if it says so.
    pub price: Option<Msat>,
    /// How long it takes, by its own word.
    pub latency_ms: Option<u64>,
    /// Whether it reads encrypted requests.
    pub opens_sealed: bool,
    /// How it stands in the registry of providers, where one is kept. The routing matrix alone judges whom it knows.
    pub footing: Footing,
}

impl Candidate {
    /// What a provider announces, with regard to this work.
    pub fn of(provider: &Provider, job: &Job, footing: Footing) -> Candidate {
        let content = &provider.card.content;
        let unit = provider.card.price_of(job.schema_id().as_str());
        let stability = content.stability.as_ref().and_then(|stability| stability.avg_latency_ms);
        let typical = content.performance.as_ref().and_then(|speed| speed.typical_latency_ms);
        Candidate {
            provider: provider.pubkey,
            price: unit.map(|unit| sandbox_run::price(unit, job)),
            latency_ms: stability.or(typical),
            opens_sealed: content.supports_encryption == Some(true),
            footing,
        }
    }
}

/// Whether somebody says its price, is within the budget, and can read what is private.
pub(super) fn fits(one: &Candidate, budget: Msat, private: bool) -> bool {
    one.price.is_some_and(|price| price <= budget) && (one.opens_sealed || !private)
}

/// The best of those who say their price and are within the budget: who stands best, then the cheapest, then the
/// fastest, then the lowest key. Who does not say how fast it is comes last.
pub fn best(candidates: Vec<Candidate>, budget: Msat, private: bool) -> Option<Candidate> {
    let rank = |one: &Candidate| {
        (one.footing, one.price, one.latency_ms.unwrap_or(u64::MAX), one.provider)
    };
    candidates.into_iter().filter(|one| fits(one, budget, private)).min_by_key(rank)
}

#[cfg(test)]
mod tests {
    use guild_protocol::env::Signer;
    use guild_protocol::identity::SecretKey;

    use super::*;

    fn one(key: u8, price: Option<i64>, latency_ms: Option<u64>) -> Candidate {
        let provider = format!("{key:064x}").parse::<SecretKey>().unwrap().public_key();
        let price = price.map(Msat);
        let footing = Footing::Sound;
        Candidate { provider, price, latency_ms, opens_sealed: key != 9, footing }
    }

    #[test]
    fn the_cheapest_then_the_fastest_is_chosen() {
        let chosen = |candidates: &[Candidate], budget: i64| {
            best(candidates.to_vec(), Msat(budget), false).map(|one| one.provider)
        };
        let (cheap, fast, unsaid) =
            (one(1, Some(5), None), one(2, Some(5), Some(9)), one(3, None, Some(1)));
        let dear = one(4, Some(50), Some(1));
        assert_eq!(
            chosen(&[cheap.clone(), fast.clone(), unsaid.clone(), dear.clone()], 100),
            Some(fast.provider)
        );
        assert_eq!(chosen(&[cheap.clone(), dear.clone()], 100), Some(cheap.provider));
        assert_eq!(chosen(std::slice::from_ref(&dear), 50), Some(dear.provider));
        assert_eq!(chosen(&[dear, unsaid], 49), None);
        let (a, b) = (one(5, Some(1), None), one(6, Some(1), None));
        assert_eq!(chosen(&[a.clone(), b.clone()], 1), Some(a.provider.min(b.provider)));
    }

    #[test]
    fn who_stands_better_comes_before_who_is_cheaper() {
        let at = |key, price, footing| Candidate { footing, ..one(key, Some(price), None) };
        let all = [
            at(1, 1, Footing::Unlisted),
            at(2, 2, Footing::Disputed),
            at(3, 9, Footing::Sound),
            at(4, 8, Footing::Sound),
        ];
        let chosen = |budget| best(all.to_vec(), Msat(budget), false).map(|one| one.price);
        assert_eq!(chosen(9), Some(Some(Msat(8))));
        assert_eq!(chosen(7), Some(Some(Msat(2))), "what nobody can pay is no alternative");
        assert_eq!(chosen(1), Some(Some(Msat(1))));
    }

    #[test]
    fn a_private_request_goes_to_who_can_open_it() {
        let (open, sealed) = (one(9, Some(1), None), one(1, Some(2), None));
        let chosen = best(vec![open.clone(), sealed.clone()], Msat(5), true);
        assert_eq!(chosen, Some(sealed));
        assert_eq!(best(vec![open.clone()], Msat(5), false), Some(open));
    }
}
