//! The API described: as OpenAPI for programs, as a page for people.

use axum::Json;
use axum::response::Html;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::{IntoParams, Modify, OpenApi};

use super::{access, billing, inside, jobs, operator, ports, sandboxes};
use crate::web;

/// The header of every write.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
pub(crate) struct Idempotent {
    /// A random text of your own. The same request with the same key has one effect and one answer; the same key with
    /// another request is refused (422). Kept for a day.
    #[param(rename = "idempotency-key", min_length = 1, max_length = 255, pattern = "^[!-~]+$")]
    #[expect(dead_code, reason = "describes a header that is read by hand")]
    idempotency_key: String,
}

/// What a path names.
macro_rules! paths {
    ($($path:ident { $($(#[$doc:meta])+ $name:ident = $pattern:literal,)+ })+) => {
        $(#[derive(IntoParams)]
        #[into_params(parameter_in = Path)]
        #[expect(dead_code, reason = "describes what is read by hand")]
        pub(crate) struct $path {
            $($(#[$doc])+ #[param(pattern = $pattern)] $name: String,)+
        })+
    };
}

paths! {
    JobPath {
        /// Names the job.
        job_id = "^job_[0-9a-f]{32}$",
    }
    SandboxPath {
        /// Names the sandbox.
        sandbox_id = "^sbx_[0-9a-f]{32}$",
    }
    ExecPath {
        /// Names the sandbox.
        sandbox_id = "^sbx_[0-9a-f]{32}$",
        /// Names the command.
        exec_id = "^exec_[0-9a-f]{32}$",
    }
    KeyPath {
        /// Names the key.
        key_id = "^key_[0-9a-f]{32}$",
    }
    WithdrawalPath {
        /// Names the withdrawal.
        withdrawal_id = "^wd_[0-9a-f]{32}$",
    }
    QuotePath {
        /// Names the quote.
        quote_id = "^quote_[0-9a-f]{32}$",
    }
}

/// The page of a list, for each sort of thing that names its items. [`guild_hosting::api::PageQuery`] reads them all.
macro_rules! pages {
    ($($name:ident = $pattern:literal,)+) => {
        $(#[derive(IntoParams)]
        #[into_params(parameter_in = Query)]
        #[expect(dead_code, reason = "describes parameters that are read by hand")]
        pub(crate) struct $name {
            /// Where the page before ended: its `next`.
            #[param(pattern = $pattern)]
            before: Option<String>,
            /// How many at most.
            #[param(minimum = 1, maximum = 200, default = 50)]
            limit: Option<i64>,
        })+
    };
}

pages! {
    JobPage = "^job_[0-9a-f]{32}$",
    SandboxPage = "^sbx_[0-9a-f]{32}$",
    WithdrawalPage = "^wd_[0-9a-f]{32}$",
    StatementPage = "^[0-9]{1,15}$",
}

/// All of `/v1`.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "Guildhall hosting",
        description = "Sandboxes that agents buy by the minute, where an unpaid minute never runs. Sign in with a \
            wallet (EIP-4361) or a Nostr key (NIP-98), make a job that bounds what is spent, and buy sandboxes in \
            it. Amounts are whole micro-USD; the same in cents stands beside them as an exact decimal text. Every \
            write with a user's token needs an idempotency key, but for signing out and for what is passed on to a \
            port. Signing in is good for one try by its proof; what an operator writes is named by its reference or \
            its withdrawal."
    ),
    paths(
        access::nonce, access::verify, access::bypass, access::me, access::logout, access::keys,
        access::create_key, access::revoke_key,
        jobs::create, jobs::list, jobs::show, jobs::extend, jobs::stop,
        sandboxes::price, sandboxes::create, sandboxes::of_job, sandboxes::list, sandboxes::show,
        sandboxes::extend, sandboxes::resize, sandboxes::stop, sandboxes::destroy, sandboxes::pause,
        sandboxes::resume,
        inside::exec, inside::output, inside::stdin, inside::signal, inside::upload, inside::download,
        inside::delete, inside::directory, inside::secrets,
        ports::expose, ports::list, ports::close, ports::pass, ports::tunnel,
        billing::balance, billing::statement, billing::withdraw, billing::withdrawals, billing::withdrawal,
        billing::quote,
        operator::credit, operator::withdrawals, operator::confirm, operator::fail,
        operator::clock, operator::accept_clock,
    ),
    security(("token" = [])),
    modifiers(&Schemes),
)]
pub(crate) struct Document;

struct Schemes;

impl Modify for Schemes {
    fn modify(&self, openapi: &mut utoipa::openapi::OpenApi) {
        let components = openapi.components.get_or_insert_default();
        let bearer = |words: &str| {
            let scheme = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).description(Some(words));
            SecurityScheme::Http(scheme.build())
        };
        components.add_security_scheme("token", bearer("A session (ghs_…) or an API key (ghk_…)."));
        components.add_security_scheme(
            "node",
            bearer("The node's own token, from node.json. Operators only."),
        );
    }
}

/// The document, as it is checked in.
pub(crate) fn text() -> String {
    let mut text = Document::openapi().to_pretty_json().unwrap_or_default();
    text.push('\n');
    text
}

/// `/v1/openapi.json`.
pub(crate) async fn openapi() -> Json<utoipa::openapi::OpenApi> {
    Json(Document::openapi())
}

/// `/v1`.
pub(crate) async fn page() -> Html<String> {
    Html(web::api(&Document::openapi()))
}
