//! A model as the judge of answers that nobody agrees on: through any endpoint that is configured.

use std::sync::Arc;

use guild_kernel::model::{Failure, Message, Model, Prompt as Question};
use guild_market::delegation::judge::{Ask, Prompt};
use guild_protocol::env::BoxFuture;
use serde_json::json;

/// Asks this model, under this name. A job that names another one is judged by this one all the same: it pays for it.
pub fn ask(model: Arc<dyn Model>, name: &str) -> Ask {
    let name = name.to_owned();
    Arc::new(move |prompt: Prompt| {
        let (model, name) = (model.clone(), name.clone());
        Box::pin(async move {
            let question = Question {
                config: json!({ "model": name }),
                messages: vec![Message::System(prompt.system), Message::User(prompt.user)],
                ..Question::default()
            };
            let answered = model.answer(question, Box::new(|_| {})).await;
            answered.map(|reply| reply.text).map_err(|failure| match failure {
                Failure::Busy { message, .. } => format!("the model is busy: {message}"),
                Failure::Refused(why) => format!("the model refuses: {why}"),
                Failure::Garbled(why) => format!("the model cannot be read: {why}"),
            })
        }) as BoxFuture<_>
    })
}
