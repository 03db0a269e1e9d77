//! How the finding of a verifier is shown.

use guild_protocol::verification::Verification;

use super::Context;
use crate::error::Result;

/// One line for each check.
pub(crate) fn checks(checks: &Verification, cx: &mut Context<'_>) -> Result<()> {
    let width = checks.checks().iter().map(|check| check.name.len()).max().unwrap_or(0);
    for check in checks.checks() {
        let name = check.name;
        match &check.outcome {
            Ok(holds) => cx.out.line(&format!("  ok      {name:width$}  {holds}"))?,
            Err(problem) => cx.out.line(&format!("  FAILED  {name:width$}  {problem}"))?,
        }
    }
    Ok(())
}
