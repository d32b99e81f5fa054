//! Messages, and the tokens that the model has seen of them.

use crate::error::CliError;
use crate::prompts::rendered;
use pawl::{ChatTemplate, Completion, Kept, Message, Tokenizer};

/// Everything said so far.
#[derive(Debug)]
pub(super) struct Conversation {
    template: ChatTemplate,
    system: Option<Message>,
    messages: Vec<Message>,
    past: Option<Past>,
    /// Whether the template has rewritten an answer once it was history; one that drops reasoning does.
    rewrites: bool,
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
    /// The state after the answer.
    kept: Option<Kept>,
    /// The state before what a template may rewrite.
    lasting: Option<Kept>,
}

/// The next prompt.
#[derive(Debug)]
pub(super) struct Prompt {
    text: String,
    ids: Vec<u32>,
    /// How many tokens, from the first on, no later turn rewrites; 0 if the answers themselves are not rewritten.
    lasting: usize,
    states: Vec<Kept>,
    rewrites: bool,
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

    /// The part to read first, so that its state can be kept beside that of the answer.
    pub(super) fn lasting(&self) -> Option<&[u32]> {
        self.ids.get(..self.lasting).filter(|ids| !ids.is_empty())
    }

    /// The state to continue: of those there are, the one that has seen most of the prompt. A clone: if the prompt is
    /// refused, the conversation still has it.
    pub(super) fn state(&self) -> Option<Kept> {
        let wanted = self.lasting().unwrap_or(&self.ids);
        let fits = |kept: &&Kept| wanted.starts_with(kept.tokens()) && kept.is_held();
        let states = self.states.iter();
        let longest = states.clone().filter(fits).max_by_key(|k| k.tokens().len());
        // One that does not fit says so in the statistics.
        longest.or(self.states.first()).cloned()
    }
}

impl Conversation {
    pub(super) fn new(template: ChatTemplate, system: Option<String>) -> Self {
        Self {
            template,
            system: system.map(|text| Message::new("system", text)),
            messages: Vec::new(),
            past: None,
            rewrites: false,
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
        // What the template does to answers is no part of what was said.
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
        let text = self.render(&messages, true)?;
        let spliced = match &self.past {
            Some(past) => past.splice(tokenizer, &text)?,
            None => None,
        };
        let rewrites = self.rewrites || (self.past.is_some() && spliced.is_none());
        let ids = match spliced {
            Some(ids) => ids,
            None => encode(tokenizer, &text)?,
        };
        let lasting = if rewrites {
            let before = encode(tokenizer, &self.render(&messages, false)?)?;
            let same = ids.starts_with(&before) && before.len() < ids.len();
            if same { before.len() } else { 0 }
        } else {
            0
        };
        let states = self.past.iter().flat_map(|p| [&p.kept, &p.lasting]);
        let states = states.flatten().cloned().collect();
        Ok(Prompt {
            text,
            ids,
            lasting,
            states,
            rewrites,
        })
    }

    fn render(&self, messages: &[Message], answer: bool) -> Result<String, CliError> {
        rendered(&self.template, messages, answer)
    }

    /// A message was answered. `lasting` is the state of [`Prompt::lasting`].
    pub(super) fn add(
        &mut self,
        prompt: Prompt,
        message: String,
        answer: Answer,
        lasting: Option<Kept>,
    ) {
        self.messages.push(Message::new("user", message));
        self.messages.push(Message::new("assistant", answer.text));
        let Prompt {
            text,
            mut ids,
            rewrites,
            ..
        } = prompt;
        let prompt = ids.len();
        ids.extend(answer.tokens);
        self.rewrites = rewrites;
        self.past = Some(Past {
            text,
            ids,
            prompt,
            kept: answer.kept,
            lasting,
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
        // The last token was not run; it may be one that the template does not repeat, or half a character.
        let run = self.ids.len().saturating_sub(1).max(self.prompt);
        for end in (run..=self.ids.len()).rev() {
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
        chat.add(prompt, "Hi".to_owned(), answer, None);
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
    fn what_no_turn_rewrites_is_read_first_once_answers_are_rewritten() {
        let lasting = |template: &str| {
            let mut chat = conversation(template);
            let first = chat.prompt(&Letters, "Hi").unwrap();
            assert_eq!(first.lasting(), None);
            let answer = Answer {
                text: "Think. Say".to_owned(),
                tokens: letters("Think. Say"),
                kept: None,
            };
            chat.add(first, "Hi".to_owned(), answer, None);
            let next = chat.prompt(&Letters, "More").unwrap();
            next.lasting().map(<[u32]>::to_vec)
        };
        assert_eq!(lasting(TEMPLATE), None);
        let answers = "{{ m.content.split('.')[-1] if m.role == 'assistant' else m.content }}";
        let forgetful = TEMPLATE.replace("{{ m.content }}", answers);
        let text = "<system>Be brief.</><user>Hi</><assistant> Say</><user>More</>";
        assert_eq!(lasting(&forgetful), Some(letters(text)));
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
        chat.add(first, "Hi".to_owned(), answer, None);
        chat.reset();
        assert_eq!(chat.turns(), 0);
        assert_eq!(chat.prompt(&Letters, "Hi").unwrap().ids(), ids);
    }
}
