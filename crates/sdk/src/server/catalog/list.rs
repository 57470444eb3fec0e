//! Ordered list of registered definitions: lookup by name, pagination, and a cache of the encoded list.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use linchpin_protocol::Revision;

use crate::server::DefinitionRef;
use crate::server::definitions::shared_state::{RequiredState, StateMap};

/// Definition in a list of the catalog, found by its key: a name or URI.
pub(crate) trait CatalogEntry {
    fn key(&self) -> &Arc<str>;
    fn definition(&self) -> DefinitionRef<'_>;

    /// Returns the types of shared state that the handler takes, and the state of the mounted server that it comes
    /// from.
    fn required_state(&self) -> (&[RequiredState], Option<&StateMap>) {
        (&[], None)
    }
}

pub(crate) struct CatalogList<T> {
    /// Items in order of registration, each with a permanent number that cursors refer to.
    items: Vec<(u64, Arc<T>)>,
    index: HashMap<Arc<str>, usize>,
    next: u64,
    /// Encoded list for each revision, created on first use.
    encoded: [OnceLock<Arc<[u8]>>; Revision::ALL.len()],
}

/// One page of a list of registered definitions, as sent to a client.
pub(crate) struct Page<'a, T> {
    pub(crate) items: Vec<&'a Arc<T>>,
    pub(crate) next_cursor: Option<String>,
}

impl<T: CatalogEntry> CatalogList<T> {
    /// Adds an item to the list of the catalog. Fails with its name if the name is already used.
    pub(crate) fn insert(&mut self, item: Arc<T>) -> Result<(), Arc<str>> {
        if self.index.contains_key(item.key()) {
            return Err(item.key().clone());
        }
        self.index.insert(item.key().clone(), self.items.len());
        self.next += 1;
        self.items.push((self.next, item));
        self.encoded = Default::default();
        Ok(())
    }

    /// Returns whether another list has the same definitions in the same order.
    pub(crate) fn has_same_definitions(&self, other: &Self) -> bool {
        self.items.len() == other.items.len()
            && self.iter().zip(other.iter()).all(|(one, other)| one.definition() == other.definition())
    }

    pub(crate) fn remove(&mut self, name: &str) -> bool {
        let Some(at) = self.index.remove(name) else { return false };
        self.items.remove(at);
        for position in self.index.values_mut() {
            *position -= usize::from(*position > at);
        }
        self.encoded = Default::default();
        true
    }

    pub(crate) fn find(&self, name: &str) -> Option<&Arc<T>> {
        self.index.get(name).map(|&at| &self.items[at].1)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<T>> {
        self.items.iter().map(|(_, item)| item)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.items.len()
    }

    /// Returns the page after `cursor` of the items that pass `visible`, or `None` if the cursor is invalid.
    pub(crate) fn page(
        &self,
        cursor: Option<&str>,
        size: usize,
        visible: impl Fn(&T) -> bool,
    ) -> Option<Page<'_, T>> {
        let after = match cursor {
            None => 0,
            Some(cursor) => cursor.parse().ok().filter(|&after| after <= self.next)?,
        };
        let mut rest = self.items.iter().filter(|(number, item)| *number > after && visible(item)).peekable();
        let mut items = Vec::new();
        let mut last = 0;
        while items.len() < size
            && let Some((number, item)) = rest.next()
        {
            items.push(item);
            last = *number;
        }
        Some(Page { items, next_cursor: rest.peek().map(|_| last.to_string()) })
    }

    /// Returns the complete list encoded for a revision, cached after the first call.
    pub(crate) fn encoded(
        &self,
        revision: Revision,
        encode: impl FnOnce(Vec<&Arc<T>>) -> Vec<u8>,
    ) -> &Arc<[u8]> {
        self.encoded[revision as usize].get_or_init(|| encode(self.iter().collect()).into())
    }
}

impl<T> Clone for CatalogList<T> {
    fn clone(&self) -> Self {
        CatalogList {
            items: self.items.clone(),
            index: self.index.clone(),
            next: self.next,
            encoded: self.encoded.clone(),
        }
    }
}

impl<T> Default for CatalogList<T> {
    fn default() -> Self {
        CatalogList { items: Vec::new(), index: HashMap::new(), next: 0, encoded: Default::default() }
    }
}

#[cfg(test)]
mod tests {
    use linchpin_protocol::model::Prompt;

    use super::*;

    struct Named(Arc<str>, Prompt);

    impl CatalogEntry for Named {
        fn key(&self) -> &Arc<str> {
            &self.0
        }

        fn definition(&self) -> DefinitionRef<'_> {
            DefinitionRef::Prompt(&self.1)
        }
    }

    fn names(page: &Page<'_, Named>) -> Vec<String> {
        page.items.iter().map(|item| item.0.to_string()).collect()
    }

    #[test]
    fn cursors_stay_good_while_the_list_changes() {
        let mut list = CatalogList::default();
        for name in ["a", "b", "c", "d"] {
            list.insert(Arc::new(Named(name.into(), Prompt::default()))).unwrap();
        }
        assert!(list.insert(Arc::new(Named("a".into(), Prompt::default()))).is_err());
        let first = list.page(None, 2, |_| true).unwrap();
        assert_eq!(names(&first), ["a", "b"]);
        let cursor = first.next_cursor.unwrap();
        assert!(list.remove("b") && list.remove("c") && !list.remove("c"));
        list.insert(Arc::new(Named("e".into(), Prompt::default()))).unwrap();
        let second = list.page(Some(&cursor), 2, |_| true).unwrap();
        assert_eq!((names(&second), second.next_cursor), (vec!["d".to_owned(), "e".to_owned()], None));
        assert_eq!(list.find("e").unwrap().0, "e".into());
        assert!(list.page(Some("made up"), 2, |_| true).is_none());
        assert!(list.page(Some("99"), 2, |_| true).is_none());
        assert_eq!(names(&list.page(None, 9, |item| &*item.0 != "a").unwrap()), ["d", "e"]);
    }
}
