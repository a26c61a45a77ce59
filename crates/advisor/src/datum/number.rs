//! Whole numbers and floating-point numbers.

/// A whole number as the server prints it: without a plus, without leading zeros, and no `-0`.
pub fn integer(text: &str) -> Option<i64> {
    let number = text.parse::<i64>().ok()?;
    let digits = text.strip_prefix('-').unwrap_or(text);
    let is_plain = digits.bytes().all(|byte| byte.is_ascii_digit());
    let has_zeros = digits.len() > 1 && digits.starts_with('0') || text == "-0";
    (is_plain && !has_zeros).then_some(number)
}

/// A `double precision` as the server prints it with `extra_float_digits` of 1, the default: the fewest digits that
/// give the same number. Infinities and NaN have no image here.
pub fn double(text: &str) -> Option<f64> {
    let number = text.parse::<f64>().ok().filter(|number| number.is_finite())?;
    (print(number) == text && !is_tie(number)).then_some(number)
}

/// Whether the fewest digits lie as near below the number as others above it: the server rounds to an even digit then.
fn is_tie(number: f64) -> bool {
    let shortest = format!("{number:e}");
    let digits = shortest.split('e').next().unwrap_or_default().bytes().filter(u8::is_ascii_digit).count();
    let exact = format!("{number:.40e}");
    let rest: Vec<u8> =
        exact.split('e').next().unwrap_or_default().bytes().filter(u8::is_ascii_digit).skip(digits).collect();
    rest.first() == Some(&b'5') && rest[1..].iter().all(|digit| *digit == b'0')
        // Rounded up, the digit below is followed by the same.
        || rest.first() == Some(&b'4') && rest[1..].iter().all(|digit| *digit == b'9')
}

/// As `double_to_shortest_decimal_buf` in `src/common/d2s.c`: plain from 1e-4 up to 1e15, else with an exponent.
fn print(number: f64) -> String {
    let scientific = format!("{number:e}");
    let Some((digits, exponent)) = scientific.split_once('e') else { return scientific };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if number == 0.0 || (-4..15).contains(&exponent) {
        return format!("{number}");
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_that_would_come_back_differently_are_none() {
        assert_eq!(integer("-120"), Some(-120));
        assert_eq!((integer("0"), integer("9223372036854775807")), (Some(0), Some(i64::MAX)));
        for text in ["007", "-0", "+1", "", " 1", "1.0", "-", "9223372036854775808", "1e3", "0x1", "-01", "٣"]
        {
            assert_eq!(integer(text), None, "{text}");
        }
    }

    #[test]
    fn floating_point_numbers_have_the_servers_exponents() {
        for text in ["0.1", "-12.5", "1e+15", "1e-05", "0.0001", "123456789012345", "1.7976931348623157e+308"]
        {
            assert_eq!(double(text).map(print).as_deref(), Some(text));
        }
        // Halfway between .2 and .3: the server prints the even one.
        assert_eq!((double("-699993994936229.3"), double("-699993994936229.2")), (None, None));
        for text in ["1.50", "1e5", "NaN", "Infinity", "inf", ".5", "1.", "0.30000000000000000001", "1e400"] {
            assert_eq!(double(text), None, "{text}");
        }
    }
}
