//! What a node answers, and that it does not.

use serde_json::Value;
use ureq::http::Response;

use crate::error::{Error, Result, all_codes, code};

/// A refusal of the node at this address becomes the same refusal here.
pub(crate) fn accepted(
    url: &str,
    mut answer: Response<ureq::Body>,
) -> Result<Response<ureq::Body>> {
    if answer.status().is_success() {
        return Ok(answer);
    }
    if answer.status().is_redirection() {
        let words = answer.headers().get("location").and_then(|place| place.to_str().ok());
        let message =
            format!("{url} points to {}, where nothing was sent", words.unwrap_or("another place"));
        return Err(Error::new(&code::NODE_UNREACHABLE, message)
            .help("Name the node by the address it has now."));
    }
    let body: Value = answer.body_mut().read_json().map_err(|e| unreachable(url, &e))?;
    let error = &body["error"];
    let message = error["message"].as_str().unwrap_or("the node refuses").to_owned();
    let name = error["code"].as_str().unwrap_or_default();
    let known = all_codes().into_iter().find(|code| code.name == name);
    Err(Error::new(known.unwrap_or(&code::NODE_UNREACHABLE), message))
}

/// No answer from there.
pub(crate) fn unreachable(url: &str, error: &ureq::Error) -> Error {
    Error::new(&code::NODE_UNREACHABLE, format!("the node at {url} does not answer: {error}"))
}
