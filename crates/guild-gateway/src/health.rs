//! Whether the process answers, and whether all of it runs.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde_json::{Value, json};

use crate::Shared;

/// The services of a node, as whoever runs them tells. One value, cloned.
///
/// ```
/// let services = guild_gateway::Services::default();
/// services.running("relay");
/// assert!(services.problems().is_empty());
/// services.ended("relay");
/// assert_eq!(services.problems(), ["the service relay does not run"]);
/// ```
#[derive(Debug, Clone, Default)]
pub struct Services(Arc<Mutex<BTreeMap<&'static str, bool>>>);

impl Services {
    /// This service runs.
    pub fn running(&self, name: &'static str) {
        self.lock().insert(name, true);
    }

    /// This service ended, or has not begun.
    pub fn ended(&self, name: &'static str) {
        self.lock().insert(name, false);
    }

    /// What does not run and should, in words.
    pub fn problems(&self) -> Vec<String> {
        let services = self.lock();
        let down = services.iter().filter(|(_, runs)| !**runs);
        down.map(|(name, _)| format!("the service {name} does not run")).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<&'static str, bool>> {
        // Nothing panics while holding the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether the process answers: whoever can ask this is answered.
pub(crate) async fn healthz() -> Json<Value> {
    Json(json!({ "ok": true, "version": env!("CARGO_PKG_VERSION") }))
}

/// Whether everything runs; if not, why.
pub(crate) async fn readyz(State(shared): State<Shared>) -> (StatusCode, Json<Value>) {
    let mut reasons = shared.services.problems();
    if shared.shutdown.is_triggered() {
        reasons.push("the node is stopping".to_owned());
    }
    if let Err(error) = shared.explorer.ping().await {
        reasons.push(format!("the store does not answer: {error}"));
    }
    let ready = reasons.is_empty();
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(json!({ "ok": ready, "reasons": reasons })))
}
