//! Text with addresses of networks and of network cards.

use super::{COLUMN, Conversion, Form, TEXT, Values};
use crate::datum::{network, varlena};
use crate::layout::Alignment;

/// An IPv4 address as the server prints it, without its mask.
const IPV4: &str = "(?:(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])\\.){3}(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])";

pub(super) fn convert_inet(values: &Values<'_>) -> Option<Conversion> {
    let images = values.images(|text| network::inet(text).map(|data| varlena(&data)))?;
    let is_v6 = values.sampled().any(|text| text.contains(':'));
    let size = if is_v6 { "7 bytes for an IPv4 address and 19 for an IPv6 address" } else { "7 bytes" };
    Some(Conversion {
        type_name: "inet".to_owned(),
        prepare: Vec::new(),
        form: Form::Varlena,
        images,
        using: format!("{COLUMN}::inet"),
        misfit: inet_misfit(),
        title: "inet instead of text".to_owned(),
        reason: format!(
            "All {} sampled values are addresses as the type inet prints them, {} bytes on average. It takes {size}.",
            values.count(),
            values.average()
        ),
        risks: vec![
            "The server prints the same text, but a cast to text adds the mask ('10.0.0.1/32'): host(…) does not. LIKE and \
             functions of text no longer work."
                .to_owned(),
            "Addresses sort as numbers instead of as text, IPv4 before IPv6.".to_owned(),
            "Names, ports, zones ('%eth0') and words such as 'unknown' can no longer be stored.".to_owned(),
        ],
        is_recommended: true,
        depends_on_range: false,
    })
}

/// What has the form of an IPv6 address is read, printed and compared; the rest is never read, as that would fail.
fn inet_misfit() -> String {
    let group = "[0-9a-f]{1,4}";
    // Two colons stand for two groups or more, so six are left at most. The last two may be an IPv4 address.
    let mut forms = vec![
        format!("(?:{group}:){{7}}{group}"),
        "::".to_owned(),
        format!("(?:{group}:){{1,6}}:"),
        format!(":(?::{group}){{1,6}}"),
        format!("::(?:ffff:)?{IPV4}"),
    ];
    forms.extend((1..=5).map(|left| format!("(?:{group}:){{1,{left}}}(?::{group}){{1,{}}}", 6 - left)));
    let v6 = format!("^(?:{})(?:/(?:[0-9]|[1-9][0-9]|1[01][0-9]|12[0-7]))?$", forms.join("|"));
    let v4 = format!("^{IPV4}(?:/(?:[0-9]|[12][0-9]|3[01]))?$");
    format!(
        "CASE WHEN {TEXT} ~ '{v4}' THEN false \
         WHEN {TEXT} ~ '{v6}' THEN format('%s', {COLUMN}::inet) COLLATE \"C\" <> {TEXT} ELSE true END"
    )
}

pub(super) fn convert_mac(values: &Values<'_>) -> Option<Conversion> {
    let images = values.images(|text| network::macaddr(text).map(|bytes| bytes.to_vec()))?;
    Some(Conversion {
        type_name: "macaddr".to_owned(),
        prepare: Vec::new(),
        form: Form::Fixed(6, Alignment::Int),
        images,
        using: format!("{COLUMN}::macaddr"),
        misfit: format!("{TEXT} !~ '^(?:[0-9a-f]{{2}}:){{5}}[0-9a-f]{{2}}$'"),
        title: "macaddr instead of text".to_owned(),
        reason: format!(
            "All {} sampled values are MAC addresses in lower case with colons, {} bytes each. The type \
             macaddr takes 6.",
            values.count(),
            values.average()
        ),
        risks: vec![
            "The server prints the same text. LIKE and functions of text need a cast.".to_owned(),
            "Addresses with dashes or capital letters are accepted and come back with colons and in lower case."
                .to_owned(),
        ],
        is_recommended: true,
        depends_on_range: false,
    })
}
