//! The few requests of roff's `man` macros that pages need.

/// Text of a page, with its requests.
#[derive(Default)]
pub(super) struct Roff(String);

impl Roff {
    pub(super) fn title(&mut self, name: &str, section: u8) {
        let version = env!("CARGO_PKG_VERSION");
        self.0 += &format!(".TH {name} {section} \"\" \"pgshrink {version}\" \"pgshrink manual\"\n");
    }

    pub(super) fn section(&mut self, heading: &str) {
        self.0 += &format!(".SH \"{}\"\n", escaped(heading));
    }

    pub(super) fn subsection(&mut self, heading: &str) {
        self.0 += &format!(".SS \"{}\"\n", escaped(heading));
    }

    pub(super) fn paragraph(&mut self, text: &str) {
        self.0 += &format!(".PP\n{}\n", line(text));
    }

    /// Terms, each on a line of its own, and what they mean.
    pub(super) fn item(&mut self, terms: &[&str], text: &str) {
        for (index, term) in terms.iter().enumerate() {
            self.0 += &format!(".{}\n\\fB{}\\fR\n", if index == 0 { "TP" } else { "TQ" }, escaped(term));
        }
        self.0 += &format!("{}\n", line(text));
    }

    /// How a program is called.
    pub(super) fn usage(&mut self, program: &str, rest: &str) {
        self.0 += &format!("\\fB{}\\fR {}\n", escaped(program), escaped(rest));
    }

    /// Lines as they stand: never filled, never broken.
    pub(super) fn verbatim(&mut self, text: &str) {
        self.0 += ".PP\n.nf\n";
        for text in text.lines() {
            self.0 += &format!("{}\n", line(text));
        }
        self.0 += ".fi\n";
    }

    /// `name(1), name(5)`.
    pub(super) fn see_also(&mut self, pages: &[(String, u8)]) {
        self.section("SEE ALSO");
        let pages: Vec<_> =
            pages.iter().map(|(name, section)| format!("\\fB{}\\fR({section})", escaped(name))).collect();
        self.0 += &format!("{}\n", pages.join(",\n"));
    }

    pub(super) fn into_text(self) -> String {
        self.0
    }
}

/// A line of text that is no request, whatever it starts with.
fn line(text: &str) -> String {
    let text = escaped(text);
    if text.starts_with(['.', '\'']) { format!("\\&{text}") } else { text }
}

/// Characters that groff would print as others: a command that is copied from the page must still work.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for c in text.chars() {
        match c {
            '\\' => escaped += "\\e",
            '-' => escaped += "\\-",
            '\'' => escaped += "\\(aq",
            '"' => escaped += "\\(dq",
            '`' => escaped += "\\(ga",
            '^' => escaped += "\\(ha",
            '~' => escaped += "\\(ti",
            c => escaped.push(c),
        }
    }
    escaped
}
