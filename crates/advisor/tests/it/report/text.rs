//! The table for terminals.

use pgshrink_advisor::report::{Charset, Colour, Extent, Style, text};
use unicode_width::UnicodeWidthStr;

use super::example;

const ALL: Style = Style { colour: Colour::Plain, charset: Charset::Unicode, extent: Extent::All };

#[test]
fn no_line_is_wider_than_the_terminal() {
    for report in [example::empty(), example::small(), example::everything(), example::odd(60)] {
        for width in [60, 61, 72, 80, 100, 119, 120, 160, 250] {
            for extent in [Extent::Largest, Extent::All] {
                let shown = text(&report, width, Style { extent, ..ALL });
                for line in shown.lines() {
                    assert!(line.width() <= width, "{width}: {line}\n{shown}");
                }
            }
        }
    }
}
