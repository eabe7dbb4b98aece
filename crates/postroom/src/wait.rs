//! Waiting for a join: the message that waits, and the decision that is taken when it is handled.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::error::{Error, ErrorKind};
use crate::id::{JoinId, MessageId, OwnerToken, WorkItemId};
use crate::join::{JoinStatus, Joins, NO_JOIN};
use crate::message::{
    Message, NAME_LIMIT, OutboxMessage, Receipt, check_name, check_text, headers_text,
};
use crate::outbox::Outbox;
use crate::sql::{Call, Queue};
use crate::store::Abandon;
use crate::tx::{Executor, run_in};

impl Joins {
    /// Enqueues a message that waits for a join and then lets the next one go. It is woken by the
    /// transaction that completes the join.
    ///
    /// # Errors
    /// When the join does not exist or a value is not valid; nothing was written then.
    pub async fn enqueue_wait(&self, wait: &JoinWait) -> Result<Receipt, Error> {
        let (receipt, call) = self.waiting(wait)?;
        self.store.run("enqueue", "outbox", vec![call]).await?;
        self.store.added(Queue::Outbox);
        self.log_waiting(wait);
        Ok(receipt)
    }

    /// As [`Joins::enqueue_wait`], in the caller's transaction.
    ///
    /// # Errors
    /// As [`Joins::enqueue_wait`], and when the client reports an error.
    pub async fn enqueue_wait_in<E: Executor>(
        &self,
        tx: &mut E,
        wait: &JoinWait,
    ) -> Result<Receipt, E::Error> {
        let (receipt, call) = self.waiting(wait)?;
        run_in(&*self.store.db, tx, vec![call]).await?;
        self.store
            .promised(Queue::Outbox, receipt.work_item_id.as_uuid());
        self.log_waiting(wait);
        Ok(receipt)
    }

    fn waiting(&self, wait: &JoinWait) -> Result<(Receipt, Call), Error> {
        wait.check()?;
        let payload = serde_json::to_string(wait).map_err(|_| {
            ErrorKind::InvalidArgument { param: "wait" }.with("cannot be written as JSON")
        })?;
        let id = WorkItemId::new();
        let values = vec![
            id.as_uuid().into(),
            self.store.join_wait_topic.as_str().into(),
            payload.into(),
            headers_text(&BTreeMap::new(), self.store.trace()).into(),
            wait.join_id.into(),
        ];
        let call = self.store.catalog.enqueue_wait.call(values).needs(NO_JOIN);
        Ok((
            Receipt {
                work_item_id: id,
                message_id: MessageId::from_uuid(id.as_uuid()),
            },
            call,
        ))
    }

    fn log_waiting(&self, wait: &JoinWait) {
        tracing::info!(store = %self.store.identifier, topic = %self.store.join_wait_topic, join_id = %wait.join_id, "enqueued");
    }

    /// Handles a wait message that `owner` has claimed, deciding from the join alone:
    /// the join is not complete: the message is handed back and uses up no attempt; it is complete: the
    /// continuation is enqueued and the message acked in one transaction; there is no such join, or the
    /// payload is not a wait: the message is failed, because no retry can help.
    ///
    /// # Errors
    /// `InvalidArgument` when the message is not on the wait topic, `LeaseLost` when `owner` no longer
    /// holds it (nothing was written), and when the database fails.
    pub async fn handle_wait(
        &self,
        owner: OwnerToken,
        message: &OutboxMessage,
    ) -> Result<WaitDecision, Error> {
        if message.topic != self.store.join_wait_topic {
            return Err(
                ErrorKind::InvalidArgument { param: "message" }.with(format!(
                    "expected the topic `{}`",
                    self.store.join_wait_topic
                )),
            );
        }
        self.store
            .log_handling("outbox", &message.topic, &message.message_id);
        let outbox = Outbox {
            store: self.store.clone(),
        };
        let (wait, join) = match self.waited_for(message).await? {
            Waited::For(wait, join) => (wait, join),
            Waited::ForNothing(decision, error) => {
                self.store
                    .log_failed("outbox", &message.topic, &message.message_id, &error);
                let failed = outbox.fail(owner, &[message.id], &error).await?;
                return self.decided(message, &failed, decision);
            }
        };
        if join.status == JoinStatus::Pending {
            let released = outbox
                .abandon(owner, &[message.id], Abandon::default().deferred())
                .await?;
            return self.decided(message, &released, WaitDecision::NotReady);
        }
        let continuation = wait.continuation(join.status, join.failed_steps);
        let receipts = outbox
            .ack_and_enqueue(owner, message.id, continuation.as_slice())
            .await?;
        let decision = match (receipts.first(), join.status) {
            (_, JoinStatus::Cancelled) => WaitDecision::Cancelled,
            (None, _) => WaitDecision::NoContinuation,
            (Some(&receipt), _) if wait.fails(join.failed_steps) => WaitDecision::Failed(receipt),
            (Some(&receipt), _) => WaitDecision::Completed(receipt),
        };
        self.decided(message, &[message.id], decision)
    }

    /// What a dispatcher should make of a wait message.
    pub(crate) async fn waiting_for(&self, message: &OutboxMessage) -> Result<Waiting, Error> {
        let waiting = match self.waited_for(message).await? {
            Waited::ForNothing(_, error) => Waiting::ForNothing(error),
            Waited::For(_, join) if join.status == JoinStatus::Pending => Waiting::NotReady,
            Waited::For(wait, join) => {
                Waiting::Over(wait.continuation(join.status, join.failed_steps))
            }
        };
        tracing::debug!(store = %self.store.identifier, message_id = %message.message_id, decision = waiting.name(), "handled a join wait");
        Ok(waiting)
    }

    /// The wait and its join as it stands, after late steps were counted.
    async fn waited_for(&self, message: &OutboxMessage) -> Result<Waited, Error> {
        // The reason must not quote the payload, so serde's own words are left out.
        let Ok(mut wait) = serde_json::from_str::<JoinWait>(&message.payload) else {
            let error = "the payload is not a join wait".to_owned();
            return Ok(Waited::ForNothing(WaitDecision::Invalid, error));
        };
        wait.on_fail_topic = wait.on_fail_topic.filter(|topic| !topic.is_empty());
        if let Err(error) = wait.check() {
            return Ok(Waited::ForNothing(WaitDecision::Invalid, error.to_string()));
        }
        let id = JoinId::from_uuid(wait.join_id);
        let mut join = self.get(id).await?;
        if join
            .as_ref()
            .is_some_and(|join| join.status == JoinStatus::Pending)
        {
            // A step that was attached after its ack is counted by nobody else.
            match self.reconcile(id).await {
                Ok(0) => {}
                Ok(_) => join = self.get(id).await?,
                Err(error) if error.kind() == NO_JOIN => join = None,
                Err(error) => return Err(error),
            }
        }
        Ok(match join {
            Some(join) => Waited::For(wait, join),
            None => {
                let error = format!("the join {id} does not exist");
                Waited::ForNothing(WaitDecision::UnknownJoin, error)
            }
        })
    }

    fn decided(
        &self,
        message: &OutboxMessage,
        settled: &[WorkItemId],
        decision: WaitDecision,
    ) -> Result<WaitDecision, Error> {
        if settled.is_empty() {
            return Err(ErrorKind::LeaseLost.with("nothing was written"));
        }
        tracing::debug!(store = %self.store.identifier, message_id = %message.message_id, ?decision, "handled a join wait");
        Ok(decision)
    }
}

/// What is to become of a wait message.
pub(crate) enum Waiting {
    NotReady,
    /// The join is finished: what goes on, if anything.
    Over(Option<Message>),
    /// No retry can help.
    ForNothing(String),
}

impl Waiting {
    fn name(&self) -> &'static str {
        match self {
            Self::NotReady => "not ready",
            Self::Over(Some(_)) => "continued",
            Self::Over(None) => "over, with nothing to continue with",
            Self::ForNothing(_) => "invalid",
        }
    }
}

/// What a wait message turned out to be about.
enum Waited {
    For(JoinWait, crate::Join),
    /// No retry can help: what to tell the caller, and what to store with the dead message.
    ForNothing(WaitDecision, String),
}

/// What became of a wait message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitDecision {
    /// The join is not complete: the message was handed back.
    NotReady,
    /// The success continuation was enqueued.
    Completed(Receipt),
    /// A step failed: the failure continuation was enqueued.
    Failed(Receipt),
    /// A step failed, and no failure continuation was asked for.
    NoContinuation,
    /// The join was cancelled: nothing goes on.
    Cancelled,
    /// There is no such join: the message is dead.
    UnknownJoin,
    /// The payload is not a wait, or not a valid one: the message is dead.
    Invalid,
}

/// What a wait message carries: which join, and what to enqueue when it has finished.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JoinWait {
    join_id: Uuid,
    fail_if_any_step_failed: bool,
    on_complete_topic: String,
    on_complete_payload: String,
    on_fail_topic: Option<String>,
    on_fail_payload: Option<String>,
}

impl JoinWait {
    /// Waits for `join`, then enqueues `payload` for `topic`. If any step failed, nothing is enqueued
    /// unless [`JoinWait::on_fail`] or [`JoinWait::even_if_steps_failed`] says so.
    pub fn new(join: JoinId, topic: impl Into<String>, payload: impl Into<String>) -> Self {
        Self {
            join_id: join.as_uuid(),
            fail_if_any_step_failed: true,
            on_complete_topic: topic.into(),
            on_complete_payload: payload.into(),
            on_fail_topic: None,
            on_fail_payload: None,
        }
    }

    /// Goes on with the same message whether or not steps failed.
    #[must_use]
    pub fn even_if_steps_failed(mut self) -> Self {
        self.fail_if_any_step_failed = false;
        self
    }

    /// What to enqueue when a step failed.
    #[must_use]
    pub fn on_fail(mut self, topic: impl Into<String>, payload: impl Into<String>) -> Self {
        self.on_fail_topic = Some(topic.into());
        self.on_fail_payload = Some(payload.into());
        self
    }

    /// Whether failed steps make the join a failure for this wait.
    fn fails(&self, failed_steps: u32) -> bool {
        self.fail_if_any_step_failed && failed_steps > 0
    }

    /// What to enqueue, if anything. An empty topic means that nothing was asked for; an empty payload
    /// is a payload.
    fn continuation(&self, status: JoinStatus, failed_steps: u32) -> Option<Message> {
        if status == JoinStatus::Cancelled {
            return None;
        }
        if !self.fails(failed_steps) {
            return Some(Message::new(
                &self.on_complete_topic,
                &self.on_complete_payload,
            ));
        }
        let topic = self
            .on_fail_topic
            .as_ref()
            .filter(|topic| !topic.is_empty())?;
        Some(Message::new(
            topic,
            self.on_fail_payload.as_deref().unwrap_or_default(),
        ))
    }

    fn check(&self) -> Result<(), Error> {
        JoinId::from_uuid(self.join_id).checked("join")?;
        check_name("on_complete_topic", &self.on_complete_topic, NAME_LIMIT)?;
        check_text("on_complete_payload", &self.on_complete_payload)?;
        if let Some(topic) = &self.on_fail_topic {
            check_name("on_fail_topic", topic, NAME_LIMIT)?;
        }
        check_text(
            "on_fail_payload",
            self.on_fail_payload.as_deref().unwrap_or_default(),
        )
    }
}

/// Payloads never show.
impl std::fmt::Debug for JoinWait {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JoinWait")
            .field("join_id", &self.join_id)
            .field("fail_if_any_step_failed", &self.fail_if_any_step_failed)
            .field("on_complete_topic", &self.on_complete_topic)
            .field("on_fail_topic", &self.on_fail_topic)
            .finish_non_exhaustive()
    }
}
