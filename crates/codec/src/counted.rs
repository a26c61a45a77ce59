//! How messages write a number of things. It is here because every other crate can use it.

/// `1 table`, `2 tables`, `1,234 tables`.
///
/// ```
/// # use pgshrink_codec::counted;
/// assert_eq!([0, 1, 1234].map(|count| counted(count, "entry", "entries")), ["0 entries", "1 entry", "1,234 entries"]);
/// ```
pub fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{} {}", grouped(count), if count == 1 { one } else { many })
}

/// A size as `pg_size_pretty` has it, 1 kB being 1024 bytes, with a digit after the point.
///
/// ```
/// # use pgshrink_codec::size;
/// assert_eq!([0, 1023, 1024, 12_897_485, 1 << 40].map(size), ["0 B", "1023 B", "1.0 kB", "12.3 MB", "1.0 TB"]);
/// ```
pub fn size(bytes: u64) -> String {
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut amount = bytes as f64 / 1024.0;
    for unit in ["kB", "MB", "GB", "TB"] {
        // What would be rounded to 1024.0 is 1.0 of the next unit.
        if amount < 1023.95 {
            return format!("{amount:.1} {unit}");
        }
        amount /= 1024.0;
    }
    format!("{amount:.1} PB")
}

/// `1,234,567`.
///
/// ```
/// # use pgshrink_codec::grouped;
/// assert_eq!([0, 999, 1000, 9_123_456].map(grouped), ["0", "999", "1,000", "9,123,456"]);
/// ```
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
