//! Content ids: one name per base, one form in bytes.
#![no_main]

use guild_protocol::content::Cid;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(cid) = Cid::from_bytes(data) {
        assert_eq!(cid.to_bytes(), data, "a CID has one form in bytes");
        check(&cid);
    }
    if let Ok(text) = std::str::from_utf8(data)
        && let Ok(cid) = text.parse::<Cid>()
    {
        let names = [cid.to_string(), cid.base58(), cid.hex()];
        assert!(names.iter().any(|name| name == text), "{text} is not one of {names:?}");
        check(&cid);
    }
});

fn check(cid: &Cid) {
    assert_eq!(cid.to_string().parse(), Ok(*cid));
    assert_eq!(cid.base58().parse(), Ok(*cid));
    assert_eq!(cid.hex().parse(), Ok(cid.to_v1()));
    assert_eq!(Cid::from_bytes(&cid.to_bytes()), Ok(*cid));
    if let Ok(digest) = cid.digest() {
        assert_eq!(cid.to_v1(), Cid::v1(cid.codec(), digest));
    }
}
