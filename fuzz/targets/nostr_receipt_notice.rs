//! Receipts on their way: what is read is a receipt that holds, and is sent again as the same.
#![no_main]

use guild_fuzz::fixed;
use guild_protocol::nostr::receipt_notice::ReceiptNotice;
use guild_protocol::nostr::{Event, Limits};
use guild_protocol::receipt;
use libfuzzer_sys::fuzz_target;

const NOW: u64 = 1_763_190_000;
const NONCE: fixed::Bytes<'static> = fixed::Bytes(&[7]);

fuzz_target!(|data: &[u8]| {
    let Ok(event) = Event::parse(data, &Limits::DEFAULT) else { return };
    // One of the two opens what is sealed between them.
    for key in [fixed::buyer(), fixed::provider()] {
        let Ok(notice) = ReceiptNotice::parse(&event, Some(&key)) else { continue };
        let bytes = notice.receipt.as_bytes();
        assert!(receipt::verify(bytes).is_ok_and(|checked| checked.holds()));
        assert_eq!(notice.receipt.stated().buyer_id, event.pubkey);
        // Only the buyer sends it, and only its key is known here.
        let buyer = fixed::buyer();
        let open = notice.draft(NOW).expect("what was read may be sent");
        let open = open.sign(&buyer).expect("a draft can be signed");
        let sealed = notice.sealed_draft(NOW, &buyer, &NONCE).expect("what was read may be sealed");
        let sealed = sealed.sign(&buyer).expect("a draft can be signed");
        if event.pubkey == open.pubkey {
            assert_eq!(ReceiptNotice::parse(&open, None).as_ref(), Ok(&notice));
            assert_eq!(ReceiptNotice::parse(&sealed, Some(&buyer)).as_ref(), Ok(&notice));
        }
        assert!(ReceiptNotice::parse(&sealed, None).is_err(), "it is closed without a key");
    }
});
