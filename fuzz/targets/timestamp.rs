//! Moments: one spelling is read strictly, and every moment has it.
#![no_main]

use guild_protocol::timestamp::Timestamp;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(bytes) = data.try_into()
        && let Ok(moment) = Timestamp::from_ms(i64::from_le_bytes(bytes))
    {
        assert_eq!(moment.to_string().parse(), Ok(moment));
    }
    let Ok(text) = std::str::from_utf8(data) else { return };
    let strict = text.parse::<Timestamp>();
    if let Ok(moment) = Timestamp::parse_liberal(text) {
        assert_eq!(moment.to_string().parse(), Ok(moment));
        assert_eq!(strict.is_ok(), moment.to_string() == text);
        assert_eq!(Timestamp::from_ms(moment.as_ms()), Ok(moment));
    } else {
        assert!(strict.is_err(), "what is read strictly is read liberally");
    }
});
