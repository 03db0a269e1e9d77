//! How the finding of a verifier is shown.

use guild_protocol::verification::Verification;

use super::Context;
use crate::error::Result;
use crate::output::sentence;

/// One line for each check.
pub(crate) fn checks(checks: &Verification, cx: &mut Context<'_>) -> Result<()> {
    let width = checks.checks().iter().map(|check| check.name.len()).max().unwrap_or(0);
    for check in checks.checks() {
        let name = check.name;
        match &check.outcome {
            Ok(holds) => cx.out.line(&format!("  ok      {name:width$}  {holds}"))?,
            Err(problem) => {
                let said = sentence(&problem.message, problem.place().as_deref());
                cx.out.line(&format!("  FAILED  {name:width$}  {said}"))?;
                cx.out.line(&format!("          {:width$}  [{}]", "", problem.code.name))?;
            }
        }
    }
    Ok(())
}
