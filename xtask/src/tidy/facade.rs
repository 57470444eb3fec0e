//! Rule: `Hub` is a facade with few methods of its own. Operations belong to its components.

use super::{Finding, SourceFile, rust};

const MAX_HUB_METHODS: usize = 25;

pub(super) fn the_hub_has_few_methods(files: &[SourceFile]) -> Vec<Finding> {
    let hub = |file: &&SourceFile| file.path.starts_with("crates/hub-core/src/");
    let methods = rust(files)
        .filter(hub)
        .flat_map(|file| hub_methods(file).into_iter().map(move |line| (file, line)))
        .collect::<Vec<_>>();
    let count = methods.len();
    let advice = format!(
        "`Hub` has {count} public methods, at most {MAX_HUB_METHODS} are allowed: move operations into a component"
    );
    methods.get(MAX_HUB_METHODS).map(|(file, line)| file.finding(*line, advice)).into_iter().collect()
}

/// Returns the lines of the public methods in the `impl Hub` blocks of a file.
fn hub_methods(file: &SourceFile) -> Vec<usize> {
    let (mut is_inside, mut found) = (false, Vec::new());
    for (number, line) in file.lines_before_tests() {
        match line {
            "impl Hub {" => is_inside = true,
            "}" => is_inside = false,
            _ if is_inside
                && ["    pub fn ", "    pub async fn "].iter().any(|start| line.starts_with(start)) =>
            {
                found.push(number);
            }
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::tests::finding_locations;
    use super::*;

    #[test]
    fn methods_beyond_the_limit_are_found_in_all_files_together() {
        let methods = |count: usize| {
            let public = "    pub fn a(&self) {}\n".repeat(count);
            format!("impl Hub {{\n{public}    fn private(&self) {{}}\n}}\n\nimpl Other {{\n{public}}}\n")
        };
        let (most, one) = (methods(MAX_HUB_METHODS), methods(1));
        let first = ("crates/hub-core/src/hub/mod.rs", &*most);
        assert_eq!(finding_locations(the_hub_has_few_methods, &[first]), [""; 0]);
        let second = ("crates/hub-core/src/hub/restore.rs", &*one);
        assert_eq!(
            finding_locations(the_hub_has_few_methods, &[first, second]),
            ["crates/hub-core/src/hub/restore.rs:2"]
        );
    }
}
