//! The report as one file of HTML.
//!
//! It asks for nothing: no font, no script, no image of another file, and its policy (`Content-Security-Policy`) forbids all but
//! what is in it. All of it can be read without the script, which only sorts, filters and copies. maud escapes every text that is
//! put into it, and [`shown::name`] makes marks visible that would change the direction of what follows.
//!
//! Each amount of bytes is a `data` element whose value is the number in the JSON.

mod bytes;
mod codecs;
mod findings;
mod others;
mod proposals;
mod row;
mod scatter;
mod sizes;
mod speed;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use maud::{DOCTYPE, Markup, PreEscaped, html as markup};
use sha2::{Digest, Sha256};

use crate::finding::{Object, Report};
use crate::report::{Picture, shown};
use bytes::headline;

const STYLE: &str = include_str!("html/page.css");
const SCRIPT: &str = include_str!("html/page.js");
/// Three bars, the last one shorter.
const ICON: &str = "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E\
    %3Cg fill='%231f6fb2'%3E%3Crect x='1' y='2' width='14' height='3' rx='1'/%3E\
    %3Crect x='1' y='7' width='10' height='3' rx='1'/%3E%3Crect x='1' y='12' width='5' height='3' rx='1'/%3E%3C/g%3E%3C/svg%3E";

/// The report as a page.
pub fn html(report: &Report) -> String {
    page(report, None)
}

/// The report as a page that also shows what every system of pgshrink saved.
pub fn html_with_picture(report: &Report, picture: &Picture) -> String {
    page(report, Some(picture))
}

/// A part of the page.
struct Section {
    /// What links lead to.
    id: &'static str,
    title: &'static str,
    content: Markup,
}

fn page(report: &Report, picture: Option<&Picture>) -> String {
    let sections: Vec<Section> = [
        Some(Section { id: "saved", title: "What can be saved", content: headline(report) }),
        picture.and_then(others::systems),
        sizes::sizes(report),
        sizes::anatomy(report),
        findings::findings(report),
        proposals::proposals(report),
        row::rows(report),
        speed::speed(report),
        codecs::pages(report),
        codecs::wire(report),
        codecs::documents(report),
        others::backup(report),
        others::egress(report),
        others::unseen(report),
    ]
    .into_iter()
    .flatten()
    .collect();
    let title = format!("{}: what can be made smaller", shown::name(&report.database));
    let document = markup! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(policy());
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="referrer" content="no-referrer";
                meta name="generator" content="pgshrink advise";
                title { (title) }
                link rel="icon" href=(ICON);
                style { (PreEscaped(STYLE)) }
            }
            body {
                a.skip href="#main" { "To the report" }
                (header(report, &sections))
                main id="main" {
                    @for section in &sections {
                        section id=(section.id) aria-labelledby={ (section.id) "-title" } {
                            h2 id={ (section.id) "-title" } { (section.title) }
                            (section.content)
                        }
                    }
                }
                footer {
                    p {
                        "Made by pgshrink advise from a snapshot of the database; nothing was changed. 1 kB is 1024 bytes."
                    }
                }
                script { (PreEscaped(SCRIPT)) }
            }
        }
    };
    document.into_string()
}

fn header(report: &Report, sections: &[Section]) -> Markup {
    markup! {
        header {
            p.product { "pgshrink advise" }
            h1 { "Database " (named(&report.database)) }
            p.quiet {
                "PostgreSQL " (shown::version(report.server_version)) ", as of " (shown::time(report.taken_s))
            }
            nav aria-label="Sections" {
                ul {
                    @for section in sections { li { a href={ "#" (section.id) } { (section.title) } } }
                }
            }
        }
    }
}

/// Nothing is loaded, and no script runs but the page's own.
fn policy() -> String {
    let script = STANDARD.encode(Sha256::digest(SCRIPT.as_bytes()));
    format!(
        "default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{script}'; img-src data:; \
         base-uri 'none'; form-action 'none'"
    )
}

/// Words of the database, kept apart from the direction of ours.
fn named(text: &str) -> Markup {
    markup! { bdi { (shown::name(text)) } }
}

/// `public.orders.status`, `orders_pkey of public.orders`, or `TOAST of public.orders`; each name apart, or one that is written from right to left moves others.
fn object(object: &Object) -> Markup {
    let is_index = object.kind == "index";
    markup! {
        span.object {
            @if let (Some(part), true) = (&object.part, is_index) { (named(part)) " of " }
            @if object.kind == "toast" { "TOAST of " }
            @if !object.schema.is_empty() { (named(&object.schema)) "." }
            (named(&object.name))
            @if let (Some(part), false) = (&object.part, is_index) { "." (named(part)) }
        }
    }
}

/// Of what is drawn, the rest in words: `and 12 more`.
fn more(whole: usize, most: usize, where_else: &str) -> Markup {
    let left = whole.saturating_sub(most);
    markup! {
        @if left > 0 { p.quiet { "… and " (shown::number_text(left as u64)) " more: " (where_else) } }
    }
}

/// A number of percent for a style sheet.
fn percent(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "0".to_owned();
    }
    format!("{:.2}", (100.0 * part as f64 / whole as f64).min(100.0))
}

/// A table in a box of its own that scrolls where it is too wide, by keyboard too.
fn scrolling(label: &str, table: &Markup) -> Markup {
    markup! { div.scroll tabindex="0" role="region" aria-label=(label) { (table) } }
}
