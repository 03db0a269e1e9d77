//! What a number was measured on: without it the number says little.

use serde::Serialize;

use crate::workspace::{self, Workspace};

/// The machine and its state before the first run.
#[derive(Debug, Default, Clone, PartialEq, Serialize)]
pub(crate) struct Machine {
    pub(crate) cores: usize,
    pub(crate) cpu: String,
    pub(crate) load_average: f64,
    pub(crate) rustc: String,
    pub(crate) date: String,
}

impl Machine {
    /// Looks around. What cannot be found out is left empty: it is no reason to fail.
    pub(crate) fn look(tree: &Workspace) -> Machine {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let rustc = workspace::output(tree.program("rustc").arg("--version"));
        Machine {
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            cpu: cpu_model(&read("/proc/cpuinfo")),
            load_average: load_average(&read("/proc/loadavg")),
            rustc: rustc.unwrap_or_default().trim().to_owned(),
            date: jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        }
    }
}

fn cpu_model(cpuinfo: &str) -> String {
    let model = cpuinfo.lines().find(|line| line.starts_with("model name"));
    model
        .and_then(|line| line.split_once(": "))
        .map_or_else(String::new, |(_, name)| name.to_owned())
}

fn load_average(loadavg: &str) -> f64 {
    loadavg.split(' ').next().and_then(|load| load.parse().ok()).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_files_are_read() {
        assert_eq!(cpu_model("processor\t: 0\nmodel name\t: Fast CPU @ 3GHz\n"), "Fast CPU @ 3GHz");
        assert_eq!(load_average("0.25 0.10 0.05 1/99 1234\n"), 0.25);
        assert_eq!((cpu_model(""), load_average("")), (String::new(), 0.0));
    }
}
