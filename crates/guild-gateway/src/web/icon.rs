//! A small picture made from a key: two keys with the same name still look different.

use maud::{Markup, html};

/// A mirrored pattern of five by five squares in a colour of its own.
pub(super) fn identicon(pubkey: &str) -> Markup {
    let nibble = |i: usize| {
        pubkey.as_bytes().get(i).and_then(|b| char::from(*b).to_digit(16)).unwrap_or_default()
    };
    // The last digits choose the colour, the first ones the pattern.
    let hue = (60..64).fold(0, |hue, i| hue * 16 + nibble(i)) % 360;
    html! {
        svg class="who-icon" viewBox="0 0 5 5" width="28" height="28" aria-hidden="true" {
            @for column in 0_u8..3 {
                @for row in 0_u8..5 {
                    @if nibble(usize::from(column * 5 + row)) % 2 == 0 {
                        rect x=(column) y=(row) width="1" height="1" fill={ "hsl(" (hue) " 46% 48%)" } {}
                        @if column < 2 {
                            rect x=(4 - column) y=(row) width="1" height="1" fill={ "hsl(" (hue) " 46% 48%)" } {}
                        }
                    }
                }
            }
        }
    }
}

/// The sign of the house.
pub(super) fn mark() -> Markup {
    html! {
        svg class="mark" viewBox="0 0 32 32" width="26" height="26" aria-hidden="true" {
            path d="M3 12 16 4l13 8" fill="none" stroke="currentColor" stroke-width="2.4"
                stroke-linecap="round" stroke-linejoin="round" {}
            path d="M7 15v9M13 15v9M19 15v9M25 15v9M3 28h26" fill="none" stroke="currentColor" stroke-width="2.4"
                stroke-linecap="round" {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_has_its_picture_and_rubbish_does_no_harm() {
        let (a, b) = (identicon(&"1f".repeat(32)), identicon(&"2e".repeat(32)));
        assert_ne!(a.into_string(), b.into_string());
        let rubbish = identicon("<script>é").into_string();
        assert!(rubbish.starts_with("<svg") && !rubbish.contains("script"));
    }
}
