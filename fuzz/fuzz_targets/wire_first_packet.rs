//! The first packet of a connection: no panic; a startup packet prints back to what it was.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pgshrink_wire::Offer;
use pgshrink_wire::startup::{First, parse_first};

fuzz_target!(|data: &[u8]| {
    if let Ok(Some((First::Startup(mut packet), used))) = parse_first(data) {
        assert_eq!(packet.to_bytes(), data[..used]);
        let _ = Offer::take(&mut packet);
        assert!(Offer::take(&mut packet).is_none());
        assert!(packet.to_bytes().len() <= used);
    }
});
