//! Links between documents lead somewhere.

use super::{Finding, Tree};

/// Relative links of Markdown files name a tracked file or directory.
pub(super) fn links(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.texts(&[".md"]) {
        for (line, link) in links_of(text) {
            let exists = resolve(path, &link).is_some_and(|to| {
                let directory = format!("{to}/");
                to.is_empty()
                    || tree.files.iter().any(|f| f.path == to || f.path.starts_with(&directory))
            });
            if !exists {
                findings.push(Finding::new(
                    path,
                    line,
                    format!("the link to {link} leads nowhere"),
                ));
            }
        }
    }
    findings
}

/// The relative links of a document outside its code, with their lines.
fn links_of(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut fenced = false;
    for (number, line) in (1..).zip(text.lines()) {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        }
        if fenced {
            continue;
        }
        // Every second part stands between back-ticks.
        let prose: String = line.split('`').step_by(2).collect::<Vec<_>>().join("`");
        for (_, rest) in
            prose.match_indices("](").filter_map(|(at, m)| prose.split_at_checked(at + m.len()))
        {
            let link = rest.split([')', ' ']).next().unwrap_or_default();
            let file = link.split('#').next().unwrap_or_default();
            if !file.is_empty() && !file.contains(':') {
                found.push((number, file.to_owned()));
            }
        }
    }
    found
}

/// The path below the root that a link in `from` means; `None` outside the tree.
fn resolve(from: &str, link: &str) -> Option<String> {
    let mut parts: Vec<&str> = match link.starts_with('/') {
        true => Vec::new(),
        false => from
            .rsplit_once('/')
            .map_or_else(Vec::new, |(directory, _)| directory.split('/').collect()),
    };
    for part in link.split('/').filter(|part| !matches!(*part, "" | ".")) {
        if part == ".." {
            parts.pop()?;
        } else {
            parts.push(part);
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::super::planted::{shown, tree};
    use super::*;

    #[test]
    fn a_dead_link_is_caught() {
        let page = "[a](b.md) [c](../README.md#x) [d](https://example.org/) [e](#here)\n\
            `[f](gone.md)` [g](formats/)\n```\n[h](gone.md)\n```\n[i](gone.md \"t\") ![j](../../up.png)\n";
        let planted = tree(&[
            ("docs/a.md", page),
            ("docs/b.md", ""),
            ("README.md", ""),
            ("docs/formats/x.md", ""),
        ]);
        assert_eq!(
            shown(&links(&planted)),
            [
                "docs/a.md:6: the link to gone.md leads nowhere",
                "docs/a.md:6: the link to ../../up.png leads nowhere",
            ]
        );
    }
}
