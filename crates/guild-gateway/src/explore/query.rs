//! The parameters of a list, and names in paths. All are read as text, so that a wrong one gets our own message.

use std::str::FromStr;

use axum::extract::rejection::PathRejection;
use axum::extract::{FromRequestParts, Path, Query};
use axum::http::request::Parts;
use guild_roles::explorer::{Cursor, PAGE_MAX, Page, Wanted};
use guild_roles::router::{Status, Tier};
use serde::Deserialize;

use crate::log::{bad_query, number};
use crate::{Error, Result};

/// How many lines a page has if nobody says.
const LIMIT_DEFAULT: i64 = 25;
const SCHEMA_MAX_BYTES: usize = 100;

#[derive(Debug, Default, Deserialize)]
pub(crate) struct ListQuery {
    after: Option<String>,
    limit: Option<String>,
    schema: Option<String>,
    live: Option<String>,
    status: Option<String>,
    tier: Option<String>,
}

impl<S: Send + Sync> FromRequestParts<S> for ListQuery {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<ListQuery> {
        let Query(query) = Query::from_request_parts(parts, state).await.map_err(bad_query)?;
        Ok(query)
    }
}

impl ListQuery {
    pub(super) fn page(&self) -> Result<Page> {
        let after = match self.after.as_deref() {
            None | Some("") => None,
            Some(text) => {
                Some(text.parse::<Cursor>().map_err(|e| Error::bad("after", e.to_string()))?)
            }
        };
        let limit = number("limit", self.limit.as_deref(), LIMIT_DEFAULT)?;
        Ok(Page { after, limit: usize::try_from(limit).unwrap_or(PAGE_MAX).clamp(1, PAGE_MAX) })
    }

    /// What a form sends without a value means the same as nothing.
    pub(super) fn wanted(&self) -> Result<Wanted> {
        let schema_id = self.schema.as_deref().map(str::trim).filter(|text| !text.is_empty());
        if schema_id.is_some_and(|text| text.len() > SCHEMA_MAX_BYTES) {
            return Err(Error::bad("schema", format!("is longer than {SCHEMA_MAX_BYTES} bytes")));
        }
        if schema_id.is_some_and(|text| text.chars().any(char::is_control)) {
            return Err(Error::bad("schema", "has control characters"));
        }
        let live = match self.live.as_deref() {
            None | Some("" | "false") => false,
            Some("true") => true,
            Some(_) => return Err(Error::bad("live", "must be true or false")),
        };
        let status = match self.status.as_deref() {
            None | Some("") => None,
            Some(name) => Some(Status::named(name).ok_or_else(|| {
                Error::bad("status", "must be one of the matrix, such as ACTIVE or QUARANTINED")
            })?),
        };
        let tier = match self.tier.as_deref() {
            None | Some("") => None,
            Some(name) => Some(Tier::named(name).ok_or_else(|| {
                Error::bad("tier", "must be primary, secondary, tertiary or below")
            })?),
        };
        Ok(Wanted { schema_id: schema_id.map(str::to_owned), live, status, tier })
    }

    /// Only providers can be narrowed down; a filter that does nothing would look as if it did.
    pub(super) fn unfiltered(&self) -> Result<Page> {
        let filters = [
            ("schema", &self.schema),
            ("live", &self.live),
            ("status", &self.status),
            ("tier", &self.tier),
        ];
        match filters.into_iter().find(|(_, value)| value.is_some()) {
            None => self.page(),
            Some((name, _)) => Err(Error::bad(name, "is a filter of providers only")),
        }
    }

    /// The address of the next page: the same list, behind the cursor.
    pub(super) fn next(&self, path: &str, next: Option<&Cursor>) -> Option<String> {
        let mut address = format!("{path}?after={}", next?);
        let given = [
            ("limit", &self.limit),
            ("schema", &self.schema),
            ("live", &self.live),
            ("status", &self.status),
            ("tier", &self.tier),
        ];
        for (name, value) in
            given.into_iter().filter_map(|(name, value)| Some((name, value.as_deref()?)))
        {
            address.push_str(&format!("&{name}={}", encoded(value)));
        }
        Some(address)
    }
}

/// A value as it stands in an address: everything but letters, digits and a few signs by its bytes.
///
/// ```
/// assert_eq!(guild_gateway::encoded("a/b é"), "a%2Fb%20%C3%A9");
/// ```
pub fn encoded(text: &str) -> String {
    let byte = |b: u8| match b {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
            char::from(b).to_string()
        }
        other => format!("%{other:02X}"),
    };
    text.bytes().map(byte).collect()
}

/// The name at the end of a path.
pub(crate) struct Named(pub(crate) String);

impl<S: Send + Sync> FromRequestParts<S> for Named {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Named> {
        let name: Result<Path<String>, PathRejection> =
            Path::from_request_parts(parts, state).await;
        match name {
            Ok(Path(name)) => Ok(Named(name)),
            Err(rejected) => Err(Error::bad("path", rejected.body_text())),
        }
    }
}

/// An id as it is written in a path.
pub(super) fn parsed<T: FromStr<Err = guild_protocol::Error>>(
    field: &str,
    text: &str,
) -> Result<T> {
    text.parse().map_err(|e: guild_protocol::Error| Error::bad(field, e.message()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_page_keeps_its_filter_and_cannot_be_injected_into() {
        let query = ListQuery {
            schema: Some("a&b=\"<é".to_owned()),
            live: Some("true".to_owned()),
            limit: Some("7".to_owned()),
            tier: Some("primary".to_owned()),
            ..ListQuery::default()
        };
        let cursor: Cursor = "5-x".parse().unwrap();
        assert_eq!(
            query.next("/providers", Some(&cursor)).unwrap(),
            "/providers?after=5-x&limit=7&schema=a%26b%3D%22%3C%C3%A9&live=true&tier=primary"
        );
        assert_eq!(query.next("/providers", None), None);
    }

    #[test]
    fn limits_are_kept() {
        let limit = |text: &str| {
            ListQuery { limit: Some(text.to_owned()), ..ListQuery::default() }
                .page()
                .map(|page| page.limit)
        };
        assert_eq!(
            [limit("0"), limit("7"), limit("99999999999999")].map(Result::unwrap),
            [1, 7, PAGE_MAX]
        );
        assert!(limit("x").is_err() && limit("-1").is_err());
        assert!(
            ListQuery { live: Some("maybe".to_owned()), ..ListQuery::default() }.wanted().is_err()
        );
        assert!(
            ListQuery { live: Some("true".to_owned()), ..ListQuery::default() }
                .unfiltered()
                .is_err()
        );
    }
}
