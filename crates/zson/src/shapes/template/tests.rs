//! Forms, and texts that have them or do not.

use super::*;

fn learned(texts: &[String]) -> Option<Template> {
    let texts: Vec<&[u8]> = texts.iter().map(String::as_bytes).collect();
    learn(&texts, &mut Pace::new(&mut || Ok(()))).unwrap()
}

/// In room of exactly the bytes that are asked for.
fn decoded(template: &Template, payload: &[u8]) -> Option<Vec<u8>> {
    let mut text = vec![0x5a; template.text_len_max()];
    let length = template.decode_into(payload, &mut text)?;
    text.truncate(length);
    Some(text)
}

#[track_caller]
fn length(template: &Template, text: &str) -> Option<usize> {
    let mut payload = Vec::new();
    template.encode(text.as_bytes(), &mut payload).then(|| {
        let back = decoded(template, &payload).unwrap();
        assert_eq!(String::from_utf8_lossy(&back), text);
        assert_eq!(template.decode_into(&payload, &mut vec![0; text.len() - 1]), None, "no room");
        payload.len()
    })
}

#[test]
fn moments_take_the_bytes_that_their_range_needs() {
    let moment = |n: u32| {
        format!("2026-{:02}-{:02}T{:02}:{:02}:{:02}Z", n % 12 + 1, n % 28 + 1, n % 24, n % 60, n * 7 % 60)
    };
    let texts: Vec<String> = (0..500).map(moment).collect();
    let template = learned(&texts).unwrap();
    assert!(texts.iter().all(|text| length(&template, text).unwrap() <= 4));
    // Another year costs a byte at most.
    assert!(length(&template, "2031-12-28T23:59:59Z").unwrap() <= 5);
    assert_eq!(length(&template, "2026-13-28T23:59:59Z"), None);
    assert_eq!(length(&template, "2026-12-28T23:59:59"), None);
    assert_eq!(length(&template, "2026-12-28T3:59:59Z"), None);
}

#[test]
fn identifiers_have_numbers_of_any_length_and_hashes_are_bytes() {
    let template = learned(&(0..50).map(|n| format!("user-{}", n * 13)).collect::<Vec<_>>()).unwrap();
    assert_eq!(length(&template, "user-649"), Some(2));
    assert_eq!(length(&template, "user-70000"), Some(3));
    assert_eq!(length(&template, "user-07"), None);
    assert_eq!(length(&template, "user-"), None);
    let uuid = |n: u64| {
        let hash = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        format!("{:08x}-{:04x}-4{:03x}-a{:03x}-{:012x}", hash as u32, hash >> 48, n, n, hash >> 16)
    };
    let template = learned(&(1..100).map(uuid).collect::<Vec<_>>()).unwrap();
    assert_eq!(length(&template, &uuid(7)), Some(16));
    assert_eq!(length(&template, &uuid(7).to_uppercase()), None);
    let template =
        learned(&(1..100u64).map(|n| format!("{:07X}", n * 0x123_4567 % 0xfff_ffff)).collect::<Vec<_>>())
            .unwrap();
    assert_eq!(length(&template, "0ABCDEF"), Some(4));
}

#[test]
fn integers_of_more_than_64_bits_come_back() {
    let part = |low, count| Part::Digits { width: 0, low, count };
    let template = |base| {
        let dash = || Part::Fixed(b"-".to_vec());
        Template::new(vec![part(0, 0), dash(), part(3, 1 << 20), dash(), part(3, 1 << 19)], base).unwrap()
    };
    let numbers = [3, 4, (1 << 19) + 2, 1 << 30, (1 << 44) - 1, (1 << 45) + 7, 10u64.pow(17) + 3];
    for base in [0, 5, -(1i128 << 70), 1 << 100] {
        for first in numbers {
            for (second, third) in [(3, 3), (1_000_000, 500_000), ((1 << 20) + 2, (1 << 19) + 2)] {
                let text = format!("{first}-{second}-{third}");
                let mut payload = Vec::new();
                assert!(template(base).encode(text.as_bytes(), &mut payload));
                let exact = (i128::from(first) * (1 << 20) + second - 3) * (1 << 19) + third - 3;
                assert_eq!(integer(&payload), Some(exact - base), "{text}");
                assert_eq!(decoded(&template(base), &payload).unwrap(), text.as_bytes());
            }
        }
    }
    let mut beyond = Vec::new();
    push_integer(1 << (64 + 39), &mut beyond);
    assert_eq!(decoded(&template(0), &beyond), None);
}

#[test]
fn texts_without_a_form_have_no_template() {
    let texts: Vec<String> = (0..50).map(|n| "abc ".repeat(n % 7) + &"x".repeat(n)).collect();
    assert_eq!(learned(&texts), None);
    assert_eq!(learned(&["1".to_owned(), "2".to_owned()]), None);
}

#[test]
fn bytes_that_nobody_wrote_are_refused_or_a_text_of_the_form() {
    let template =
        learned(&(0..50).map(|n| format!("{:02}:{:02}", n % 24, n % 60)).collect::<Vec<_>>()).unwrap();
    for first in 0..=255u8 {
        for payload in [vec![], vec![first], vec![first, 1], vec![first; 17]] {
            if let Some(text) = decoded(&template, &payload) {
                let mut again = Vec::new();
                assert!(template.encode(&text, &mut again), "{payload:?}");
            }
        }
    }
    assert!(Template::new(vec![Part::Digits { width: 2, low: 1, count: 0 }; 2], 0).is_none());
    assert!(Template::new(vec![Part::Digits { width: 19, low: 1, count: 1 }], 0).is_none());
    assert!(Template::new(vec![Part::Hex { digits: 0, is_upper: true }], 0).is_none());
}
