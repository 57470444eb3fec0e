//! Lists of exceptions to a rule, which may only shrink: an exception without a use is a finding.

use super::Finding;

/// Place, such as a file or a crate, and the name or phrase that is allowed there.
pub(super) type Exception = (&'static str, &'static str);

/// Exceptions of one run of a rule, with their uses.
pub(super) struct Exceptions {
    entries: Vec<(Exception, bool)>,
    /// File that contains the list.
    path: &'static str,
}

impl Exceptions {
    pub(super) fn new(entries: &[Exception], path: &'static str) -> Self {
        Exceptions { entries: entries.iter().map(|entry| (*entry, false)).collect(), path }
    }

    /// Returns whether the name is allowed at the place, and records the use.
    pub(super) fn allow(&mut self, place: &str, name: &str) -> bool {
        let entry = self.entries.iter_mut().find(|(entry, _)| *entry == (place, name));
        entry.map(|(_, is_used)| *is_used = true).is_some()
    }

    /// Returns a finding for each exception without a use.
    pub(super) fn unused(self) -> impl Iterator<Item = Finding> {
        let unused = self.entries.into_iter().filter(|(_, is_used)| !is_used);
        unused.map(move |((place, name), _)| Finding {
            path: self.path.to_owned(),
            line: 1,
            advice: format!("the exception \"{name}\" for {place} is not used: remove it"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unused_exception_is_a_finding() {
        let mut exceptions = Exceptions::new(&[("a", "B"), ("a", "C")], "list.rs");
        assert!(exceptions.allow("a", "B"));
        assert!(!exceptions.allow("a", "D"));
        assert!(!exceptions.allow("b", "C"));
        let unused: Vec<_> = exceptions.unused().map(|finding| finding.to_string()).collect();
        assert_eq!(unused, ["list.rs:1: the exception \"C\" for a is not used: remove it"]);
    }
}
