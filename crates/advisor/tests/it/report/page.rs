//! The HTML, without a browser.

use pgshrink_advisor::report::{html, html_with_picture, picture_svg};

use super::example::{self, ODD};

#[test]
fn names_are_text_wherever_they_stand() {
    let report = example::odd(ODD.len() * 2);
    let mut picture = example::picture();
    for (system, odd) in picture.systems.iter_mut().zip(ODD) {
        (system.name, system.note) = (odd.to_owned(), odd.to_owned());
    }
    let page = html_with_picture(&report, &picture);
    // Its own script, and no other element that a name could have brought.
    assert_eq!(page.matches("<script").count(), 1);
    assert_eq!(page.matches("</script").count(), 1);
    assert!(!page.contains("<img"));
    assert!(page.contains("&lt;script&gt;alert('x')&lt;/script&gt;"));
    assert!(page.contains("&quot;quoted&quot; &amp; 'single'"));
    let image = picture_svg(&picture);
    assert!(!image.contains("<script") && !image.contains("<img"), "{image}");
}

#[test]
fn the_picture_in_the_readme_is_that_of_the_demos_figures() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/figures/");
    let read = |name: &str| std::fs::read_to_string(format!("{folder}{name}")).unwrap();
    let figures = serde_json::from_str(&read("demo.json")).unwrap();
    assert!(picture_svg(&figures) == read("demo.svg"), "make picture draws it again");
    assert!(include_str!("../../../../../README.md").contains("](docs/figures/demo.svg)"));
}

#[test]
fn marks_that_turn_text_around_stand_in_statements_alone() {
    let page = html(&example::odd(ODD.len()));
    for (at, _) in page.match_indices('\u{202e}') {
        let before = &page[..at];
        let is_code = before.rfind("<pre") > before.rfind("</pre");
        assert!(is_code, "{:?}", &page[at.saturating_sub(200)..at]);
    }
}

#[test]
fn the_page_names_no_other_place() {
    for page in [html(&example::everything()), html(&example::empty())] {
        let own = page.replace("http://www.w3.org/2000/svg", "");
        for word in ["http:", "https:", "//www", "@import", "url("] {
            assert!(
                !own.contains(word),
                "{word}: {:?}",
                own.find(word).map(|at| &own[at.saturating_sub(80)..at + 80])
            );
        }
        let sources: Vec<&str> = page.split(" src=").skip(1).collect();
        assert!(sources.is_empty(), "{sources:?}");
        assert!(page.contains("default-src 'none'") && !page.contains("script-src 'unsafe"));
    }
}

#[test]
fn the_same_report_gives_the_same_page() {
    assert_eq!(html(&example::odd(30)), html(&example::odd(30)));
}

#[test]
fn thousands_of_findings_stay_a_page() {
    let page = html(&example::odd(3_000));
    assert_eq!(page.matches("<tbody id=\"finding-").count(), 500);
    assert!(page.contains("… and 2,508 more: they are in the JSON report."));
    assert!(page.len() < 5_000_000, "{}", page.len());
}
