//! Messages, and the tokens that the model has seen of them.

use crate::error::CliError;
use pawl::{ChatTemplate, Completion, Kept, Message, Tokenizer};

/// Everything said so far.
#[derive(Debug)]
pub(super) struct Conversation {
    template: ChatTemplate,
    system: Option<Message>,
    messages: Vec<Message>,
    past: Option<Past>,
}

/// The last turn as the model saw it.
#[derive(Debug)]
struct Past {
    /// What the template made of the messages.
    text: String,
    /// Tokens of the text, then of the answer as the model drew them.
    ids: Vec<u32>,
    /// How many of them belong to the text.
    prompt: usize,
    kept: Option<Kept>,
}

/// The next prompt.
#[derive(Debug)]
pub(super) struct Prompt {
    text: String,
    ids: Vec<u32>,
    kept: Option<Kept>,
}

/// What the model said.
#[derive(Debug)]
pub(super) struct Answer {
    text: String,
    tokens: Vec<u32>,
    kept: Option<Kept>,
}

impl From<Completion> for Answer {
    fn from(completion: Completion) -> Self {
        Self {
            text: completion.text,
            tokens: completion.tokens,
            kept: completion.kept,
        }
    }
}

impl Prompt {
    pub(super) fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// The state to continue. A clone: if the prompt is refused, the conversation still has it.
    pub(super) fn kept(&self) -> Option<Kept> {
        self.kept.clone()
    }
}

impl Conversation {
    pub(super) fn new(template: ChatTemplate, system: Option<String>) -> Self {
        Self {
            template,
            system: system.map(|text| Message::new("system", text)),
            messages: Vec::new(),
            past: None,
        }
    }

    /// Turns that have an answer.
    pub(super) fn turns(&self) -> usize {
        self.messages.len() / 2
    }

    /// Forgets everything but the system message.
    pub(super) fn reset(&mut self) {
        self.messages.clear();
        self.past = None;
    }

    /// The prompt for the next message. Nothing is said yet.
    pub(super) fn prompt(
        &self,
        tokenizer: &dyn Tokenizer,
        message: &str,
    ) -> Result<Prompt, CliError> {
        let next = Message::new("user", message);
        let messages = self.system.iter().chain(&self.messages).chain([&next]);
        let messages: Vec<Message> = messages.cloned().collect();
        let options = serde_json::Map::new();
        let text = self.template.render(&messages, None, true, &options)?;
        let spliced = match &self.past {
            Some(past) => past.splice(tokenizer, &text)?,
            None => None,
        };
        let ids = match spliced {
            Some(ids) => ids,
            None => encode(tokenizer, &text)?,
        };
        let kept = self.past.as_ref().and_then(|past| past.kept.clone());
        Ok(Prompt { text, ids, kept })
    }

    /// A message was answered.
    pub(super) fn add(&mut self, prompt: Prompt, message: String, answer: Answer) {
        self.messages.push(Message::new("user", message));
        self.messages.push(Message::new("assistant", answer.text));
        let Prompt { text, mut ids, .. } = prompt;
        let prompt = ids.len();
        ids.extend(answer.tokens);
        self.past = Some(Past {
            text,
            ids,
            prompt,
            kept: answer.kept,
        });
    }
}

impl Past {
    /// The tokens of `text`, beginning with those that the model has seen, if it goes on where they end: text can be
    /// cut into tokens in many ways, and the model chose another than the tokenizer would. `None` where the template has
    /// rewritten what was said before.
    fn splice(&self, tokenizer: &dyn Tokenizer, text: &str) -> Result<Option<Vec<u32>>, CliError> {
        let Some(rest) = text.strip_prefix(&self.text) else {
            return Ok(None);
        };
        let run = self.kept.as_ref().map_or(0, |kept| kept.tokens().len());
        // The last token may be one that the template does not repeat, or half a character.
        for end in (run.max(self.prompt)..=self.ids.len()).rev() {
            let answer = self.ids.get(self.prompt..end).unwrap_or_default();
            let answer = tokenizer.decode(answer, false);
            let answer = answer.map_err(|error| CliError::Usage(error.to_string()))?;
            if let Some(new) = rest.strip_prefix(&answer) {
                let mut ids = self.ids.get(..end).unwrap_or_default().to_vec();
                ids.extend(encode(tokenizer, new)?);
                return Ok(Some(ids));
            }
        }
        Ok(None)
    }
}

fn encode(tokenizer: &dyn Tokenizer, text: &str) -> Result<Vec<u32>, CliError> {
    tokenizer
        .encode(text, false)
        .map_err(|error| CliError::Usage(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use pawl::TokenizerError;

    const TEMPLATE: &str = "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}\
         {% if add_generation_prompt %}<assistant>{% endif %}";

    /// One token per character; 1000 and more stand for two letters, `x` and the character.
    #[derive(Debug)]
    struct Letters;

    impl Tokenizer for Letters {
        fn encode(&self, text: &str, _: bool) -> Result<Vec<u32>, TokenizerError> {
            Ok(text.chars().map(u32::from).collect())
        }
        fn decode(&self, ids: &[u32], _: bool) -> Result<String, TokenizerError> {
            let letters = ids.iter().flat_map(|id| {
                let first = (*id >= 1000).then_some('x');
                first.into_iter().chain(char::from_u32(*id % 1000))
            });
            Ok(letters.collect())
        }
        fn token_to_id(&self, _: &str) -> Option<u32> {
            None
        }
        fn id_to_token(&self, _: u32) -> Option<String> {
            None
        }
        fn vocab_size(&self) -> usize {
            2000
        }
        fn is_special(&self, _: u32) -> bool {
            false
        }
    }

    fn letters(text: &str) -> Vec<u32> {
        Letters.encode(text, false).unwrap()
    }

    fn conversation(template: &str) -> Conversation {
        let template = ChatTemplate::from_source(template).unwrap();
        Conversation::new(template, Some("Be brief.".to_owned()))
    }

    /// One turn whose answer is `tokens`, which read as `text`; then the prompt of the next.
    fn next_prompt(template: &str, text: &str, tokens: Vec<u32>) -> (Vec<u32>, Vec<u32>) {
        let mut chat = conversation(template);
        let prompt = chat.prompt(&Letters, "Hi").unwrap();
        let before = [prompt.ids(), &tokens].concat();
        let answer = Answer {
            text: text.to_owned(),
            tokens,
            kept: None,
        };
        chat.add(prompt, "Hi".to_owned(), answer);
        assert_eq!(chat.turns(), 1);
        let next = chat.prompt(&Letters, "More").unwrap();
        (before, next.ids().to_vec())
    }

    const START: &str = "<system>Be brief.</><user>Hi</><assistant>";
    const MORE: &str = "</><user>More</><assistant>";

    #[test]
    fn a_turn_goes_on_from_the_tokens_that_were_drawn() {
        // `xy` is one token here, though the tokenizer would make it two.
        let tokens = vec![1000 + u32::from('y'), u32::from('!')];
        let (before, next) = next_prompt(TEMPLATE, "xy!", tokens);
        assert_eq!(before[..before.len() - 2], letters(START));
        assert_eq!(next, [before, letters(MORE)].concat());
    }

    #[test]
    fn an_end_token_that_the_template_repeats_is_not_doubled() {
        let (before, next) = next_prompt(TEMPLATE, "ok", letters("ok</>"));
        assert_eq!(next, [before, letters("<user>More</><assistant>")].concat());
    }

    #[test]
    fn a_last_token_that_the_template_does_not_repeat_is_left_out() {
        let (before, next) = next_prompt(TEMPLATE, "ok", letters("ok?"));
        assert_eq!(next[..before.len() - 1], before[..before.len() - 1]);
        assert_eq!(next, letters(&[START, "ok", MORE].concat()));
    }

    #[test]
    fn a_template_that_rewrites_answers_is_followed() {
        let forgetful = TEMPLATE.replace("{{ m.content }}", "{{ m.content.split('.')[-1] }}");
        let (_, next) = next_prompt(&forgetful, "Think. Say", letters("Think. Say"));
        let text = "<system></><user>Hi</><assistant> Say</><user>More</><assistant>";
        assert_eq!(next, letters(text));
    }

    #[test]
    fn a_reset_conversation_begins_again() {
        let mut chat = conversation(TEMPLATE);
        let first = chat.prompt(&Letters, "Hi").unwrap();
        let answer = Answer {
            text: "ok".to_owned(),
            tokens: letters("ok"),
            kept: None,
        };
        let ids = first.ids().to_vec();
        chat.add(first, "Hi".to_owned(), answer);
        chat.reset();
        assert_eq!(chat.turns(), 0);
        assert_eq!(chat.prompt(&Letters, "Hi").unwrap().ids(), ids);
    }
}
