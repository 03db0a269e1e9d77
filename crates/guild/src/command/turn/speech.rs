//! What a model says, shown while it says it. A card tells the same when the step is done; whatever was missed is told
//! by that.

use guild_roles::live::Heard;

use super::told::TEXT_MAX;

/// What is being said in one step.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Speech {
    step_id: String,
    next_index: u64,
    /// All of it, so far as it is shown.
    said: String,
    /// Line breaks that nothing stands behind yet.
    breaks: usize,
    /// Whether it was heard from its beginning without a gap.
    is_whole: bool,
}

/// What is to be shown.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Show {
    Nothing,
    /// The first words of a step.
    First(String),
    /// More of the same.
    More(String),
}

impl Speech {
    /// Takes the next piece of whatever step it is of.
    pub(super) fn hear(&mut self, heard: &Heard) -> Show {
        let begins = heard.chunk_type == "start";
        if begins || heard.step_id != self.step_id {
            let step_id = heard.step_id.clone();
            *self = Speech { step_id, is_whole: begins, ..Speech::default() };
        } else if heard.index != self.next_index {
            self.is_whole = false;
        }
        self.next_index = heard.index.saturating_add(1);
        if heard.chunk_type != "content" || heard.content.is_empty() {
            return Show::Nothing;
        }
        let is_first = self.said.is_empty();
        let room = TEXT_MAX.saturating_sub(self.said.chars().count());
        let piece: String = heard.content.chars().take(room).collect();
        self.said.push_str(&piece);
        let text = format!("{}{piece}", "\n".repeat(self.breaks));
        let shown = text.trim_end_matches('\n');
        self.breaks = text.len().saturating_sub(shown.len());
        match (is_first, shown) {
            (true, shown) if self.is_whole => Show::First(shown.to_owned()),
            (true, shown) => Show::First(format!("… {shown}")),
            (false, "") => Show::Nothing,
            (false, shown) => Show::More(shown.to_owned()),
        }
    }

    /// Whether something of this step was shown.
    pub(super) fn has_begun(&self, step_id: &str) -> bool {
        self.step_id == step_id && !self.said.is_empty()
    }

    /// What is missing of the text of the step, if all that was shown is its beginning.
    pub(super) fn rest_of(&self, text: &str) -> Option<String> {
        let rest = text.strip_prefix(self.said.as_str()).filter(|_| self.is_whole)?;
        let rest = format!("{}{rest}", "\n".repeat(self.breaks));
        Some(rest.trim_end_matches('\n').to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(step_id: &str, index: u64, chunk_type: &str, content: &str) -> Heard {
        Heard {
            agent_turn_id: "turn".to_owned(),
            step_id: step_id.to_owned(),
            index,
            chunk_type: chunk_type.to_owned(),
            content: content.to_owned(),
        }
    }

    #[test]
    fn pieces_are_shown_once_and_the_card_adds_what_is_missing() {
        let mut speech = Speech::default();
        assert_eq!(speech.hear(&piece("a", 0, "start", "")), Show::Nothing);
        assert_eq!(speech.hear(&piece("a", 1, "reasoning", "hm")), Show::Nothing);
        assert_eq!(speech.hear(&piece("a", 2, "content", "It\n")), Show::First("It".to_owned()));
        assert_eq!(speech.hear(&piece("a", 3, "content", "\n")), Show::Nothing);
        assert_eq!(speech.hear(&piece("a", 4, "content", "is")), Show::More("\n\nis".to_owned()));
        assert!(speech.has_begun("a") && !speech.has_begun("b"));
        assert_eq!(speech.rest_of("It\n\nis done.\n"), Some(" done.".to_owned()));
        assert_eq!(speech.rest_of("It\n\nis"), Some(String::new()));
        assert_eq!(speech.rest_of("Other"), None);
        assert_eq!(speech.hear(&piece("b", 0, "start", "")), Show::Nothing);
        assert!(!speech.has_begun("a") && !speech.has_begun("b"));
    }

    #[test]
    fn what_was_missed_is_left_to_the_card() {
        let mut speech = Speech::default();
        assert_eq!(
            speech.hear(&piece("a", 7, "content", "late")),
            Show::First("… late".to_owned())
        );
        assert_eq!(speech.rest_of("late"), None);
        speech.hear(&piece("a", 0, "start", ""));
        speech.hear(&piece("a", 1, "content", "one "));
        assert_eq!(speech.hear(&piece("a", 3, "content", "three")), Show::More("three".to_owned()));
        assert_eq!(speech.rest_of("one three"), None, "there is a gap");
        // The model is asked again in the same step.
        speech.hear(&piece("a", 4, "start", ""));
        assert_eq!(speech.hear(&piece("a", 5, "content", "new")), Show::First("new".to_owned()));
        assert_eq!(speech.rest_of("new words"), Some(" words".to_owned()));
    }

    #[test]
    fn a_model_that_talks_without_end_is_cut() {
        let mut speech = Speech::default();
        speech.hear(&piece("a", 0, "start", ""));
        for index in 1..100 {
            speech.hear(&piece("a", index, "content", &"é".repeat(100)));
        }
        assert_eq!(speech.said.chars().count(), TEXT_MAX);
        assert_eq!(speech.rest_of(&format!("{}…", "é".repeat(TEXT_MAX))), Some("…".to_owned()));
    }
}
