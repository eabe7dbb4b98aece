//! Into the inbox, once. The first body that comes under a key is the one that counts: what comes later
//! changes nothing, neither content nor headers, because nobody can tell a sender's second thought from
//! somebody's replay with headers of their own.

use postroom::{Arrival, Inbound, Inbox, InboxMessageId, InboxState};
use tokio::sync::Mutex;

use super::verify::sha256;

/// Requests of as many keys can be kept at once; two keys meet in one turn now and then.
const TURNS: usize = 1_024;

/// A message that has arrived.
pub(super) struct Arrived {
    id: InboxMessageId,
    hash: [u8; 32],
    inbound: Inbound,
    fingerprint: [u8; 32],
}

impl Arrived {
    pub(super) fn new(source: &str, key: String, hash: [u8; 32], inbound: Inbound) -> Self {
        Self {
            fingerprint: sha256(format!("{source}\0{key}").as_bytes()),
            id: InboxMessageId::new(source, key),
            hash,
            inbound,
        }
    }

    /// What it is called where its key must not show.
    pub(super) fn fingerprint(&self) -> &[u8; 32] {
        &self.fingerprint
    }
}

/// What the inbox did with a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kept {
    /// It is there now.
    New,
    /// It was there before.
    Before,
    /// Another body was there before, and still is.
    Otherwise,
}

/// Lets requests with the same key be kept one after the other.
pub(super) struct Turns(Vec<Mutex<()>>);

impl Default for Turns {
    fn default() -> Self {
        Self((0..TURNS).map(|_| Mutex::default()).collect())
    }
}

impl Turns {
    /// Takes the message in unless it is there. A committed message is there for everybody, so what this
    /// process has seen is no part of the answer. An enqueue alone would replace the content of a message
    /// that still waits; so it is looked for first, and its turn keeps it from being replaced meanwhile.
    /// Of two processes that are given two bodies under one key in the same moment, the later one's stays:
    /// one message still, and one effect.
    pub(super) async fn keep(
        &self,
        inbox: &Inbox,
        arrived: &Arrived,
    ) -> Result<Kept, postroom::Error> {
        let [first, second, ..] = arrived.fingerprint;
        let turn = usize::from(u16::from_be_bytes([first, second])) % self.0.len();
        let _turn = self.0[turn].lock().await;
        if let Some(known) = inbox.get(&arrived.id).await?
            // Seen, and no more: somebody was told of it, and nobody has it.
            && known.state != InboxState::Seen
        {
            let same = known.hash.is_none_or(|hash| hash == arrived.hash);
            return Ok(if same { Kept::Before } else { Kept::Otherwise });
        }
        let accepted = inbox.enqueue(&arrived.inbound).await?;
        Ok(match accepted.arrival {
            Arrival::New => Kept::New,
            _ if accepted.hash_differs => Kept::Otherwise,
            _ => Kept::Before,
        })
    }
}
