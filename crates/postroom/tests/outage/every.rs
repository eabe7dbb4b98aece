//! Every kind of operation, to be tried in a bad moment.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use postroom::{
    Abandon, Error, Inbound, InboxMessageId, JoinId, JoinWait, List, Message, NewJoin, OwnerToken,
    Postroom, State, WorkItemId,
};

pub(crate) const LEASE: Duration = Duration::from_secs(3600);

pub(crate) type Doing = Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>;

/// What an operation works on: three messages that are steps of one join.
#[derive(Clone)]
pub(crate) struct Scene {
    pub(crate) room: Postroom,
    pub(crate) owner: OwnerToken,
    pub(crate) ids: Vec<WorkItemId>,
    pub(crate) join: JoinId,
    pub(crate) inbound: InboxMessageId,
}

/// How far the messages of a scene have come before the operation starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    Planned,
    Enqueued,
    Claimed,
    Dead,
}

pub(crate) struct Operation {
    pub(crate) name: &'static str,
    pub(crate) stage: Stage,
    pub(crate) run: fn(Scene) -> Doing,
}

macro_rules! operation {
    ($stage:ident, $name:literal, |$scene:ident| $body:expr) => {
        Operation {
            name: $name,
            stage: Stage::$stage,
            run: |$scene| Box::pin(async move { $body.await.map(drop) }),
        }
    };
}

pub(crate) fn operations() -> Vec<Operation> {
    let mut operations = outbox();
    operations.extend(inbox());
    operations.extend(joins());
    operations
}

fn outbox() -> Vec<Operation> {
    vec![
        operation!(Planned, "enqueue", |scene| scene
            .room
            .outbox()
            .enqueue(&Message::new("a", "b"))),
        operation!(Planned, "enqueue_many", |scene| scene
            .room
            .outbox()
            .enqueue_many(&scene.messages())),
        operation!(Enqueued, "claim", |scene| scene.room.outbox().claim(
            scene.owner,
            LEASE,
            3
        )),
        operation!(Claimed, "ack", |scene| scene
            .room
            .outbox()
            .ack(scene.owner, &scene.ids)),
        operation!(Claimed, "fail", |scene| scene.room.outbox().fail(
            scene.owner,
            &scene.ids,
            "error"
        )),
        operation!(Claimed, "abandon", |scene| scene.room.outbox().abandon(
            scene.owner,
            &scene.ids,
            Abandon::default()
        )),
        operation!(Claimed, "renew", |scene| scene.room.outbox().renew(
            scene.owner,
            &scene.ids,
            LEASE
        )),
        operation!(Claimed, "reap", |scene| scene.room.outbox().reap()),
        operation!(Dead, "replay", |scene| scene
            .room
            .outbox()
            .replay(&scene.ids)),
        operation!(Dead, "purge", |scene| scene.room.outbox().purge(&scene.ids)),
        operation!(Enqueued, "purge_older_than", |scene| scene
            .room
            .outbox()
            .purge_older_than(LEASE)),
        operation!(Enqueued, "cleanup", |scene| scene
            .room
            .outbox()
            .cleanup(LEASE)),
        operation!(Enqueued, "cleanup_batch", |scene| scene
            .room
            .outbox()
            .cleanup_batch(LEASE, 10)),
        operation!(Enqueued, "get", |scene| scene
            .room
            .outbox()
            .get(scene.ids[0])),
        operation!(Enqueued, "list", |scene| scene
            .room
            .outbox()
            .list(&List::new(State::Ready))),
        operation!(Enqueued, "counts", |scene| scene.room.outbox().counts()),
    ]
}

fn inbox() -> Vec<Operation> {
    vec![
        operation!(Planned, "already_processed", |scene| scene
            .room
            .inbox()
            .already_processed(&scene.inbound)),
        operation!(Planned, "inbox enqueue", |scene| scene
            .room
            .inbox()
            .enqueue(&scene.arrival())),
        operation!(Planned, "inbox claim", |scene| scene.room.inbox().claim(
            scene.owner,
            LEASE,
            3
        )),
        operation!(Planned, "inbox ack", |scene| scene
            .room
            .inbox()
            .ack(scene.owner, std::slice::from_ref(&scene.inbound))),
        operation!(Planned, "inbox abandon", |scene| scene
            .room
            .inbox()
            .abandon(
                scene.owner,
                std::slice::from_ref(&scene.inbound),
                Abandon::default()
            )),
        operation!(Planned, "inbox fail", |scene| scene.room.inbox().fail(
            scene.owner,
            std::slice::from_ref(&scene.inbound),
            "error"
        )),
        operation!(Planned, "inbox reap", |scene| scene.room.inbox().reap()),
        operation!(Planned, "mark_processing", |scene| scene
            .room
            .inbox()
            .mark_processing(&scene.inbound)),
        operation!(Planned, "mark_dead", |scene| scene
            .room
            .inbox()
            .mark_dead(&scene.inbound)),
        operation!(Planned, "mark_processed", |scene| scene
            .room
            .inbox()
            .mark_processed(&scene.inbound)),
        operation!(Planned, "revive", |scene| scene
            .room
            .inbox()
            .revive(std::slice::from_ref(&scene.inbound))),
        operation!(Planned, "inbox purge", |scene| scene
            .room
            .inbox()
            .purge(std::slice::from_ref(&scene.inbound))),
        operation!(Planned, "inbox cleanup", |scene| scene
            .room
            .inbox()
            .cleanup(LEASE)),
        operation!(Planned, "inbox get", |scene| scene
            .room
            .inbox()
            .get(&scene.inbound)),
        operation!(Planned, "inbox counts", |scene| scene.room.inbox().counts()),
    ]
}

fn joins() -> Vec<Operation> {
    vec![
        operation!(Planned, "start", |scene| scene
            .room
            .joins()
            .start(&NewJoin::new(3))),
        operation!(Enqueued, "attach", |scene| scene
            .room
            .joins()
            .attach(scene.join, scene.ids[0].as_uuid().into())),
        operation!(Enqueued, "report", |scene| scene
            .room
            .joins()
            .report_failed(scene.join, scene.ids[0].as_uuid().into())),
        operation!(Dead, "reconcile", |scene| scene
            .room
            .joins()
            .reconcile(scene.join)),
        operation!(Enqueued, "cancel", |scene| scene
            .room
            .joins()
            .cancel(scene.join)),
        operation!(Enqueued, "enqueue_wait", |scene| scene
            .room
            .joins()
            .enqueue_wait(&JoinWait::new(scene.join, "next", "{}"))),
        operation!(Enqueued, "join get", |scene| scene
            .room
            .joins()
            .get(scene.join)),
        operation!(Enqueued, "join members", |scene| scene
            .room
            .joins()
            .members(scene.join, None, 10)),
        operation!(Enqueued, "join cleanup", |scene| scene
            .room
            .joins()
            .cleanup(LEASE)),
        operation!(Planned, "deploy", |scene| scene.room.deploy()),
        operation!(Planned, "verify", |scene| scene.room.verify()),
    ]
}

impl Scene {
    pub(crate) async fn new(room: &Postroom, stage: Stage) -> Self {
        let scene = Self {
            room: room.clone(),
            owner: OwnerToken::new(),
            ids: (0..3).map(|_| WorkItemId::new()).collect(),
            join: room.joins().start(&NewJoin::new(100)).await.unwrap(),
            inbound: InboxMessageId::new("source", OwnerToken::new().to_string()),
        };
        let outbox = room.outbox();
        if stage != Stage::Planned {
            outbox.enqueue_many(&scene.messages()).await.unwrap();
        }
        if matches!(stage, Stage::Claimed | Stage::Dead) {
            let claimed = outbox.claim(scene.owner, LEASE, 10_000).await.unwrap();
            assert!(
                scene
                    .ids
                    .iter()
                    .all(|id| claimed.iter().any(|message| message.id == *id))
            );
        }
        if stage == Stage::Dead {
            assert_eq!(
                outbox
                    .fail(scene.owner, &scene.ids, "error")
                    .await
                    .unwrap()
                    .len(),
                3
            );
        }
        scene
    }

    pub(crate) fn messages(&self) -> Vec<Message> {
        self.ids
            .iter()
            .map(|id| Message::new("a", "b").id(*id).join(self.join))
            .collect()
    }

    fn arrival(&self) -> Inbound {
        Inbound::new(
            self.inbound.source.as_str(),
            self.inbound.message_id.as_str(),
            "a",
            "b",
        )
    }
}
