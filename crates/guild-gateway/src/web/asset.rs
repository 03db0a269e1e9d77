//! The few files that pages need. Their addresses carry the hash of their content, so a browser may keep them for ever.

use std::sync::LazyLock;

use axum::extract::Path;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use guild_protocol::hash::Hash;

use crate::{Error, Result};

/// A file in the program.
pub(crate) struct Asset {
    name: String,
    content_type: &'static str,
    content: &'static str,
}

impl Asset {
    fn new(
        stem: &str,
        extension: &str,
        content_type: &'static str,
        content: &'static str,
    ) -> Asset {
        let hash = Hash::of(content.as_bytes()).hex();
        let hash = hash.get(..16).unwrap_or_default();
        Asset { name: format!("{stem}-{hash}.{extension}"), content_type, content }
    }

    /// Where it is.
    pub(crate) fn path(&self) -> String {
        format!("/assets/{}", self.name)
    }
}

static STYLE: LazyLock<Asset> = LazyLock::new(|| {
    Asset::new("style", "css", "text/css; charset=utf-8", include_str!("style.css"))
});
static LIVE: LazyLock<Asset> = LazyLock::new(|| {
    Asset::new("live", "js", "text/javascript; charset=utf-8", include_str!("live.js"))
});
static HOSTING: LazyLock<Asset> = LazyLock::new(|| {
    Asset::new("hosting", "js", "text/javascript; charset=utf-8", include_str!("hosting.js"))
});
static ICON: LazyLock<Asset> =
    LazyLock::new(|| Asset::new("icon", "svg", "image/svg+xml", include_str!("icon.svg")));

/// How pages look.
pub(crate) fn style() -> &'static Asset {
    &STYLE
}

/// What keeps them fresh.
pub(crate) fn live() -> &'static Asset {
    &LIVE
}

/// What signs in on a page, and counts down.
pub(crate) fn hosting() -> &'static Asset {
    &HOSTING
}

/// The sign of the house.
pub(crate) fn icon() -> &'static Asset {
    &ICON
}

pub(crate) async fn asset(Path(name): Path<String>) -> Result<Response> {
    let known = [style(), live(), hosting(), icon()].into_iter().find(|asset| asset.name == name);
    let Some(asset) = known else {
        return Err(Error::NoSuchPath(format!(
            "/assets/{}",
            name.chars().take(100).collect::<String>()
        )));
    };
    let headers = [
        (CONTENT_TYPE, asset.content_type),
        (CACHE_CONTROL, "public, max-age=31536000, immutable"),
    ];
    Ok((headers, asset.content).into_response())
}
