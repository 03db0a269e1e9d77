//! A browser without a screen, to look at pages as people do.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

use crate::process::{as_ordinary_user, give_to_ordinary_user, said};

/// The program, as Debian names it.
pub const PROGRAM: &str = "chromium-headless-shell";

/// A browser with a profile of its own. Every look starts it anew.
#[derive(Debug)]
pub struct Browser {
    program: PathBuf,
    profile: TempDir,
}

/// How a page is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    /// Of the window, in pixels.
    pub width: u32,
    /// The same.
    pub height: u32,
    /// Whether the reader prefers dark pages.
    pub dark: bool,
}

/// Where the browser is, if it is installed.
pub fn program() -> Result<PathBuf, String> {
    #[expect(clippy::disallowed_methods, reason = "a program is found on the path")]
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found =
        std::env::split_paths(&path).map(|dir| dir.join(PROGRAM)).find(|path| path.is_file());
    found.ok_or_else(|| format!("{PROGRAM} is missing: apt-get install {PROGRAM}"))
}

impl Browser {
    /// A browser that has seen nothing yet.
    pub fn new() -> Result<Browser, String> {
        let profile = tempfile::tempdir().map_err(said)?;
        give_to_ordinary_user(profile.path())?;
        Ok(Browser { program: program()?, profile })
    }

    /// The page as the browser has it once it is loaded.
    pub fn dom(&self, url: &str, look: Look) -> Result<String, String> {
        let output = self.run(look, &["--dump-dom".to_owned(), url.to_owned()])?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// A picture of the page.
    pub fn picture(&self, url: &str, look: Look, to: &Path) -> Result<(), String> {
        let shot = self.profile.path().join("shot.png");
        let file = format!("--screenshot={}", shot.display());
        self.run(look, &[file, url.to_owned()])?;
        std::fs::copy(&shot, to).map_err(said)?;
        std::fs::remove_file(&shot).map_err(said)
    }

    /// Every address that the browser asks for while it loads the page.
    pub fn asked(&self, url: &str, look: Look) -> Result<Vec<String>, String> {
        let log = self.profile.path().join("net.json");
        let arguments =
            [format!("--log-net-log={}", log.display()), "--dump-dom".to_owned(), url.to_owned()];
        self.run(look, &arguments)?;
        let text = std::fs::read_to_string(&log).map_err(said)?;
        std::fs::remove_file(&log).map_err(said)?;
        Ok(addresses(&text))
    }

    fn run(&self, look: Look, arguments: &[String]) -> Result<Output, String> {
        let mut command = Command::new(&self.program);
        // Pages of our own only: the browser's own sandbox needs rights that a container may not give.
        command.args([
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            "--disable-background-networking",
        ]);
        command.args([
            "--disable-component-update",
            "--no-first-run",
            "--disable-sync",
            "--timeout=20000",
        ]);
        command.arg(format!("--window-size={},{}", look.width, look.height));
        // 0 is dark, 1 is light.
        let scheme = u8::from(!look.dark);
        command.arg(format!("--blink-settings=preferredColorScheme={scheme}"));
        command.arg(format!("--user-data-dir={}", self.profile.path().join("profile").display()));
        command.args(arguments).current_dir("/").env("HOME", self.profile.path());
        let output = as_ordinary_user(&mut command).output().map_err(said)?;
        match output.status.success() {
            true => Ok(output),
            false => Err(format!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr))),
        }
    }
}

/// The addresses in a log of the network: those of requests that were begun.
fn addresses(log: &str) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for piece in log.split("\"url\":\"").skip(1) {
        let address = piece.split('"').next().unwrap_or_default();
        if address.contains("://") && !all.iter().any(|known| known == address) {
            all.push(address.to_owned());
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_foreign_address_in_the_log_is_found() {
        let log = r#"{"events":[{"params":{"url":"http://127.0.0.1:1/"}},{"params":{"url":"https://evil.example/x"}},
            {"params":{"url":"http://127.0.0.1:1/"}}]}"#;
        assert_eq!(addresses(log), ["http://127.0.0.1:1/", "https://evil.example/x"]);
    }
}
