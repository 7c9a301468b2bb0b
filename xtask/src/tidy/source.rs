//! Rust and CUDA sources without their comments and literals, so that a search finds code alone.

/// `source` with comments, strings and characters blanked out. Lines stay where they are.
pub(crate) fn code(source: &str) -> String {
    let mut code = String::with_capacity(source.len());
    let mut rest = source;
    let mut before = ' ';
    while let Some(next) = rest.chars().next() {
        let skipped = if is_word(before) && next != '"' {
            None
        } else {
            literal(rest)
        };
        let skipped = skipped.or_else(|| comment(rest));
        let (taken, tail) = rest.split_at(skipped.unwrap_or(next.len_utf8()));
        match skipped {
            None => code.push(next),
            Some(_) => code.extend(taken.chars().map(|c| if c == '\n' { '\n' } else { ' ' })),
        }
        before = taken.chars().next_back().unwrap_or(' ');
        rest = tail;
    }
    code
}

/// The lines, counted from 1, of `code` in which `word` stands alone, followed by `after`.
pub(crate) fn lines_with(code: &str, word: &str, after: &str) -> Vec<usize> {
    let stands_alone = |line: &str| {
        line.match_indices(word).any(|(at, _)| {
            let tail = line.get(at + word.len()..).unwrap_or_default();
            let head = line.get(..at).unwrap_or_default();
            !head.ends_with(is_word) && !tail.starts_with(is_word) && tail.starts_with(after)
        })
    };
    let lines = code.lines().zip(1..);
    lines
        .filter(|(line, _)| stands_alone(line))
        .map(|(_, number)| number)
        .collect()
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The length of the comment that `text` starts with.
fn comment(text: &str) -> Option<usize> {
    if text.starts_with("//") {
        return Some(text.find('\n').unwrap_or(text.len()));
    }
    if !text.starts_with("/*") {
        return None;
    }
    let mut depth = 0;
    let mut at = 0;
    while let Some(tail) = text.get(at..).filter(|tail| !tail.is_empty()) {
        let step = if tail.starts_with("/*") {
            depth += 1;
            2
        } else if tail.starts_with("*/") {
            depth -= 1;
            2
        } else {
            tail.chars().next().map_or(1, char::len_utf8)
        };
        at += step;
        if depth == 0 {
            return Some(at);
        }
    }
    Some(text.len())
}

/// The length of the string or character that `text` starts with.
fn literal(text: &str) -> Option<usize> {
    let body = text
        .strip_prefix('b')
        .or_else(|| text.strip_prefix('c'))
        .unwrap_or(text);
    let prefix = text.len() - body.len();
    let raw = body.strip_prefix('r').and_then(|raw| {
        let hashes = raw.len() - raw.trim_start_matches('#').len();
        raw.get(hashes..)?.starts_with('"').then_some(hashes)
    });
    if let Some(hashes) = raw {
        let start = prefix + 1 + hashes + 1;
        let end = format!("\"{}", "#".repeat(hashes));
        let length = text
            .get(start..)?
            .find(&end)
            .map_or(text.len(), |at| start + at + end.len());
        return Some(length);
    }
    if body.starts_with('"') {
        return Some(prefix + quoted(body, '"'));
    }
    // A lifetime has no closing quote after one character.
    let inner = body.strip_prefix('\'')?;
    let first = inner.chars().next()?;
    let closes = first == '\\' || inner.get(first.len_utf8()..)?.starts_with('\'');
    closes.then(|| prefix + quoted(body, '\''))
}

/// The length of `text` up to the first `quote` after its own that no backslash stands before.
fn quoted(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if c == quote => return at + c.len_utf8(),
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_code_is_left() {
        let source = "let a = \"unsafe \\\" unsafe\"; // unsafe\n/* unsafe /* */ unsafe */ b\n\
                      r#\"unsafe \" unsafe\"# b\"unsafe\" '\"' c '\\'' d\n";
        let code = code(source);
        assert!(!code.contains("unsafe"), "{code}");
        assert_eq!(code.split_whitespace().collect::<String>(), "leta=;bcd");
        assert_eq!(code.lines().count(), source.lines().count());
    }

    #[test]
    fn a_lifetime_is_no_literal() {
        let source = "fn a<'a>(x: &'a str) -> &'a str { unsafe { x } }";
        assert_eq!(code(source), source);
    }

    #[test]
    fn words_stand_alone() {
        let source = "#![forbid(unsafe_code)]\nunsafe { a }\nnot_unsafe\ntodo!()\ntodo";
        assert_eq!(lines_with(source, "unsafe", ""), [2]);
        assert_eq!(lines_with(source, "todo", "!"), [4]);
    }
}
