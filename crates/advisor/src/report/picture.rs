//! One picture of every system: bytes before and after.

use maud::{Markup, PreEscaped, html};
use serde::{Deserialize, Serialize};

use crate::report::shown;

/// Bytes before and after, for each system. `make demo` writes it as JSON, and the README's picture is made from that.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Picture {
    /// In the order in which they are drawn.
    pub systems: Vec<SystemBytes>,
}

/// One system: what it was given, and what it made of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SystemBytes {
    /// `wire`, `zson`, `cfs`, `backup`, `advisor`.
    pub name: String,
    /// Bytes without it.
    pub before: u64,
    /// Bytes with it.
    pub after: u64,
    /// Of what, in a few words: `COPY out, a base backup and pgbench`.
    pub note: String,
}

const WIDTH: u32 = 860;
/// Where bars begin, and how long the longest may be.
const BAR_X: u32 = 250;
const BAR_WIDTH: f64 = 420.0;
const ROW_HEIGHT: u32 = 62;
const TOP: u32 = 44;

/// The picture as a file of SVG that needs nothing else, on a light or a dark background.
///
/// Each system has a scale of its own: its bar before is as long as every other's. Colours are attributes, which a style sheet changes where dark is
/// preferred: a renderer that drops style sheets shows the light picture, on a card of its own.
pub fn picture_svg(picture: &Picture) -> String {
    let rows = u32::try_from(picture.systems.len()).unwrap_or(u32::MAX).min(50);
    let height = TOP + rows * ROW_HEIGHT + 16;
    let image = html! {
        svg xmlns="http://www.w3.org/2000/svg" viewBox={ "0 0 " (WIDTH) " " (height) } width=(WIDTH) height=(height)
            role="img" aria-labelledby="title description" font-family="system-ui, -apple-system, 'Segoe UI', sans-serif" {
            title id="title" { "Bytes before and after, for each system of pgshrink" }
            desc id="description" { (description(picture)) }
            style { (PreEscaped(STYLE)) }
            rect class="card" x="0.5" y="0.5" width=(WIDTH - 1) height=(height - 1) rx="12" fill="#ffffff" stroke="#d5dbe3" {}
            g font-size="13" {
                rect class="before" x="24" y="18" width="12" height="12" rx="2" fill="#c3cedb" {}
                text class="quiet" x="42" y="28.5" fill="#4d5a69" { "before" }
                rect class="after" x="104" y="18" width="12" height="12" rx="2" fill="#1f6fb2" {}
                text class="quiet" x="122" y="28.5" fill="#4d5a69" { "after" }
            }
            @for (index, system) in picture.systems.iter().take(50).enumerate() {
                (row(system, TOP + u32::try_from(index).unwrap_or(0) * ROW_HEIGHT))
            }
        }
    };
    format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n{}\n", image.into_string())
}

fn row(system: &SystemBytes, y: u32) -> Markup {
    let longest = system.before.max(system.after).max(1) as f64;
    let length = |bytes: u64| {
        let length = BAR_WIDTH * bytes as f64 / longest;
        // Something that is there is seen.
        format!("{:.1}", if bytes > 0 { length.max(2.0) } else { 0.0 })
    };
    html! {
        g transform={ "translate(0 " (y) ")" } {
            text class="name" x="24" y="24" font-size="17" font-weight="650" fill="#17202b" {
                (cut(&system.name, 22))
            }
            text class="quiet" x="24" y="43" font-size="12" fill="#4d5a69" { (cut(&system.note, 36)) }
            rect class="before" x=(BAR_X) y="8" width=(length(system.before)) height="17" rx="3" fill="#c3cedb" {}
            rect class="after" x=(BAR_X) y="28" width=(length(system.after)) height="17" rx="3" fill="#1f6fb2" {}
            g font-size="13" {
                text class="quiet" x=(beside(&length(system.before))) y="21" fill="#4d5a69" {
                    (shown::size(system.before))
                }
                text class="name" x=(beside(&length(system.after))) y="41" font-weight="650" fill="#17202b" {
                    (shown::size(system.after))
                }
            }
            text class="name" x=(WIDTH - 24) y="33" text-anchor="end" font-size="20" font-weight="650" fill="#17202b" {
                (shown::ratio(system.before, system.after))
            }
        }
    }
}

fn beside(length: &str) -> String {
    let length: f64 = length.parse().unwrap_or(0.0);
    format!("{:.1}", f64::from(BAR_X) + length + 8.0)
}

/// As many characters as there is room for.
fn cut(text: &str, most: usize) -> String {
    let whole = shown::name(text);
    if whole.chars().count() <= most {
        return whole;
    }
    let mut short: String = whole.chars().take(most.saturating_sub(1)).collect();
    short.push('…');
    short
}

/// For who does not see it.
pub(super) fn description(picture: &Picture) -> String {
    let sentences = picture.systems.iter().map(|system| {
        let (before, after) = (shown::size(system.before), shown::size(system.after));
        format!("{}: {before} before, {after} after.", shown::name(&system.name))
    });
    sentences.collect::<Vec<_>>().join(" ")
}

const STYLE: &str = "@media (prefers-color-scheme: dark) {\
 .card { fill: #151b23; stroke: #303a46 } .name { fill: #eef2f6 } .quiet { fill: #aeb9c6 }\
 .before { fill: #4a5868 } .after { fill: #5aaef0 } }";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_text_and_every_bar_stays_inside() {
        let system = |name: &str, before, after| SystemBytes {
            name: name.to_owned(),
            before,
            after,
            note: "x".repeat(500),
        };
        let systems = vec![
            system("<script>alert(1)</script>", 10, 1),
            system("grows", 1, u64::MAX),
            system("nothing", 0, 0),
        ];
        let image = picture_svg(&Picture { systems });
        assert!(!image.contains("<script") && image.contains("&lt;script&gt;"), "{image}");
        for width in image.split(" width=\"").skip(1) {
            let width: f64 = width.split('"').next().unwrap().parse().unwrap();
            assert!(width <= f64::from(WIDTH), "{width}");
        }
        assert!(!image.contains("NaN") && !image.contains("inf"), "{image}");
    }
}
