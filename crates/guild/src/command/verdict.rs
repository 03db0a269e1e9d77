//! How the finding of a verifier is shown.

use std::path::Path;

use guild_protocol::verification::Verification;

use super::Context;
use crate::error::Result;

/// One line for the whole, then one for each check.
pub(crate) fn print(
    path: &Path,
    thing: &str,
    checks: &Verification,
    cx: &mut Context<'_>,
) -> Result<()> {
    let verdict = if checks.holds() { "holds" } else { "does NOT hold" };
    cx.out.line(&format!("{}: the {thing} {verdict}", path.display()))?;
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
