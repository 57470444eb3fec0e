//! Snapshots derived from stored documents. A change of any cached document drops them.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex};

use crate::lock::lock;
use crate::store::Generation;

/// Maximum number of snapshots of one kind.
const MAX_SNAPSHOTS: usize = 10_000;

/// Snapshots of one kind, all of the same generation of the documents.
pub(in crate::hub) struct Snapshots<K, V> {
    generation: Generation,
    built: Mutex<(u64, HashMap<K, Arc<V>>)>,
}

impl<K: Eq + Hash, V> Snapshots<K, V> {
    pub(in crate::hub) fn new(generation: Generation) -> Self {
        Snapshots { generation, built: Mutex::new((0, HashMap::new())) }
    }

    /// Returns the generation of the documents that are read from now on.
    pub(in crate::hub) fn generation(&self) -> u64 {
        self.generation.get()
    }

    /// Returns the snapshot, unless a document has changed since it was built.
    pub(in crate::hub) fn get(&self, key: &K) -> Option<Arc<V>> {
        let (generation, entries) = &*lock(&self.built);
        entries.get(key).filter(|_| *generation == self.generation()).cloned()
    }

    /// Stores a snapshot of documents that were read in this generation.
    pub(in crate::hub) fn insert(&self, generation: u64, key: K, value: Arc<V>) {
        let (built, entries) = &mut *lock(&self.built);
        if *built != generation || entries.len() >= MAX_SNAPSHOTS {
            entries.clear();
            *built = generation;
        }
        entries.insert(key, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_of_a_document_drops_what_was_built_before_it() {
        let documents = Generation::default();
        let snapshots = Snapshots::new(documents.clone());
        snapshots.insert(snapshots.generation(), 1, Arc::new("one"));
        assert_eq!(snapshots.get(&1).as_deref(), Some(&"one"));
        let before = snapshots.generation();
        documents.advance();
        assert_eq!(snapshots.get(&1), None);
        snapshots.insert(before, 2, Arc::new("read before the change"));
        assert_eq!(snapshots.get(&2), None);
        snapshots.insert(snapshots.generation(), 2, Arc::new("two"));
        assert_eq!(snapshots.get(&2).as_deref(), Some(&"two"));
    }
}
