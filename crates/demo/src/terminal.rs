//! What the terminal can show: width, characters, movement.

use std::io::IsTerminal;

/// Wider tables are not easier to read.
const WIDTH_MAX: u16 = 100;
/// Of a terminal that does not tell, and of a file.
const WIDTH_UNKNOWN: u16 = 100;

/// The characters to draw with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Charset {
    /// Lines, arrows.
    Unicode,
    /// 7 bits only.
    Ascii,
}

impl Charset {
    /// As the environment's locale says, in the order of setlocale(3).
    pub(crate) fn detect() -> Charset {
        Self::of_locale(["LC_ALL", "LC_CTYPE", "LANG"].map(|name| std::env::var(name).unwrap_or_default()))
    }

    fn of_locale(variables: [String; 3]) -> Charset {
        let locale = variables.into_iter().find(|value| !value.is_empty()).unwrap_or_default();
        let locale = locale.to_ascii_lowercase();
        if locale.contains("utf-8") || locale.contains("utf8") { Charset::Unicode } else { Charset::Ascii }
    }
}

/// Columns for what goes to standard output.
pub(crate) fn width() -> u16 {
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok();
    size.map(|size| size.ws_col).filter(|columns| *columns > 0).unwrap_or(WIDTH_UNKNOWN).min(WIDTH_MAX)
}

/// True when lines on standard error can be drawn over.
pub(crate) fn can_redraw() -> bool {
    std::io::stderr().is_terminal() && std::env::var_os("TERM").is_some_and(|term| term != "dumb")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_locale_variable_that_is_set_decides() {
        let charset = |variables: [&str; 3]| Charset::of_locale(variables.map(str::to_owned));
        assert_eq!(charset(["", "", "en_GB.UTF-8"]), Charset::Unicode);
        assert_eq!(charset(["C", "en_GB.UTF-8", "en_GB.UTF-8"]), Charset::Ascii);
        assert_eq!(charset(["", "C.utf8", "C"]), Charset::Unicode);
        assert_eq!(charset(["", "", ""]), Charset::Ascii);
    }
}
