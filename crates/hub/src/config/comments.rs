//! Removal of a server from the text of the configuration file, with the comments directly above it. Comments that an
//! empty line separates from the server belong to the rest of the file and are moved to the next table.

use toml_edit::{Decor, DocumentMut, Item, Table};

/// Removes a server from the configuration document. Returns `None` if the file has no such server.
pub(super) fn remove(document: &mut DocumentMut, slug: &str) -> Option<()> {
    let position = document.get("servers").and_then(Item::as_table).and_then(Table::position);
    let servers = document.get_mut("servers")?.as_table_like_mut()?;
    let next = servers.iter().map(|(name, _)| name.to_owned()).skip_while(|name| name != slug).nth(1);
    let comments_above = servers.key(slug).map(|key| detached_comments(key.leaf_decor())).unwrap_or_default();
    let removed = servers.remove(slug)?;
    if removed.is_value() {
        match next.and_then(|next| servers.key_mut(&next)) {
            Some(mut next) => prepend(next.leaf_decor_mut(), &comments_above),
            None => insert_before_next_table(document, position, &comments_above),
        }
    }
    let mut tables = Vec::new();
    collect_tables(removed.as_table(), &mut tables);
    // Last table first, because each text is inserted before the existing one.
    tables.sort_by_key(|table| std::cmp::Reverse(table.position()));
    for table in tables {
        insert_before_next_table(document, table.position(), &detached_comments(table.decor()));
    }
    Some(())
}

/// Collects a TOML table and its subtables that have their own heading.
fn collect_tables<'a>(table: Option<&'a Table>, tables: &mut Vec<&'a Table>) {
    let Some(table) = table else { return };
    tables.extend(table.position().map(|_| table));
    for (_, item) in table {
        collect_tables(item.as_table(), tables);
    }
}

/// Returns the comments above an item up to the last empty line, which do not belong to the item.
fn detached_comments(decor: &Decor) -> String {
    let comments_above = decor.prefix().and_then(|prefix| prefix.as_str()).unwrap_or_default();
    let lines: Vec<_> = comments_above.split_inclusive('\n').collect();
    let last = lines.iter().rposition(|line| line.ends_with('\n') && line.trim().is_empty());
    let detached = lines[..last.unwrap_or_default()].concat();
    if detached.trim().is_empty() { String::new() } else { detached }
}

/// Inserts a text above the first table after this position, or at the end of the file.
fn insert_before_next_table(document: &mut DocumentMut, position: Option<isize>, text: &str) {
    let mut tables = Vec::new();
    collect_tables(Some(document.as_table()), &mut tables);
    let next = tables.iter().filter_map(|table| table.position()).filter(|next| Some(*next) > position).min();
    if let Some(table) = next.and_then(|next| table_at(document.as_table_mut(), next)) {
        return prepend(table.decor_mut(), text);
    }
    let end = document.trailing().as_str().unwrap_or_default();
    let end = if end.is_empty() { text.to_owned() } else { join_with_blank_line(text, end) };
    document.set_trailing(end);
}

/// Finds the TOML table with this position in the file.
fn table_at(table: &mut Table, position: isize) -> Option<&mut Table> {
    if table.position() == Some(position) {
        return Some(table);
    }
    table.iter_mut().filter_map(|(_, item)| item.as_table_mut()).find_map(|table| table_at(table, position))
}

fn prepend(decor: &mut Decor, text: &str) {
    let before = decor.prefix().and_then(|prefix| prefix.as_str()).unwrap_or_default();
    decor.set_prefix(join_with_blank_line(text, before));
}

/// Joins two texts with an empty line between them.
fn join_with_blank_line(text: &str, rest: &str) -> String {
    let is_separate = text.is_empty() || rest.trim_start_matches([' ', '\t', '\r']).starts_with('\n');
    format!("{text}{}{rest}", if is_separate { "" } else { "\n" })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remove_server(text: &str, slug: &str) -> String {
        let mut document: DocumentMut = text.parse().unwrap();
        remove(&mut document, slug).unwrap();
        document.to_string()
    }

    const TEXT: &str = "# Ours.\n\n# The files.\n[servers.files]\ncommand = \"x\" # so\n\n# Of the files, too.\n\n# Elsewhere.\n\
                        [servers.far]\nurl = \"https://a.example\"\n[servers.far.headers]\na = \"b\"\n\n# The end.\n";

    #[test]
    fn only_comments_right_above_go_with_a_server() {
        let files = "# Ours.\n\n# Of the files, too.\n\n# Elsewhere.\n[servers.far]\nurl = \"https://a.example\"\n\
                     [servers.far.headers]\na = \"b\"\n\n# The end.\n";
        assert_eq!(remove_server(TEXT, "files"), files);
        let far = "# Ours.\n\n# The files.\n[servers.files]\ncommand = \"x\" # so\n\n# Of the files, too.\n\n# The end.\n";
        assert_eq!(remove_server(TEXT, "far"), far);
        assert_eq!(
            remove_server(&remove_server(TEXT, "far"), "files"),
            "# Ours.\n\n# Of the files, too.\n\n# The end.\n"
        );
        assert!(remove(&mut TEXT.parse().unwrap(), "other").is_none());
    }

    #[test]
    fn what_stays_does_not_become_a_comment_of_what_comes_next() {
        let text = "# Ours.\n\n[servers.a]\ncommand = \"x\"\n[servers.b]\ncommand = \"y\"\n";
        assert_eq!(remove_server(text, "a"), "# Ours.\n\n[servers.b]\ncommand = \"y\"\n");
        assert_eq!(remove_server(&remove_server(text, "a"), "b"), "# Ours.\n");
        let text = "# Ours.\n\n[servers.a]\ncommand = \"x\"\n\n[history]\ndays = 1\n\n# Its heads.\n\n[servers.a.env]\nA = \"b\"\n";
        assert_eq!(remove_server(text, "a"), "# Ours.\n\n[history]\ndays = 1\n\n# Its heads.\n");
    }

    #[test]
    fn servers_on_one_line_are_removed_so_too() {
        let text = "[servers]\n# Ours.\n\n# One.\na = { command = \"x\" }\n# Two.\nb = { command = \"y\" }\n\n[history]\ndays = 1\n";
        let one = "[servers]\n# Ours.\n\n# Two.\nb = { command = \"y\" }\n\n[history]\ndays = 1\n";
        assert_eq!(remove_server(text, "a"), one);
        assert_eq!(remove_server(one, "b"), "[servers]\n# Ours.\n\n[history]\ndays = 1\n");
        assert_eq!(remove_server("servers = { a = { command = \"x\" } }\n", "a"), "servers = {}\n");
    }
}
