//! Relays written for the tests: an honest one, and whatever a script does.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use futures_util::{SinkExt, StreamExt};
use guild_protocol::nostr::message::{ClientMessage, RelayMessage};
use guild_protocol::nostr::{Event, Filter, Limits, kind};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;

/// A relay on a port of its own, gone when it is dropped.
pub(super) struct Relay {
    pub(super) url: String,
    _serving: JoinSet<()>,
}

/// What one connection of a script can do.
pub(super) struct Peer {
    socket: WebSocketStream<TcpStream>,
    /// Counts the connections of a relay from 0.
    pub(super) number: u64,
}

impl Peer {
    /// The next message of the client; nothing when it has gone.
    pub(super) async fn hear(&mut self) -> Option<ClientMessage> {
        loop {
            match self.socket.next().await? {
                Ok(Message::Text(text)) => {
                    return ClientMessage::parse(text.as_bytes(), &Limits::DEFAULT).ok();
                }
                Ok(_) => {}
                Err(_) => return None,
            }
        }
    }

    /// Answers everything until the client goes; whether it said goodbye.
    pub(super) async fn until_goodbye(&mut self) -> bool {
        loop {
            match self.socket.next().await {
                Some(Ok(Message::Close(_))) => return true,
                Some(Ok(Message::Text(text))) => {
                    match ClientMessage::parse(text.as_bytes(), &Limits::DEFAULT) {
                        Ok(ClientMessage::Event(event)) => self.ok(&event, true, "").await,
                        Ok(ClientMessage::Req { sub, .. }) => self.eose(&sub).await,
                        _ => {}
                    }
                }
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return false,
            }
        }
    }

    pub(super) async fn say(&mut self, message: &RelayMessage) {
        self.text(message.to_json()).await;
    }

    pub(super) async fn text(&mut self, text: impl Into<String>) {
        // Whoever has gone is told nothing.
        let _ = self.socket.send(Message::text(text.into())).await;
    }

    pub(super) async fn binary(&mut self, bytes: Vec<u8>) {
        let _ = self.socket.send(Message::binary(bytes)).await;
    }

    /// Writes bytes past the web socket: frames that are none.
    pub(super) async fn raw(&mut self, bytes: &[u8]) {
        let _ = self.socket.get_mut().write_all(bytes).await;
    }

    /// Ends the connection in order, so that all that was said arrives.
    pub(super) async fn bye(&mut self) {
        let _ = self.socket.send(Message::Close(None)).await;
        while self.hear().await.is_some() {}
    }

    pub(super) async fn event(&mut self, sub: &str, event: &Event) {
        let (sub, event) = (sub.to_owned(), Box::new(event.clone()));
        self.say(&RelayMessage::Event { sub, event }).await;
    }

    pub(super) async fn eose(&mut self, sub: &str) {
        self.say(&RelayMessage::Eose(sub.to_owned())).await;
    }

    pub(super) async fn closed(&mut self, sub: &str, message: &str) {
        let (sub, message) = (sub.to_owned(), message.to_owned());
        self.say(&RelayMessage::Closed { sub, message }).await;
    }

    pub(super) async fn ok(&mut self, event: &Event, accepted: bool, message: &str) {
        let message = message.to_owned();
        self.say(&RelayMessage::Ok { id: event.id, accepted, message }).await;
    }
}

impl Relay {
    /// A relay that does what the script says with every connection.
    pub(super) async fn script<F, S>(script: F) -> Relay
    where
        F: Fn(Peer) -> S + Send + Sync + 'static,
        S: Future<Output = ()> + Send + 'static,
    {
        Relay::on(TcpListener::bind("127.0.0.1:0").await.unwrap(), "{}", script)
    }

    fn on<F, S>(listener: TcpListener, information: &'static str, script: F) -> Relay
    where
        F: Fn(Peer) -> S + Send + Sync + 'static,
        S: Future<Output = ()> + Send + 'static,
    {
        let url = format!("ws://{}", listener.local_addr().unwrap());
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            let mut connections = JoinSet::new();
            let (script, count) = (Arc::new(script), Arc::new(AtomicU64::new(0)));
            while let Ok((stream, _)) = listener.accept().await {
                let (script, count) = (script.clone(), count.clone());
                connections.spawn(async move {
                    if asks_for_information(&stream).await {
                        return tell(stream, information).await;
                    }
                    let Ok(socket) = tokio_tungstenite::accept_async(stream).await else { return };
                    let number = count.fetch_add(1, Ordering::SeqCst);
                    script(Peer { socket, number }).await;
                });
            }
        });
        Relay { url, _serving: serving }
    }

    /// A relay that keeps and passes on what it is given.
    pub(super) async fn honest(book: &Arc<Book>) -> Relay {
        Relay::honest_on(TcpListener::bind("127.0.0.1:0").await.unwrap(), book)
    }

    pub(super) fn honest_on(listener: TcpListener, book: &Arc<Book>) -> Relay {
        let book = book.clone();
        let information = r#"{"name":"honest","limitation":{"max_limit":7}}"#;
        Relay::on(listener, information, move |peer| serve(peer, book.clone()))
    }

    /// A relay that does what the script says, and says this of itself.
    pub(super) async fn that_says<F, S>(information: &'static str, script: F) -> Relay
    where
        F: Fn(Peer) -> S + Send + Sync + 'static,
        S: Future<Output = ()> + Send + 'static,
    {
        Relay::on(TcpListener::bind("127.0.0.1:0").await.unwrap(), information, script)
    }

    pub(super) fn port(&self) -> u16 {
        self.url.rsplit(':').next().unwrap().parse().unwrap()
    }
}

async fn asks_for_information(stream: &TcpStream) -> bool {
    let mut bytes = [0; 1_024];
    let read = stream.peek(&mut bytes).await.unwrap_or(0);
    String::from_utf8_lossy(&bytes[..read]).contains("application/nostr+json")
}

async fn tell(mut stream: TcpStream, information: &str) {
    let answer =
        format!("HTTP/1.0 200 OK\r\nContent-Type: application/nostr+json\r\n\r\n{information}");
    let _ = stream.write_all(answer.as_bytes()).await;
    let _ = stream.shutdown().await;
}

/// What an honest relay has.
#[derive(Default)]
pub(super) struct Book {
    events: Mutex<Vec<Event>>,
    /// How often each event was published.
    pub(super) published: Mutex<BTreeMap<String, u64>>,
    /// The filters that were asked for.
    pub(super) asked: Mutex<Vec<Filter>>,
    listeners: Mutex<Vec<mpsc::UnboundedSender<News>>>,
}

/// What all connections are told.
#[derive(Clone)]
enum News {
    Event(Event),
    /// The subscriptions of what is new end, with these words.
    Closed(String),
}

impl Book {
    pub(super) fn of(events: &[Event]) -> Arc<Book> {
        Arc::new(Book { events: Mutex::new(events.to_vec()), ..Book::default() })
    }

    pub(super) fn has(&self, event: &Event) -> bool {
        self.events.lock().unwrap().contains(event)
    }

    /// Takes an event and passes it on.
    pub(super) fn add(&self, event: &Event) -> bool {
        let mut events = self.events.lock().unwrap();
        let new = !events.contains(event);
        if new && !kind::is_ephemeral(event.kind) {
            events.push(event.clone());
        }
        if new {
            self.tell(&News::Event(event.clone()));
        }
        new
    }

    /// Ends the subscriptions of what is new.
    pub(super) fn close_live(&self, message: &str) {
        self.tell(&News::Closed(message.to_owned()));
    }

    fn tell(&self, news: &News) {
        self.listeners.lock().unwrap().retain(|listener| listener.send(news.clone()).is_ok());
    }

    /// What passes, newest first, never more than seven: relays cut where they like.
    fn find(&self, filter: &Filter) -> Vec<Event> {
        let events = self.events.lock().unwrap();
        let mut found: Vec<Event> =
            events.iter().filter(|event| filter.matches(event)).cloned().collect();
        found.sort_by_key(|event| std::cmp::Reverse(event.created_at));
        found.truncate(usize::try_from(filter.limit.unwrap_or(7).min(7)).unwrap());
        found
    }
}

async fn serve(mut peer: Peer, book: Arc<Book>) {
    let (listener, mut news) = mpsc::unbounded_channel();
    book.listeners.lock().unwrap().push(listener);
    let mut subs: BTreeMap<String, Vec<Filter>> = BTreeMap::new();
    loop {
        tokio::select! {
            heard = peer.hear() => match heard {
                None => return,
                Some(ClientMessage::Event(event)) => {
                    *book.published.lock().unwrap().entry(event.id.hex()).or_default() += 1;
                    let message = if book.add(&event) { "" } else { "duplicate: known" };
                    peer.ok(&event, message.is_empty(), message).await;
                }
                Some(ClientMessage::Req { sub, filters }) => {
                    book.asked.lock().unwrap().extend(filters.iter().cloned());
                    for event in filters.iter().flat_map(|filter| book.find(filter)) {
                        peer.event(&sub, &event).await;
                    }
                    peer.eose(&sub).await;
                    subs.insert(sub, filters);
                }
                Some(ClientMessage::Close(sub)) => {
                    subs.remove(&sub);
                }
                Some(_) => {}
            },
            Some(news) = news.recv() => match news {
                News::Event(event) => {
                    let wants = |filters: &[Filter]| filters.iter().any(|f| f.matches(&event));
                    for (sub, _) in subs.iter().filter(|(_, filters)| wants(filters)) {
                        peer.event(sub, &event).await;
                    }
                }
                News::Closed(message) => {
                    let live = |sub: &String, _: &mut Vec<Filter>| sub.starts_with("live");
                    for (sub, _) in subs.extract_if(.., live) {
                        peer.closed(&sub, &message).await;
                    }
                }
            },
        }
    }
}
