//! As much of Rust's syntax as the rules need: tokens without comments and strings, code without its tests, and the
//! paths that a file names.

use std::iter::Peekable;

/// A token: an identifier, `::`, or a single other character.
pub(crate) type Token = String;

/// Splits source text. Comments vanish; strings, characters, lifetimes and numbers become one `"` each, since no rule
/// looks into them.
pub(crate) fn tokens(text: &str) -> Vec<Token> {
    let chars: Vec<char> = text.chars().collect();
    let is_ident = |c: char| c.is_alphanumeric() || c == '_';
    let at = |i: usize| chars.get(i).copied().unwrap_or('\0');
    let mut tokens = Vec::new();
    let mut i = 0;
    while i < chars.len() {
        let start = i;
        match chars[i] {
            '/' if at(i + 1) == '/' => i = line_end(&chars, i),
            '/' if at(i + 1) == '*' => i = comment_end(&chars, i),
            '"' => i = string_end(&chars, i),
            '\'' => {
                // A lifetime has no closing quote after its first character.
                let lifetime = is_ident(at(i + 1)) && at(i + 2) != '\'';
                i += 1;
                if lifetime {
                    i += chars[i..].iter().take_while(|&&c| is_ident(c)).count();
                } else {
                    i += if at(i) == '\\' { 2 } else { 1 };
                    i += chars[i..].iter().take_while(|&&c| c != '\'').count() + 1;
                }
            }
            ':' if at(i + 1) == ':' => {
                tokens.push("::".into());
                i += 2;
                continue;
            }
            c if is_ident(c) => {
                i += chars[i..].iter().take_while(|&&c| is_ident(c)).count();
                let word: String = chars[start..i].iter().collect();
                if let Some(end) = prefixed_string_end(&chars, i, &word) {
                    i = end;
                } else if !c.is_ascii_digit() {
                    tokens.push(word);
                    continue;
                }
            }
            c if c.is_whitespace() => {
                i += 1;
                continue;
            }
            c => {
                tokens.push(c.to_string());
                i += 1;
                continue;
            }
        }
        if chars[start] != '/' {
            tokens.push("\"".into());
        }
    }
    tokens
}

fn line_end(chars: &[char], start: usize) -> usize {
    start + chars[start..].iter().take_while(|&&c| c != '\n').count()
}

/// Comments nest.
fn comment_end(chars: &[char], start: usize) -> usize {
    let (mut i, mut depth) = (start, 0);
    while i < chars.len() {
        match (chars[i], chars.get(i + 1)) {
            ('/', Some('*')) => (i, depth) = (i + 2, depth + 1),
            ('*', Some('/')) => (i, depth) = (i + 2, depth - 1),
            _ => i += 1,
        }
        if depth == 0 {
            break;
        }
    }
    i
}

/// `start` is at the opening quote.
fn string_end(chars: &[char], start: usize) -> usize {
    let mut i = start + 1;
    while i < chars.len() && chars[i] != '"' {
        i += if chars[i] == '\\' { 2 } else { 1 };
    }
    i + 1
}

/// The end of a string whose prefix `word` ends at `i`: `b"..."`, `r#"..."#` and the like.
fn prefixed_string_end(chars: &[char], i: usize, word: &str) -> Option<usize> {
    if !matches!(word, "b" | "c" | "r" | "br" | "cr") {
        return None;
    }
    if !word.ends_with('r') {
        return (chars.get(i) == Some(&'"')).then(|| string_end(chars, i));
    }
    let hashes = chars[i..].iter().take_while(|&&c| c == '#').count();
    if chars.get(i + hashes) != Some(&'"') {
        return None;
    }
    let body = i + hashes + 1;
    let closes =
        |&end: &usize| chars[end] == '"' && chars[end + 1..].iter().take_while(|&&c| c == '#').count() >= hashes;
    Some((body..chars.len()).find(closes).map_or(chars.len(), |end| end + 1 + hashes))
}

/// Drops every item behind `#[cfg(test)]` (or `cfg(all(test, ...))`); gives the names of the modules dropped that lie in
/// files of their own.
pub(crate) fn without_tests(tokens: &[Token]) -> (Vec<Token>, Vec<String>) {
    let (mut kept, mut test_modules) = (Vec::new(), Vec::new());
    let mut i = 0;
    while i < tokens.len() {
        let attribute = attribute_end(tokens, i);
        match attribute {
            Some(end) if is_test_only(&tokens[i..end]) => {
                i = end;
                while let Some(end) = attribute_end(tokens, i) {
                    i = end;
                }
                let end = item_end(tokens, i);
                if let Some(at) = tokens[i..end].iter().position(|t| t == "mod")
                    && tokens[end - 1] == ";"
                {
                    test_modules.push(tokens[i + at + 1].clone());
                }
                i = end;
            }
            _ => {
                kept.push(tokens[i].clone());
                i += 1;
            }
        }
    }
    (kept, test_modules)
}

fn is_test_only(attribute: &[Token]) -> bool {
    let has = |word: &str| attribute.iter().any(|t| t == word);
    has("cfg") && has("test") && !has("not") && !has("any")
}

/// The end of the attribute `#[...]` that starts at `i`.
fn attribute_end(tokens: &[Token], i: usize) -> Option<usize> {
    let opens = tokens.get(i)? == "#" && tokens.get(i + 1)? == "[";
    opens.then(|| group_end(tokens, i + 1))
}

/// The end of an item: its `;`, or the end of its `{...}`.
fn item_end(tokens: &[Token], start: usize) -> usize {
    let mut i = start;
    while i < tokens.len() {
        match tokens[i].as_str() {
            ";" => return i + 1,
            "{" => return group_end(tokens, i),
            "(" | "[" => i = group_end(tokens, i),
            _ => i += 1,
        }
    }
    tokens.len()
}

/// The end of the bracketed group that opens at `start`.
fn group_end(tokens: &[Token], start: usize) -> usize {
    let mut depth = 0usize;
    for (i, token) in tokens.iter().enumerate().skip(start) {
        match token.as_str() {
            "{" | "(" | "[" => depth += 1,
            "}" | ")" | "]" => depth = depth.saturating_sub(1),
            _ => continue,
        }
        if depth == 0 {
            return i + 1;
        }
    }
    tokens.len()
}

/// Every path that the tokens name, `use` trees expanded, `self` and `super` resolved against `module` (the file's own
/// path below `crate`) and the modules inside the file. Paths of this crate begin with `crate`; all others with whatever
/// stands first.
pub(crate) fn paths(tokens: &[Token], module: &[&str]) -> Vec<Vec<String>> {
    let mut all = Vec::new();
    let mut found = Vec::new();
    let mut module = module.to_vec();
    // A flag for each open brace: it is a module's.
    let mut braces = Vec::new();
    let mut rest = tokens.iter().map(String::as_str).peekable();
    while let Some(token) = rest.next() {
        match token {
            "mod" => {
                if let Some(name) = rest.next()
                    && rest.next_if_eq(&"{").is_some()
                {
                    module.push(name);
                    braces.push(true);
                }
            }
            "{" => braces.push(false),
            "}" if braces.pop() == Some(true) => {
                module.pop();
            }
            _ => {}
        }
        // Elsewhere `use<'a>` lists what an `impl Trait` captures.
        if token == "use" && rest.peek() != Some(&"<") {
            use_tree(&mut rest, &[], &mut found);
        } else if is_path_start(token) {
            let mut path = vec![token.to_owned()];
            while rest.next_if_eq(&"::").is_some() {
                match rest.next_if(|next| is_path_start(next)) {
                    Some(next) => path.push(next.to_owned()),
                    None => break,
                }
            }
            if path.len() > 1 {
                found.push(path);
            }
        } else if token == "::" {
            // What follows a closing bracket belongs to a type: `<T as Trait>::Item`.
            rest.next_if(|next| is_path_start(next));
        }
        all.extend(found.drain(..).map(|path| resolve(path, &module)));
    }
    all
}

fn is_path_start(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// Reads one tree of a `use` declaration behind `prefix`.
fn use_tree<'a>(rest: &mut Peekable<impl Iterator<Item = &'a str>>, prefix: &[String], found: &mut Vec<Vec<String>>) {
    let mut path = prefix.to_vec();
    while let Some(token) = rest.next_if(|next| !matches!(*next, "," | "}" | ";")) {
        match token {
            "{" => {
                while rest.peek().is_some_and(|next| !matches!(*next, "}" | ";")) {
                    use_tree(rest, &path, found);
                    let _ = rest.next_if_eq(&",");
                }
                rest.next();
                return;
            }
            "::" => {}
            "as" => {
                rest.next();
            }
            "self" if !path.is_empty() => {}
            word => path.push(word.to_owned()),
        }
    }
    found.push(path);
}

fn resolve(path: Vec<String>, module: &[&str]) -> Vec<String> {
    let ups = path.iter().take_while(|segment| *segment == "super").count();
    let skip = match path.first().map(String::as_str) {
        Some("super") => ups,
        Some("self") => 1,
        _ => return path,
    };
    let kept = module.len().saturating_sub(ups);
    let own = module[..kept].iter().map(|s| (*s).to_owned());
    std::iter::once("crate".to_owned()).chain(own).chain(path.into_iter().skip(skip)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(text: &str) -> String {
        tokens(text).join(" ")
    }

    #[test]
    fn comments_strings_and_lifetimes_hide_nothing_else() {
        assert_eq!(joined("a /* x /* y */ z */ b // c\n d"), "a b d");
        assert_eq!(
            joined(r##"f("a\"b", r#"c " d"#, b"e", 'x', '\'', '\u{1f}', 1.5e3)"##),
            "f ( \" , \" , \" , \" , \" , \" , \" . \" )"
        );
        assert_eq!(joined("fn f<'a>(x: &'a str) -> &'static r::T"), "fn f < \" > ( x : & \" str ) - > & \" r :: T");
        assert_eq!(joined("r#type"), "r # type");
    }

    #[test]
    fn tests_are_dropped_and_nothing_behind_them() {
        let text = "a; #[cfg(test)] #[allow(x)] mod tests { fn f() { panic!() } } b; #[cfg(all(test, unix))] mod t; \
                    #[cfg(test)] use x::{y, z}; c; #[cfg(not(test))] fn d() {} #[cfg(test)] fn e(a: [u8; 2]) {} f";
        let (kept, modules) = without_tests(&tokens(text));
        assert_eq!(kept.join(" "), "a ; b ; ; c ; # [ cfg ( not ( test ) ) ] fn d ( ) { } f");
        assert_eq!(modules, ["t"]);
    }

    #[test]
    fn paths_are_expanded_and_resolved() {
        let text = "use std::fmt; use crate::{a::{self, b as c}, d}; use super::e::*; fn f() { super::super::g::h(); \
                    self::i(); Vec::<j::K>::new(); x::y!() } pub use l; fn g() -> impl Sized + use<'_> { m; n::o } \
                    mod p { use super::q; fn f() { if x { super::super::r::s() } } } use super::t;";
        let found: Vec<_> = paths(&tokens(text), &["m", "n"]).iter().map(|path| path.join("::")).collect();
        assert_eq!(
            found,
            [
                "std::fmt",
                "crate::a",
                "crate::a::b",
                "crate::d",
                "crate::m::e::*",
                "crate::g::h",
                "crate::m::n::i",
                "j::K",
                "x::y",
                "l",
                "n::o",
                "crate::m::n::q",
                "crate::m::r::s",
                "crate::m::t"
            ]
        );
    }
}
