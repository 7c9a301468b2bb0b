use super::*;

#[test]
fn sizes_are_written_with_units() {
    assert_eq!(parse::bytes("4GiB"), Ok(4 << 30));
    assert_eq!(parse::bytes("512 MB"), Ok(512_000_000));
    assert_eq!(parse::bytes("1_000"), Ok(1000));
    for wrong in ["", "-1", "4 GiBs", "GiB", "99999999 TiB"] {
        assert!(parse::bytes(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn unknown_keys_and_wrong_values_are_told_apart() {
    let mut options = Options::default();
    assert_eq!(options.set("host_cache", "1MiB"), Some(Ok(())));
    assert!(options.set("host_cash", "1MiB").is_none());
    let wrong = options.set("flush", "soon");
    let text = wrong.and_then(Result::err).map(|failure| failure.text);
    assert_eq!(text.as_deref(), Some("flush = soon: write eager or needed"));
}

/// An example of each kind of value.
fn example(option: &OptionInfo) -> &'static str {
    match option.kind {
        Kind::Bytes => "1MiB",
        Kind::Number => "2",
        Kind::Seconds => "1.5",
        Kind::Flag => "true",
        Kind::Path | Kind::Paths => "/tmp",
        Kind::Name(names) if option.key == "peers" => names,
        Kind::Name(names) => names.split(", ").next().unwrap_or_default(),
    }
}

#[test]
fn every_option_of_the_table_can_be_set() {
    for option in OPTIONS {
        let set = Options::default().set(option.key, example(option));
        assert_eq!(set, Some(Ok(())), "{}", option.key);
        if let Kind::Name(names) = option.kind
            && option.key != "peers"
        {
            for name in names.split(", ") {
                let set = Options::default().set(option.key, name);
                assert_eq!(set, Some(Ok(())), "{} = {name}", option.key);
            }
        }
    }
}

/// Options in the book are those of the table, in its words.
#[test]
fn the_book_has_the_table() {
    let book = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/src/options.md");
    let Ok(book) = std::fs::read_to_string(book) else {
        // A package of the crate alone has no book.
        return;
    };
    let mut table = String::from("| option | value | chooses |\n|---|---|---|\n");
    for option in OPTIONS {
        let kind = match option.kind {
            Kind::Bytes => "bytes".to_owned(),
            Kind::Number => "number".to_owned(),
            Kind::Seconds => "seconds".to_owned(),
            Kind::Flag => "`true`, `false`".to_owned(),
            Kind::Path => "directory".to_owned(),
            Kind::Paths => "directories".to_owned(),
            Kind::Name(names) if option.key == "peers" => format!("`{names}`"),
            Kind::Name(names) => format!("`{}`", names.replace(", ", "`, `")),
        };
        let doors = match option.doors {
            Doors::Alike => String::new(),
            Doors::Also(how) => format!(" ({how})"),
        };
        let (key, help) = (option.key, option.help);
        table.push_str(&format!("| `{key}` | {kind} | {help}{doors} |\n"));
    }
    assert!(
        book.contains(&table),
        "docs/src/options.md needs this table:\n{table}"
    );
}
