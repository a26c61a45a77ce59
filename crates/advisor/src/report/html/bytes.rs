//! Amounts, bars, and the headline.

use maud::{Markup, html};

use super::percent;
use crate::finding::{Change, Prices, Report};
use crate::report::shown;

/// `12.3 MB`, with the exact number for programs and as a hint.
pub(super) fn amount(bytes: u64) -> Markup {
    html! { data value=(bytes) title={ (shown::number_text(bytes)) " bytes" } { (shown::size(bytes)) } }
}

/// What is saved; what costs space is marked.
pub(super) fn saved(change: Change) -> Markup {
    let saved = change.saved();
    html! { data.costs[saved < 0] value=(saved) { (shown::saved(saved)) } }
}

/// `1.2 GB → 0.9 GB`
pub(super) fn change(change: Change) -> Markup {
    html! { span.change { (amount(change.now)) " → " (amount(change.after)) } }
}

/// Bars of bytes, one below the other, on the scale of `longest`. The numbers stand beside them.
pub(super) fn bars(bars: &[(&str, u64)], longest: u64) -> Markup {
    html! {
        div.bars aria-hidden="true" {
            @for (kind, bytes) in bars {
                div class=(kind) style={ "width:" (percent(*bytes, longest)) "%" } {}
            }
        }
    }
}

/// What the bars' colours are.
pub(super) fn legend(entries: &[(&str, &str)]) -> Markup {
    html! {
        ul.legend {
            @for (kind, words) in entries { li { span.swatch.(kind) aria-hidden="true" {} (words) } }
        }
    }
}

pub(super) fn headline(report: &Report) -> Markup {
    let bytes = report.total.bytes;
    html! {
        div.cards {
            (card("On disk", "Files of tables, indexes and TOAST, uncompressed.", Some(bytes.disk)))
            (card(
                "In a compressed tablespace",
                "The same files in cfs with zstd:1. This replaces the first figure; it does not add to it.",
                bytes.compressed,
            ))
            (card(
                "In memory",
                "When everything is cached: buffers contain plain pages in any case.",
                Some(bytes.memory),
            ))
        }
        @if let Some(words) = shown::totals(report) { p { (words) } }
        @if let Some(prices) = &report.prices { (money(prices)) }
    }
}

fn card(kind: &str, words: &str, bytes: Option<Change>) -> Markup {
    html! {
        div.card {
            h3 { (kind) }
            @if let Some(bytes) = bytes {
                p.big { (amount(bytes.now)) span.arrow { " → " } (amount(bytes.after)) }
                (bars(&[("before", bytes.now), ("after", bytes.after)], bytes.now.max(bytes.after)))
                p { strong { (saved(bytes)) } @if bytes.saved() < 0 { " more" } @else { " saved" }
                    @if bytes.now > 0 { ", " (shown::share(bytes)) } }
            } @else {
                p.big.quiet { "not measured" }
            }
            p.quiet { (words) }
        }
    }
}

fn money(prices: &Prices) -> Markup {
    let lines = [
        (
            "Storage, by all proposals",
            prices.storage_saved_month,
            prices.storage_gb_month,
            "per GB and month",
        ),
        (
            "Storage, by compressed tablespaces in addition",
            prices.cfs_saved_month,
            prices.storage_gb_month,
            "per GB and month",
        ),
        ("Network, by what the gateway saw", prices.egress_saved_month, prices.egress_gb, "per GB"),
        ("One backup that is kept", prices.backup_saved_month, prices.backup_gb_month, "per GB and month"),
    ];
    html! {
        table.plain {
            caption { "Saved each month, in the currency of the given prices" }
            thead {
                tr {
                    th scope="col" { "What" } th.number scope="col" { "Price" } th.number scope="col" {
                        "Saved each month"
                    }
                }
            }
            tbody {
                @for (what, amount, price, unit) in lines {
                    @if let Some(amount) = amount {
                        tr {
                            th scope="row" { (what) }
                            td.number data-label="Price" {
                                @if let Some(price) = price { (price) " " (unit) } @else { "–" }
                            }
                            td.number data-label="Saved each month" { strong { (shown::money(amount)) } }
                        }
                    }
                }
            }
        }
    }
}
