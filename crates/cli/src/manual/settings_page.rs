//! Pages of section 5, made from commented sample files.
//!
//! Of a sample file, `# text` is text and `#name = value` is a setting that is commented out. The comment at the top is the page's
//! description. A comment that stands directly above settings, or above a table, is about them.

use super::Sample;
use super::roff::Roff;

/// What a sample file says, in its order.
#[derive(Debug, PartialEq)]
enum Part {
    Table { header: String, text: String },
    Settings { lines: Vec<String>, text: String },
}

pub(super) fn page(sample: &Sample) -> String {
    let (description, parts) = parsed(sample.text);
    let name = format!("pgshrink-{}", sample.file);
    let path = format!("/etc/pgshrink/{}", sample.file);
    let mut page = Roff::default();
    page.title(&name, 5);
    page.section("NAME");
    page.paragraph(&format!("{name} - {}", sample.about));
    page.section("SYNOPSIS");
    page.paragraph(&path);
    page.section("DESCRIPTION");
    page.paragraph("The file is TOML.");
    description.iter().for_each(|text| page.paragraph(text));
    page.section("SETTINGS");
    for part in &parts {
        match part {
            Part::Table { header, text } => {
                page.subsection(header);
                page.paragraph(text);
            }
            Part::Settings { lines, text } => {
                page.item(&lines.iter().map(String::as_str).collect::<Vec<_>>(), text);
            }
        }
    }
    page.section("FILES");
    page.item(&[&path], "Where the systemd unit looks. Commands read it only if --config names it.");
    page.item(
        &[&format!("/usr/share/doc/pgshrink/examples/{}", sample.file)],
        "The sample that this page is made from. make install puts it below its PREFIX.",
    );
    page.see_also(&sample.commands.iter().map(|name| ((*name).to_owned(), 1)).collect::<Vec<_>>());
    page.into_text()
}

/// The paragraphs at the top, and everything below.
fn parsed(text: &str) -> (Vec<String>, Vec<Part>) {
    let mut blocks = text.split("\n\n").map(|block| block.lines().collect::<Vec<_>>());
    let description = blocks.next().unwrap_or_default();
    let description = description.split(|line| *line == "#").map(prose).collect();
    (description, blocks.filter(|block| !block.is_empty()).map(|block| part(&block)).collect())
}

fn part(block: &[&str]) -> Part {
    let of_text = block.iter().take_while(|line| line.starts_with("# ")).count();
    let (text, lines) = block.split_at(of_text);
    let lines: Vec<_> = lines.iter().map(|line| line.trim_start_matches('#').to_owned()).collect();
    match lines.first() {
        Some(line) if line.starts_with('[') => Part::Table { header: line.clone(), text: prose(text) },
        _ => Part::Settings { lines, text: prose(text) },
    }
}

/// Comment lines as one paragraph.
fn prose(lines: &[&str]) -> String {
    lines.iter().map(|line| line.trim_start_matches('#').trim()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::super::SAMPLES;
    use super::*;

    #[test]
    fn a_sample_is_read_as_it_is_meant() {
        let (description, parts) =
            parsed("# One.\n#\n# Two\n# lines.\n\n# A.\n#a = 1\nb = 2\n\n# T.\n#[t]\n");
        assert_eq!(description, ["One.", "Two lines."]);
        let settings = Part::Settings { lines: vec!["a = 1".into(), "b = 2".into()], text: "A.".into() };
        assert_eq!(parts, [settings, Part::Table { header: "[t]".into(), text: "T.".into() }]);
    }

    #[test]
    fn everything_in_the_samples_is_explained() {
        for sample in &SAMPLES {
            let (description, parts) = parsed(sample.text);
            assert!(!description.is_empty() && parts.len() > 10, "{}", sample.file);
            for part in &parts {
                let (Part::Table { text, .. } | Part::Settings { text, .. }) = part;
                assert!(
                    text.ends_with(|c: char| c == '.' || c.is_alphanumeric()) && text.len() > 10,
                    "{}: {part:?}",
                    sample.file
                );
                if let Part::Settings { lines, .. } = part {
                    assert!(!lines.is_empty() && lines.iter().all(|line| line.contains(" = ")), "{part:?}");
                }
            }
        }
    }
}
