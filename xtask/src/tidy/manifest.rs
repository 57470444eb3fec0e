//! Minimal Cargo.toml reader for the dependencies of a package. It works line by line: the manifests of this workspace
//! are simple, and cargo itself rejects invalid TOML.

use super::SourceFile;

/// Part of a manifest that the rules check.
#[derive(Debug, Default)]
pub(super) struct Manifest {
    pub(super) name: String,
    pub(super) dependencies: Vec<Dependency>,
}

/// Entry of a dependency table.
#[derive(Debug)]
pub(super) struct Dependency {
    pub(super) name: String,
    pub(super) line: usize,
    /// The complete entry, on one line.
    pub(super) text: String,
    /// Whether it is a normal dependency, not one for tests or the build script.
    pub(super) shipped: bool,
}

/// Section of a manifest.
enum Section {
    Package,
    Dependencies {
        shipped: bool,
    },
    /// `[dependencies.name]`: the lines that follow belong to the dependency added last.
    OneDependency,
    Other,
}

impl Manifest {
    pub(super) fn read(file: &SourceFile) -> Self {
        let mut manifest = Self::default();
        let mut section = Section::Other;
        let mut open = 0;
        for (line, text) in file.lines() {
            let text = text.split_once(" #").map_or(text, |(text, _comment)| text).trim();
            if text.is_empty() || text.starts_with('#') {
                continue;
            }
            if open > 0 {
                if matches!(section, Section::Dependencies { .. } | Section::OneDependency) {
                    manifest.add_to_last(text);
                }
            } else if let Some(header) = text.strip_prefix('[') {
                section = manifest.enter(header.trim_end_matches(']'), line);
                continue;
            } else {
                manifest.entry(&section, line, text);
            }
            open += balance(text);
        }
        manifest
    }

    fn enter(&mut self, header: &str, line: usize) -> Section {
        if header == "package" {
            return Section::Package;
        }
        // `[target.'cfg(unix)'.dependencies]` is a table like the others.
        for (table, shipped) in
            [("dev-dependencies", false), ("build-dependencies", false), ("dependencies", true)]
        {
            if header == table || header.strip_suffix(table).is_some_and(|before| before.ends_with('.')) {
                return Section::Dependencies { shipped };
            }
            let name = header
                .strip_prefix(table)
                .or_else(|| header.rsplit_once(&format!(".{table}")).map(|at| at.1));
            if let Some(name) = name.and_then(|name| name.strip_prefix('.')) {
                self.dependencies.push(Dependency {
                    name: name.to_owned(),
                    line,
                    text: String::new(),
                    shipped,
                });
                return Section::OneDependency;
            }
        }
        Section::Other
    }

    fn entry(&mut self, section: &Section, line: usize, text: &str) {
        match *section {
            Section::Package => {
                if let Some(name) =
                    text.strip_prefix("name").map(str::trim).and_then(|rest| rest.strip_prefix('='))
                {
                    name.trim().trim_matches('"').clone_into(&mut self.name);
                }
            }
            Section::Dependencies { shipped } => {
                let name =
                    text.split([' ', '=', '.']).next().unwrap_or_default().trim_matches('"').to_owned();
                self.dependencies.push(Dependency { name, line, text: text.to_owned(), shipped });
            }
            Section::OneDependency => self.add_to_last(text),
            Section::Other => {}
        }
    }

    fn add_to_last(&mut self, text: &str) {
        if let Some(dependency) = self.dependencies.last_mut() {
            dependency.text.push(' ');
            dependency.text.push_str(text);
        }
    }
}

impl Dependency {
    pub(super) fn is_from_workspace(&self) -> bool {
        self.text.contains("workspace = true")
    }

    /// Returns the names in `features = […]`.
    pub(super) fn features(&self) -> impl Iterator<Item = &str> {
        let list = self.text.split_once("features = [").and_then(|(_, rest)| rest.split_once(']'));
        let list = list.map_or("", |(list, _)| list);
        list.split(',').map(|name| name.trim().trim_matches('"')).filter(|name| !name.is_empty())
    }
}

/// Returns the number of brackets that the line leaves open.
fn balance(text: &str) -> i32 {
    let step = |char| match char {
        '[' | '{' => 1,
        ']' | '}' => -1,
        _ => 0,
    };
    text.chars().map(step).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_to_write_a_dependency_is_read() {
        let text = "\
[package]
name = \"a\" # here

[dependencies]
# a comment
one.workspace = true
two = { workspace = true, features = [\"x\", \"y\"] }
three = { workspace = true, features = [
  \"z\",
] }
[dependencies.four]
workspace = true
features = [\"w\"]
[dev-dependencies]
five = \"1\"
[target.'cfg(unix)'.dependencies]
six.workspace = true
[target.'cfg(unix)'.dependencies.seven]
version = \"1\"
[build-dependencies.eight]
version = \"1\"
[features]
nine = [
  \"dep:eight\", # workspace = true
]
";
        let manifest = Manifest::read(&SourceFile { path: "Cargo.toml".into(), text: text.into() });
        assert_eq!(manifest.name, "a");
        let seen: Vec<_> = manifest
            .dependencies
            .iter()
            .map(|one| {
                (
                    &*one.name,
                    one.line,
                    one.shipped,
                    one.is_from_workspace(),
                    one.features().collect::<Vec<_>>(),
                )
            })
            .collect();
        let expected = [
            ("one", 6, true, true, vec![]),
            ("two", 7, true, true, vec!["x", "y"]),
            ("three", 8, true, true, vec!["z"]),
            ("four", 11, true, true, vec!["w"]),
            ("five", 15, false, false, vec![]),
            ("six", 17, true, true, vec![]),
            ("seven", 18, true, false, vec![]),
            ("eight", 20, false, false, vec![]),
        ];
        assert_eq!(seen, expected);
    }
}
