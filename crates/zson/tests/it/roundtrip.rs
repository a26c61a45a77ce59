use pgshrink_codec::{Algorithm, Choice, Dictionary};
use pgshrink_zson::*;

#[test]
fn smoke() {
    let dictionary = Dictionary::new(br#"{"type":"node","region":"andorra"}"#.repeat(10)).unwrap();
    let id = DictionaryId::new(300).unwrap();
    let r = ReadingDictionary::new(id, &dictionary).unwrap();
    let (mut e, mut d) = (Encoder::new(), Decoder::new());
    for choice in [Choice::from(Algorithm::Zstd), Choice::from(Algorithm::Lz4)] {
        let w = WritingDictionary::new(id, &dictionary, choice).unwrap();
        for n in [0usize, 1, 5, 30, 100, 1000, 200_000, 1_000_000] {
            let doc: Vec<u8> = br#"{"type":"node","id":625022,"region":"andorra"}"#.iter().cycle().take(n).enumerate().map(|(i,b)| if i%97==0 {(i*i/7) as u8} else {*b}).collect();
            for dict in [None, Some(&w)] {
                let mut out = vec![];
                e.encode(choice, dict, &doc, &mut out).unwrap();
                let datum::Stored::Current(h) = datum::parse(&out).unwrap() else { panic!() };
                println!("{choice} {n} {} -> {} {:?}", dict.is_some(), out.len(), h.method());
                let mut back = vec![0; h.raw_len()];
                d.decode(&h, Some(&r), &mut back).unwrap();
                assert!(back == doc);
            }
        }
    }
}
