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
    (print(number) == text).then_some(number)
}

/// As `double_to_shortest_decimal_buf` in `src/common/d2s.c`: plain from 1e-4 up to 1e15, else with an exponent.
fn print(number: f64) -> String {
    let scientific = format!("{number:e}");
    let Some((mantissa, exponent)) = scientific.split_once('e') else { return scientific };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let sign = if mantissa.starts_with('-') { "-" } else { "" };
    let digits = to_even(number, digits(mantissa));
    let (first, rest) = digits.split_at(1);
    if number == 0.0 {
        return format!("{number}");
    }
    if !(-4..15).contains(&exponent) {
        let point = if rest.is_empty() { "" } else { "." };
        let exponent_sign = if exponent < 0 { '-' } else { '+' };
        return format!("{sign}{first}{point}{rest}e{exponent_sign}{:02}", exponent.abs());
    }
    let before = usize::try_from(exponent + 1).unwrap_or(0);
    if before == 0 {
        return format!("{sign}0.{}{digits}", "0".repeat(exponent.unsigned_abs() as usize - 1));
    }
    match digits.split_at_checked(before) {
        Some((whole, "")) => format!("{sign}{whole}"),
        Some((whole, fraction)) => format!("{sign}{whole}.{fraction}"),
        None => format!("{sign}{digits}{}", "0".repeat(before - digits.len())),
    }
}

fn digits(mantissa: &str) -> String {
    mantissa.chars().filter(char::is_ascii_digit).collect()
}

/// The fewest digits of a number. Where those below it are as near as those above, the server takes the even ones.
fn to_even(number: f64, shortest: String) -> String {
    let exact = format!("{number:.40e}");
    let exact = digits(exact.split('e').next().unwrap_or_default());
    let (below, rest) = exact.split_at(shortest.len().min(exact.len()));
    let is_tie = rest.starts_with('5') && rest[1..].bytes().all(|digit| digit == b'0');
    match below.as_bytes().split_last() {
        Some((last, _)) if is_tie && last % 2 == 0 => below.to_owned(),
        // 9 is not followed by a tie: ten would have a digit less.
        Some((last, before)) if is_tie && *last != b'9' => {
            let before = String::from_utf8_lossy(before);
            format!("{before}{}", char::from(last + 1))
        }
        _ => shortest,
    }
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
        for text in [
            "0",
            "-0",
            "7",
            "100",
            "0.1",
            "-12.5",
            "1e+15",
            "-1.5e+16",
            "1e-05",
            "0.0001",
            "0.00123",
            "123456789012345",
            "120000000000000",
            "1.7976931348623157e+308",
        ] {
            assert_eq!(double(text).map(print).as_deref(), Some(text));
        }
        // Halfway between two: the server prints the even one.
        for (odd, even) in
            [("-699993994936229.3", "-699993994936229.2"), ("740001007720667.7", "740001007720667.8")]
        {
            assert_eq!(odd.parse::<f64>(), even.parse::<f64>());
            assert_eq!((double(odd), double(even)), (None, even.parse().ok()));
        }
        for text in ["1.50", "1e5", "NaN", "Infinity", "inf", ".5", "1.", "0.30000000000000000001", "1e400"] {
            assert_eq!(double(text), None, "{text}");
        }
    }
}
