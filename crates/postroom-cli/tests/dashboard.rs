//! The dashboard in a real browser: every page, every form, and what must not work.

mod browser;
mod daemon;

use std::time::{Duration, SystemTime};

use browser::{Browser, corpus};
use daemon::Daemon;
use postroom::{
    Abandon, Inbound, InboxMessageId, InboxState, JoinId, JoinWait, List, Message, NewJoin,
    OwnerToken, Postroom, State, WorkItemId,
};
use serde_json::json;
use testkit::{Backend, Fixture, LEASE};

/// Nothing is dispatched: messages stay as the test has put them.
const STILL: &str = "[dispatch]\nenabled = false\n";

/// A daemon on a fresh store, and a browser at it.
struct Scene {
    browser: Browser,
    daemon: Daemon,
    fixture: Fixture,
}

impl Scene {
    /// Payloads may be seen.
    async fn new() -> Option<Self> {
        Self::with(&format!("{STILL}[auth]\nlocal_payloads = true\n")).await
    }

    async fn with(config: &str) -> Option<Self> {
        let fixture = Fixture::new(Backend::Sqlite).await;
        let daemon = Daemon::on(&fixture, config).start().await;
        let browser = Browser::open(format!("http://{}", daemon.address())).await?;
        Some(Self {
            browser,
            daemon,
            fixture,
        })
    }

    fn room(&self) -> &Postroom {
        &self.fixture.room
    }

    async fn dead(&self) -> usize {
        let list = List::new(State::Dead);
        self.room()
            .outbox()
            .list(&list)
            .await
            .expect("a list")
            .len()
    }
}

/// Enqueues messages and gives them up.
async fn die(room: &Postroom, messages: &[Message], error: &str) -> Vec<WorkItemId> {
    let receipts = room
        .outbox()
        .enqueue_many(messages)
        .await
        .expect("an enqueue");
    let ids: Vec<_> = receipts
        .iter()
        .map(|receipt| receipt.work_item_id)
        .collect();
    let owner = OwnerToken::new();
    let claimed = room.outbox().claim(owner, LEASE, messages.len()).await;
    assert_eq!(claimed.expect("a claim").len(), messages.len());
    room.outbox()
        .fail(owner, &ids, error)
        .await
        .expect("a fail");
    ids
}

/// A shop on a busy day: messages in every state, some dead, webhooks, a join that waits.
struct Shop {
    dead: WorkItemId,
    retrying: WorkItemId,
    join: JoinId,
}

async fn shop(room: &Postroom) -> Shop {
    let outbox = room.outbox();
    let refused: Vec<_> = (0..7)
        .map(|n| {
            Message::new(
                "payment.capture",
                format!(r#"{{"order":{n},"amount":"{n}9.90"}}"#),
            )
            .correlation(format!("order-{n}"))
            .header("content-type", "application/json")
        })
        .collect();
    let dead = die(
        room,
        &refused,
        "the payment provider answered 402: card declined",
    )
    .await[0];
    let lost = [Message::new("mail.welcome", "{}").correlation("user-19")];
    die(room, &lost, "no such mailbox").await;

    let done: Vec<_> = (0..30)
        .map(|n| {
            Message::new("order.created", format!(r#"{{"order":{n}}}"#))
                .correlation(format!("order-{n}"))
        })
        .collect();
    outbox.enqueue_many(&done).await.expect("an enqueue");
    let owner = OwnerToken::new();
    let claimed = outbox.claim(owner, LEASE, 100).await.expect("a claim");
    let ids: Vec<_> = claimed.iter().map(|message| message.id).collect();
    outbox.ack(owner, &ids).await.expect("an ack");

    let join = room
        .joins()
        .start(&NewJoin::new(5).grouping_key("report-2024-11"))
        .await
        .expect("a join");
    let steps: Vec<_> = ["customers", "orders", "invoices", "stock"]
        .iter()
        .map(|what| Message::new(format!("extract.{what}"), "{}").join(join))
        .collect();
    outbox.enqueue_many(&steps).await.expect("an enqueue");
    room.joins()
        .enqueue_wait(&JoinWait::new(join, "report.build", "{}"))
        .await
        .expect("a wait");
    let owner = OwnerToken::new();
    let claimed = outbox.claim(owner, LEASE, 2).await.expect("a claim");
    outbox.ack(owner, &[claimed[0].id]).await.expect("an ack");
    let retrying = claimed[1].id;
    let retry = Abandon::after(Duration::from_secs(600)).error("the warehouse does not answer");
    outbox
        .abandon(owner, &[retrying], retry)
        .await
        .expect("an abandon");

    let more: Vec<_> = (0..70)
        .map(|n| {
            Message::new("stock.reserve", format!(r#"{{"item":{n}}}"#))
                .correlation(format!("order-{n}"))
        })
        .collect();
    outbox.enqueue_many(&more).await.expect("an enqueue");
    let later =
        Message::new("mail.reminder", "{}").due_at(SystemTime::now() + Duration::from_secs(7_200));
    outbox.enqueue(&later).await.expect("an enqueue");
    let owner = OwnerToken::new();
    outbox.claim(owner, LEASE, 6).await.expect("a claim");

    let inbox = room.inbox();
    for n in 0..12 {
        let inbound = Inbound::new(
            "stripe",
            format!("evt_{n}"),
            "payment.succeeded",
            r#"{"ok":true}"#,
        )
        .hash([n; 32]);
        inbox.enqueue(&inbound).await.expect("an enqueue");
    }
    let owner = OwnerToken::new();
    let claimed = inbox.claim(owner, LEASE, 6).await.expect("a claim");
    let ids: Vec<_> = claimed.iter().map(|message| message.id.clone()).collect();
    inbox.ack(owner, &ids[..4]).await.expect("an ack");
    inbox
        .fail(owner, &ids[4..5], "the order is not known")
        .await
        .expect("a fail");
    Shop {
        dead,
        retrying,
        join,
    }
}

/// Every page there is, with something on it.
fn pages(shop: &Shop) -> Vec<String> {
    [
        "/",
        "/?window=3600",
        "/topics",
        "/messages",
        "/messages?state=dead&topic=payment.capture&age=newer:1h",
        "/dead",
        "/dead?queue=inbox",
        "/inbox",
        "/inbox/message?source=stripe&id=evt_4",
        "/joins",
        "/joins?key=report-2024-11",
        "/stores",
        "/audit",
    ]
    .map(str::to_owned)
    .into_iter()
    .chain([
        format!("/messages/{}", shop.dead),
        format!("/messages/{}", shop.retrying),
        format!("/joins/{}", shop.join),
    ])
    .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_page_loads_and_the_console_stays_silent() {
    let Some(scene) = Scene::new().await else {
        return;
    };
    let browser = &scene.browser;
    for path in [
        "/",
        "/topics",
        "/messages",
        "/dead",
        "/inbox",
        "/joins",
        "/stores",
        "/audit",
    ] {
        browser.visit(path).await;
        assert!(browser.has("h1").await, "{path}");
        assert_eq!(
            browser.console().await,
            Vec::<String>::new(),
            "{path}, empty"
        );
    }
    let shop = shop(scene.room()).await;
    for path in pages(&shop) {
        browser.visit(&path).await;
        assert!(browser.has("main h1").await, "{path}");
        assert_eq!(browser.console().await, Vec::<String>::new(), "{path}");
    }
    scene.browser.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_overview_follows_the_queues_and_can_be_paused() {
    let Some(scene) = Scene::new().await else {
        return;
    };
    let browser = &scene.browser;
    browser.visit("/").await;
    assert_eq!(browser.text("#tile-ready strong").await, "0");
    let ready = |number: &'static str| {
        browser.eventually("the tile follows", move || async move {
            Ok(browser.texts("#tile-ready strong").await == [number])
        })
    };
    let message = Message::new("order.created", "{}");
    let many = vec![message.clone(); 1_234];
    scene
        .room()
        .outbox()
        .enqueue_many(&many)
        .await
        .expect("an enqueue");
    ready("1,234").await;
    assert_eq!(browser.count("#live figure svg path.line").await, 6);

    browser.click("[data-pause]").await;
    scene
        .room()
        .outbox()
        .enqueue(&message)
        .await
        .expect("an enqueue");
    browser.click("[data-pause]").await;
    ready("1,235").await;
    assert_eq!(browser.console().await, Vec::<String>::new());
    scene.browser.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_letter_is_replayed_by_clicking() {
    let Some(scene) = Scene::new().await else {
        return;
    };
    let (browser, outbox) = (&scene.browser, scene.room().outbox());
    let messages = [
        Message::new("a", "1"),
        Message::new("b", "2"),
        Message::new("b", "3"),
    ];
    let ids = die(scene.room(), &messages, "broken").await;

    browser.visit("/dead").await;
    assert_eq!(browser.count("input[name=key]").await, 3);
    browser.click(&format!("input[value='{}']", ids[0])).await;
    browser.follow("button[value=replay]").await;
    assert_eq!(browser.text("h1").await, "Replay 1 dead message?");
    assert_eq!(scene.dead().await, 3, "asking changes nothing");
    browser.follow("#confirm").await;
    assert_eq!(
        browser.text(".notice").await,
        "1 message replayed: ready again."
    );
    let replayed = outbox.get(ids[0]).await.expect("a look").expect("it");
    assert_eq!(replayed.state, State::Ready);
    assert_eq!(scene.dead().await, 2);

    browser.visit(&format!("/messages/{}", ids[0])).await;
    let history = browser.texts(".timeline .what").await;
    assert!(
        history.iter().any(|what| what == "dead.replay by local"),
        "{history:?}"
    );

    browser.visit("/dead?topic=b").await;
    browser.click("input[name=all]").await;
    browser.follow("button[value=replay]").await;
    assert_eq!(browser.text("h1").await, "Replay 2 dead messages?");
    browser.follow("#confirm").await;
    assert_eq!(scene.dead().await, 0);
    assert_eq!(browser.console().await, Vec::<String>::new());
    scene.browser.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn purging_asks_first_and_names_the_number() {
    let Some(scene) = Scene::new().await else {
        return;
    };
    let browser = &scene.browser;
    let ids = die(
        scene.room(),
        &[Message::new("a", "1"), Message::new("a", "2")],
        "broken",
    )
    .await;

    browser.visit("/dead").await;
    browser.click("[data-select-page]").await;
    browser.follow("button[value=purge]").await;
    assert_eq!(browser.text("h1").await, "Purge 2 dead messages?");
    browser.follow(".answers a").await;
    assert_eq!(scene.dead().await, 2, "nothing was purged");

    browser.visit(&format!("/messages/{}", ids[1])).await;
    browser.follow("button[value=purge]").await;
    assert_eq!(browser.text("#confirm").await, "Purge 1 dead message");
    browser.follow("#confirm").await;
    assert_eq!(browser.text(".notice").await, "1 message purged.");
    let left = scene.room().outbox().get(ids[0]).await.expect("a look");
    assert_eq!(left.map(|message| message.state), Some(State::Dead));
    assert!(
        scene
            .room()
            .outbox()
            .get(ids[1])
            .await
            .expect("a look")
            .is_none()
    );

    browser.visit("/audit").await;
    assert_eq!(
        browser.texts("tbody td[data-label=Did]").await,
        ["dead.purge"]
    );
    assert_eq!(browser.texts("tbody td[data-label=Who]").await, ["local"]);

    browser.visit("/dead").await;
    browser.follow("button[value=purge]").await;
    assert!(
        browser
            .text("main")
            .await
            .contains("No message is selected.")
    );
    scene.browser.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_inbox_message_is_revived_and_a_join_cancelled() {
    let Some(scene) = Scene::new().await else {
        return;
    };
    let browser = &scene.browser;
    let shop = shop(scene.room()).await;
    browser.visit("/inbox?state=dead").await;
    browser.follow("[data-row]").await;
    assert_eq!(browser.text("h1").await, "stripe/evt_4");
    browser.follow("button[value=replay]").await;
    assert_eq!(browser.text("h1").await, "Revive 1 dead message?");
    browser.follow("#confirm").await;
    let id = InboxMessageId::new("stripe", "evt_4");
    let message = scene.room().inbox().get(&id).await.expect("a look");
    assert_eq!(message.map(|it| it.state), Some(InboxState::Processing));

    browser.visit("/joins").await;
    assert_eq!(browser.texts(".progress span").await, ["1 of 5 completed"]);
    browser.follow("[data-row]").await;
    assert_eq!(browser.place().await, format!("/joins/{}", shop.join));
    let reasons = browser.texts(".reasons li").await;
    assert_eq!(
        reasons,
        [
            "1 step of 5 has not been attached yet.",
            "2 steps (2 topics): in flight, in a handler's hands.",
            "1 step (topic extract.orders): waiting for another attempt after a failure.",
        ]
    );
    browser.click(".ask summary").await;
    browser.follow(".ask button").await;
    assert_eq!(browser.text(".tools .badge").await, "cancelled");
    assert_eq!(browser.console().await, Vec::<String>::new());
    scene.browser.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_are_filtered_and_paged() {
    let Some(scene) = Scene::new().await else {
        return;
    };
    let browser = &scene.browser;
    shop(scene.room()).await;
    browser.visit("/messages").await;
    assert_eq!(browser.count("tbody tr").await, 50);
    let mut seen = browser.texts("[data-row]").await;
    while browser.has("a[rel=next]").await {
        browser.follow("a[rel=next]").await;
        seen.extend(browser.texts("[data-row]").await);
    }
    let pages = seen.len();
    seen.sort();
    seen.dedup();
    assert_eq!((seen.len(), pages), (114, 114), "each on one page");
    browser.follow("a[rel=first]").await;
    assert_eq!(browser.place().await, "/messages");

    browser.choose("select[name=state]", "dead").await;
    browser.follow(".filter button").await;
    assert_eq!(browser.count("tbody tr").await, 8);
    browser.fill("input[name=topic]", "mail.welcome").await;
    browser.follow(".filter button").await;
    assert_eq!(
        browser.texts("td[data-label='Correlation id']").await,
        ["user-19"]
    );
    browser.follow(".filter a.plain").await;
    browser.fill("input[name=correlation]", "order-3").await;
    browser.follow(".filter button").await;
    assert_eq!(browser.count("tbody tr").await, 3);
    browser.choose("select[name=age]", "older:1h").await;
    browser.follow(".filter button").await;
    assert_eq!(browser.text(".empty").await, "No message is like that.");

    browser.visit("/inbox?source=stripe&state=done").await;
    assert_eq!(browser.count("tbody tr").await, 4);
    for number in 0..55 {
        let id = InboxMessageId::new("a: b&c", format!("%{number}"));
        let check = scene.room().inbox().already_processed(&id).await;
        assert!(!check.expect("a check"));
    }
    browser.visit("/inbox?source=a%3A+b%26c").await;
    assert_eq!(browser.count("tbody tr").await, 50);
    browser.follow("a[rel=next]").await;
    assert_eq!(browser.count("tbody tr").await, 5);
    assert!(!browser.has("a[rel=next]").await);

    browser.visit("/").await;
    browser.press("/").await;
    let search = browser
        .script("return document.activeElement.id", vec![])
        .await;
    assert_eq!(search, "search");
    browser.fill("#search", "order-5\u{e007}").await;
    browser
        .eventually("the search", || async {
            Ok(browser.place().await == "/messages?correlation=order-5")
        })
        .await;
    browser.find("[data-row]").await;
    browser.press("j").await;
    browser.press("j").await;
    let row = browser
        .script(
            "return [...document.querySelectorAll('[data-row]')].indexOf(document.activeElement)",
            vec![],
        )
        .await;
    assert_eq!(row, 1);
    assert_eq!(browser.console().await, Vec::<String>::new());
    scene.browser.close().await;
}

/// What should not be on any page: foreign elements, and attributes that run something.
const FOREIGN: &str = r#"
    const strange = [...document.querySelectorAll(
        "iframe, object, embed, video, audio, base, math, template, svg script, noscript p, link:not([rel=icon], [rel=stylesheet]), meta[http-equiv]"
    )];
    for (const element of document.querySelectorAll("*")) {
        const local = element.src ? new URL(element.src).pathname.startsWith("/assets/") : true;
        const handlers = [...element.attributes].filter(({ name }) =>
            name.startsWith("on") || name === "style" || (name.includes("hx-") && element.id !== "live"));
        const links = ["href", "action", "formaction"].filter((name) =>
            element.hasAttribute(name) && !/^([/?#]|$)/.test(element.getAttribute(name)));
        if (!local || handlers.length || links.length) strange.push(element);
    }
    const scripts = [...document.scripts].filter((script) => !script.src || script.textContent);
    return { ran: window.ran ?? null, strange: [...strange, ...scripts].map((element) => element.outerHTML.slice(0, 200)) };
"#;

/// Shows X10.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_that_messages_carry_is_run() {
    let name = r#"<img src=x onerror=window.ran=1>"#;
    let token = format!(
        "{STILL}[[auth.token]]\nname = '{name}'\nrole = 'admin'\npayloads = true\nsecret = 'letmein'\n"
    );
    let Some(scene) = Scene::with(&token).await else {
        return;
    };
    let (browser, room) = (&scene.browser, scene.room());
    let texts = corpus::texts();
    assert!(texts.len() >= 100, "{}", texts.len());

    let mut pages: Vec<String> = Vec::new();
    for text in &texts {
        let message = Message::new(text, text)
            .correlation(text)
            .header(text, text);
        let id = die(room, &[message], text).await[0];
        pages.push(format!("/messages/{id}"));

        let inbound = Inbound::new(text, text, text, text)
            .correlation(text)
            .header(text, text);
        room.inbox().enqueue(&inbound).await.expect("an enqueue");
        let owner = OwnerToken::new();
        let claimed = room.inbox().claim(owner, LEASE, 1).await.expect("a claim");
        let ids = [claimed[0].id.clone()];
        room.inbox().fail(owner, &ids, text).await.expect("a fail");
        let part = encoded(text);
        pages.push(format!("/inbox/message?source={part}&id={part}"));
    }
    // Joins are many fields on one page: some of all kinds are enough.
    for text in texts.iter().step_by(4) {
        let join = NewJoin::new(2).grouping_key(text).metadata(text);
        let join = room.joins().start(&join).await.expect("a join");
        room.outbox()
            .enqueue(&Message::new(text, text).join(join))
            .await
            .expect("an enqueue");
        pages.push(format!("/joins/{join}"));
        pages.push(format!("/joins?key={}", encoded(text)));
    }
    for text in texts.iter().step_by(8) {
        let part = encoded(text);
        for page in [
            "/messages?topic",
            "/messages?correlation",
            "/messages?state",
            "/messages?age",
            "/messages?after",
            "/inbox?source",
            "/dead?topic",
            "/topics?store",
            "/search?q",
            "/joins?key",
            "/nowhere/x?y",
            "/messages/x?y",
        ] {
            pages.push(format!("{page}={part}"));
        }
        pages.push(format!("/{}", part.replace('/', "%2F")));
    }
    let hostile = format!(
        "/login?next={}",
        encoded("\"><script>window.ran=1</script>")
    );
    browser.visit(&hostile).await;
    browser.fill("#token", "letmein").await;
    browser.follow("button.main").await;
    browser.console().await;

    // Everything that dead letters show goes through the form once, the name of the visitor into the audit.
    browser.visit("/dead").await;
    browser.click("[data-select-page]").await;
    browser.follow("button[value=replay]").await;
    assert_harmless(browser, "/dead/confirm").await;
    browser.follow("#confirm").await;
    browser.visit("/dead?queue=inbox").await;
    browser.click("[data-select-page]").await;
    browser.follow("button[value=replay]").await;
    assert_harmless(browser, "/dead/confirm, inbox").await;
    browser.follow("#confirm").await;
    assert!(browser.text(".notice").await.starts_with("50 messages"));

    for start in [
        "/",
        "/topics",
        "/messages",
        "/dead",
        "/dead?queue=inbox",
        "/inbox",
        "/joins",
        "/audit",
    ] {
        browser.visit(start).await;
        assert_harmless(browser, start).await;
        while browser.has("a[rel=next]").await {
            browser.follow("a[rel=next]").await;
            assert_harmless(browser, start).await;
        }
    }
    for page in &pages {
        browser.visit(page).await;
        assert_harmless(browser, page).await;
    }
    // Somebody clicks on everything that could be meant.
    assert_eq!(
        browser.script("return document.cookie", vec![]).await,
        "",
        "scripts do not see the session"
    );
    scene.browser.close().await;
}

async fn assert_harmless(browser: &Browser, page: &str) {
    let found = browser.script(FOREIGN, vec![]).await;
    assert_eq!(found, json!({ "ran": null, "strange": [] }), "{page}");
    // A page that is an error is one in the console too; scripts that were refused would be others.
    let console: Vec<_> = browser
        .console()
        .await
        .into_iter()
        .filter(|entry| !entry.contains("the server responded with a status of 40"))
        .collect();
    assert_eq!(console, Vec::<String>::new(), "{page}");
}

fn encoded(text: &str) -> String {
    let bytes = text.bytes().map(|byte| format!("%{byte:02X}"));
    bytes.collect()
}

/// Shows X9.
#[tokio::test(flavor = "multi_thread")]
async fn a_form_of_another_site_changes_nothing() {
    let Some(scene) = Scene::new().await else {
        return;
    };
    let (browser, room) = (&scene.browser, scene.room());
    let ids = die(
        room,
        &[Message::new("a", "1"), Message::new("a", "2")],
        "broken",
    )
    .await;
    for name in ["localhost", "127.0.0.1"] {
        for action in ["/dead/purge", "/dead/replay", "/dead/confirm", "/logout"] {
            let form = attack(scene.daemon.url(action), ids[0]).await;
            browser.visit(&format!("http://{name}:{form}/")).await;
            browser.follow("button").await;
            assert!(
                browser.text("body").await.contains("another site"),
                "{name} {action}"
            );
            assert_eq!(scene.dead().await, 2, "{name} {action}");
        }
        // Without a form, by a script that does not want to read the answer.
        let site = attack(scene.daemon.url("/"), ids[0]).await;
        browser.visit(&format!("http://{name}:{site}/")).await;
        let script = "return fetch(arguments[0], { method: 'POST', mode: 'no-cors', credentials: 'include', \
            headers: { 'Content-Type': 'application/x-www-form-urlencoded' }, \
            body: 'queue=outbox&key=' + arguments[1] }).then(() => 'sent', () => 'refused')";
        browser
            .script(
                script,
                vec![
                    json!(scene.daemon.url("/dead/purge")),
                    json!(ids[1].to_string()),
                ],
            )
            .await;
        assert_eq!(scene.dead().await, 2, "{name} by a script");
    }
    // The same by hand, and what only looks.
    let form = [("content-type", "application/x-www-form-urlencoded")];
    let body = format!("queue=outbox&key={}", ids[0]);
    for headers in [
        [form[0], ("origin", "http://evil.example")],
        [form[0], ("origin", "null")],
        [form[0], ("sec-fetch-site", "cross-site")],
    ] {
        scene
            .daemon
            .post("/dead/purge", &headers, body.clone())
            .await
            .expect(403);
    }
    for path in ["/dead/purge", "/dead/replay", "/dead/confirm", "/logout"] {
        scene
            .daemon
            .get(&format!("{path}?{body}"), &[])
            .await
            .expect(405);
    }
    assert_eq!(scene.dead().await, 2);
    scene
        .daemon
        .post("/dead/purge", &form, body)
        .await
        .expect(303);
    assert_eq!(
        scene.dead().await,
        1,
        "the same from nowhere else is obeyed"
    );
    scene.browser.close().await;
}

/// Serves a page with a form that somebody is made to send. Gives its port.
async fn attack(action: String, key: WorkItemId) -> u16 {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let page = format!(
        "<!doctype html><link rel=icon href=data:,><form method=post action='{action}'>\
         <input name=queue value=outbox><input name=key value={key}><input name=action value=replay><button>A prize!</button></form>"
    );
    let routes = axum::Router::new().fallback(move || async move { axum::response::Html(page) });
    tokio::spawn(async move { axum::serve(listener, routes).await });
    port
}

/// Three people with what each may do.
const PEOPLE: &str = "
[[auth.token]]
name = 'vera'
role = 'viewer'
secret = 'token-of-vera'

[[auth.token]]
name = 'otto'
role = 'operator'
secret = 'token-of-otto'

[[auth.token]]
name = 'ada'
role = 'admin'
payloads = true
secret = 'token-of-ada'
";

async fn sign_in(browser: &Browser, token: &str) {
    browser.visit("/login").await;
    browser.fill("#token", token).await;
    browser.follow("button.main").await;
}

/// Shows X8.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_signs_in_may_do_what_their_role_says() {
    let Some(scene) = Scene::with(&format!("{STILL}{PEOPLE}")).await else {
        return;
    };
    let browser = &scene.browser;
    let secret = r#"{"card":"4111111111111111"}"#;
    let message = Message::new("a", secret).header("authorization", "hunter2");
    let ids = die(scene.room(), &[message], "broken").await;
    let page = format!("/messages/{}", ids[0]);

    browser.visit(&page).await;
    assert_eq!(browser.place().await, format!("/login?next={page}"));
    assert!(!browser.has(".menu").await, "strangers see no menu");
    browser.fill("#token", "guess").await;
    browser.follow("button.main").await;
    assert_eq!(
        browser.text(".notice.bad").await,
        "This token is not known."
    );
    browser.console().await;

    browser.fill("#token", "token-of-vera").await;
    browser.follow("button.main").await;
    assert_eq!(
        browser.place().await,
        page,
        "back to where they wanted to go"
    );
    assert_eq!(browser.text(".who .name").await, "vera viewer");
    let source = browser
        .script("return document.documentElement.outerHTML", vec![])
        .await;
    for hidden in ["4111111111111111", "hunter2"] {
        assert!(!source.to_string().contains(hidden), "{hidden} shows");
    }
    assert!(
        browser
            .text("main")
            .await
            .contains("Hidden: seeing payloads is a right of its own.")
    );
    assert!(!browser.has("button[value=replay]").await);
    browser.visit("/dead").await;
    assert!(!browser.has("input[name=key]").await);
    assert_eq!(browser.console().await, Vec::<String>::new());
    browser.follow(".who form button").await;
    assert_eq!(browser.place().await, "/login");
    browser.visit("/dead").await;
    assert_eq!(browser.place().await, "/login?next=/dead");

    sign_in(browser, "token-of-otto").await;
    browser.visit(&page).await;
    assert!(browser.has("button[value=replay]").await);
    assert!(!browser.has("button[value=purge]").await);
    browser.follow(".who form button").await;

    sign_in(browser, "token-of-ada").await;
    browser.visit(&page).await;
    assert!(browser.has("button[value=purge]").await);
    assert_eq!(
        browser.text(".payload").await,
        "{\n  \"card\": \"4111111111111111\"\n}"
    );
    assert!(browser.text("main").await.contains("hunter2"));
    assert_eq!(browser.console().await, Vec::<String>::new());
    scene.browser.close().await;
}

/// Every form and every page of a payload, for every role. Shows X8.
#[tokio::test(flavor = "multi_thread")]
async fn no_form_and_no_payload_crosses_a_role() {
    let fixture = Fixture::new(Backend::Sqlite).await;
    let daemon = Daemon::on(&fixture, &format!("{STILL}{PEOPLE}"))
        .start()
        .await;
    let ids = die(&fixture.room, &[Message::new("a", "1")], "broken").await;
    let body = format!("queue=outbox&key={}", ids[0]);
    let join = fixture
        .room
        .joins()
        .start(&NewJoin::new(1))
        .await
        .expect("a join");
    let payload = format!("/messages/{}/payload", ids[0]);
    let purge = format!("{body}&action=purge");
    let cancel = format!("/joins/{join}/cancel");
    // viewer, operator, admin
    let forms = [
        ("/dead/confirm", body.as_str(), [403, 200, 200]),
        ("/dead/confirm", purge.as_str(), [403, 403, 200]),
        ("/dead/replay", "queue=outbox", [403, 303, 303]),
        ("/dead/purge", "queue=outbox", [403, 403, 303]),
        (cancel.as_str(), "", [403, 303, 303]),
    ];
    let people = ["token-of-vera", "token-of-otto", "token-of-ada"];
    let kind = ("content-type", "application/x-www-form-urlencoded");
    for (place, name) in people.into_iter().enumerate() {
        let session = session(&daemon, name).await;
        let cookie = ("cookie", session.as_str());
        for (path, body, expected) in forms {
            let answer = daemon.post(path, &[kind, cookie], body.to_owned()).await;
            assert_eq!(answer.status, expected[place], "{name} {path} {body}");
            if answer.status == 403 {
                assert!(answer.header("content-type").starts_with("text/html"));
                assert!(answer.body.contains("This needs the role"), "{path}");
            }
        }
        let answer = daemon.get(&payload, &[cookie]).await;
        assert_eq!(answer.status, [403, 403, 200][place], "{name} payload");
        if answer.status == 200 {
            assert_eq!(answer.header("content-type"), "application/octet-stream");
            assert!(
                answer
                    .header("content-disposition")
                    .starts_with("attachment")
            );
            assert_eq!(answer.header("x-content-type-options"), "nosniff");
        }
        let live = daemon.get("/live", &[cookie]).await.expect(200);
        assert!(!live.body.contains("<html"), "only the middle of the page");
    }
    // Nobody at all.
    for path in [
        "/",
        "/messages",
        &payload,
        "/live",
        "/audit",
        "/nowhere/else",
    ] {
        let answer = daemon.get(path, &[]).await;
        let expected = if path == "/nowhere/else" { 404 } else { 303 };
        assert_eq!(answer.status, expected, "{path}");
        assert!(
            !answer.body.contains("\"main\""),
            "no store is named: {path}"
        );
    }
    for (path, body, _) in forms {
        let answer = daemon
            .post(path, &[kind], body.to_owned())
            .await
            .expect(303);
        assert_eq!(answer.header("location"), "/login?next=/");
    }
    let part = daemon
        .get("/live", &[("hx-request", "true")])
        .await
        .expect(401);
    assert_eq!(part.header("hx-redirect"), "/login");
}

/// Signs in and gives the cookie, after a look at it.
async fn session(daemon: &Daemon, token: &str) -> String {
    let kind = ("content-type", "application/x-www-form-urlencoded");
    let answer = daemon
        .post("/login", &[kind], format!("token={token}"))
        .await
        .expect(303);
    let cookie = answer.header("set-cookie").to_owned();
    assert!(
        cookie.ends_with("; Path=/; HttpOnly; SameSite=Strict"),
        "{cookie}"
    );
    let over_https = [kind, ("x-forwarded-proto", "https")];
    let answer = daemon
        .post("/login", &over_https, format!("token={token}"))
        .await;
    assert!(answer.header("set-cookie").contains("; Secure"));
    cookie.split(';').next().unwrap_or_default().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_tokens_all_get_the_same_answer_and_no_session() {
    let fixture = Fixture::new(Backend::Sqlite).await;
    let daemon = Daemon::on(&fixture, &format!("{STILL}{PEOPLE}"))
        .start()
        .await;
    let kind = ("content-type", "application/x-www-form-urlencoded");
    let mut answers = Vec::new();
    for token in ["", "token-of-ad", "token-of-adaa", "x", "%00"] {
        let started = std::time::Instant::now();
        let answer = daemon
            .post("/login", &[kind], format!("token={token}"))
            .await
            .expect(403);
        assert!(started.elapsed() >= Duration::from_millis(400), "{token}");
        assert_eq!(answer.header("set-cookie"), "");
        answers.push(answer.body);
    }
    answers.dedup();
    assert_eq!(answers.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn assets_may_be_kept_and_pages_may_not() {
    let fixture = Fixture::new(Backend::Sqlite).await;
    let daemon = Daemon::on(&fixture, STILL).start().await;
    let page = daemon.get("/", &[]).await.expect(200);
    assert_eq!(page.header("cache-control"), "no-store");
    let paths = page
        .body
        .split('"')
        .filter(|part| part.starts_with("/assets/"));
    let paths: std::collections::BTreeSet<_> = paths.collect();
    assert_eq!(paths.len(), 4, "{paths:?}");
    for path in paths {
        let asset = daemon.get(path, &[]).await.expect(200);
        assert!(
            asset.header("cache-control").ends_with("immutable"),
            "{path}"
        );
        assert!(
            asset
                .header("content-security-policy")
                .contains("script-src 'self'")
        );
    }
    daemon.get("/assets/nothing.js", &[]).await.expect(404);
    let answer = daemon.get("/v1/nothing", &[]).await.expect(404);
    assert_eq!(answer.header("content-type"), "application/problem+json");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_does_not_answer_is_shown_as_such() {
    let fixture = Fixture::new(Backend::Sqlite).await;
    let gone = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = gone.local_addr().expect("an address").port();
    drop(gone);
    let config = format!(
        "{STILL}[[store]]\nname = 'gone'\nurl = 'postgres://nobody@127.0.0.1:{port}/none'\n"
    );
    let daemon = Daemon::on(&fixture, &config).start().await;
    let stores = daemon.get("/stores", &[]).await.expect(200).body;
    for shown in ["gone", "PostgreSQL", "unwell", "main", "SQLite", "well"] {
        assert!(stores.contains(shown), "{shown}: {stores}");
    }
    let page = daemon.get("/messages?store=gone", &[]).await.expect(503);
    assert!(
        page.body.contains("Check that the database runs"),
        "{}",
        page.body
    );
    let here = daemon.get("/messages?store=main", &[]).await.expect(200);
    assert!(here.body.contains(r#"<option value="main" selected>"#));
    daemon.get("/messages?store=other", &[]).await.expect(404);
    daemon.get("/", &[]).await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_forms_work_without_scripts() {
    let Some(scene) = Scene::new().await else {
        return;
    };
    let browser = &scene.browser;
    let ids = die(
        scene.room(),
        &[Message::new("a", "1"), Message::new("b", "2")],
        "broken",
    )
    .await;
    browser.without_scripts().await;
    browser.visit("/dead").await;
    browser.fill("input[name=topic]", "b").await;
    browser.click(".filter button").await;
    let replay = format!("input[value='{}']", ids[1]);
    browser.click(&replay).await;
    browser.click("button[value=replay]").await;
    browser.click("#confirm").await;
    assert_eq!(
        browser.text(".notice").await,
        "1 message replayed: ready again."
    );
    assert_eq!(scene.dead().await, 1);
    scene.browser.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_phone_shows_every_page_without_scrolling_sideways() {
    let Some(scene) = Scene::new().await else {
        return;
    };
    let browser = &scene.browser;
    let shop = shop(scene.room()).await;
    // What has no place to break is the hardest to fit.
    let long = "x".repeat(250);
    let message = Message::new(&long, &long)
        .correlation(&long)
        .header(&long, &long);
    let id = die(scene.room(), &[message], &long).await[0];
    let inbound = Inbound::new(&long, &long, &long, &long);
    scene
        .room()
        .inbox()
        .enqueue(&inbound)
        .await
        .expect("an enqueue");
    let join = NewJoin::new(3).grouping_key(&long).metadata(&long);
    let join = scene.room().joins().start(&join).await.expect("a join");
    let more = [
        format!("/messages/{id}"),
        format!("/inbox/message?source={long}&id={long}"),
        format!("/joins/{join}"),
        format!("/joins?key={long}"),
        format!("/nowhere/{long}"),
    ];
    for (width, is_phone) in [
        (390, true),
        (320, true),
        (820, false),
        (910, false),
        (1_280, false),
    ] {
        browser.screen(width, 844, is_phone).await;
        for path in pages(&shop).iter().chain(&more) {
            browser.visit(path).await;
            assert!(browser.fits().await, "{path} at {width}");
        }
    }
    scene.browser.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dark_and_light_follow_the_system_until_somebody_chooses() {
    let Some(scene) = Scene::new().await else {
        return;
    };
    let browser = &scene.browser;
    let ground = || async {
        let script = "return getComputedStyle(document.body).backgroundColor";
        browser.script(script, vec![]).await
    };
    browser.prefer("light").await;
    browser.visit("/").await;
    assert_eq!(ground().await, "rgb(245, 246, 249)");
    browser.prefer("dark").await;
    assert_eq!(ground().await, "rgb(15, 18, 24)");
    browser.click("[data-theme-toggle]").await;
    assert_eq!(ground().await, "rgb(245, 246, 249)");
    browser.visit("/messages").await;
    assert_eq!(ground().await, "rgb(245, 246, 249)", "the choice is kept");
    assert_eq!(browser.text("[data-theme-toggle]").await, "Dark");
    assert_eq!(browser.console().await, Vec::<String>::new());
    scene.browser.close().await;
}

/// Makes the pictures in docs/screenshots: `cargo test -p postroom-cli --test dashboard -- --ignored pictures`
#[tokio::test(flavor = "multi_thread")]
#[ignore = "writes files; run it when the pages have changed"]
async fn pictures_for_the_documents() {
    let Some(scene) = Scene::new().await else {
        return;
    };
    let (browser, room) = (&scene.browser, scene.room());
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/screenshots");
    std::fs::create_dir_all(&folder).expect("a folder");
    let shop = shop(room).await;
    // Something for the charts: a wave of messages, and somebody who works.
    for round in 0_usize..12 {
        let wave = 20 + 15 * (round % 4);
        let topics = [
            "order.created",
            "stock.reserve",
            "invoice.issue",
            "mail.receipt",
        ];
        let messages: Vec<_> = (0..wave)
            .map(|n| {
                Message::new(topics[n % 4], "{}").correlation(format!("order-{}", round * 60 + n))
            })
            .collect();
        room.outbox()
            .enqueue_many(&messages)
            .await
            .expect("an enqueue");
        let owner = OwnerToken::new();
        let claimed = room
            .outbox()
            .claim(owner, LEASE, wave - 10)
            .await
            .expect("a claim");
        let ids: Vec<_> = claimed.iter().map(|message| message.id).collect();
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        room.outbox().ack(owner, &ids).await.expect("an ack");
    }
    let save = |name: &'static str| {
        let file = folder.join(name);
        async move {
            let picture = browser.picture().await;
            assert!(picture.len() < 150_000, "{name}: {} bytes", picture.len());
            std::fs::write(file, picture).expect("a file");
        }
    };
    browser.prefer("light").await;
    browser.screen(1_200, 780, false).await;
    let message = format!("/messages/{}", shop.dead);
    let join = format!("/joins/{}", shop.join);
    for (path, name) in [
        ("/", "overview.png"),
        ("/messages", "messages.png"),
        (message.as_str(), "message.png"),
        ("/dead", "dead.png"),
        ("/joins", "joins.png"),
        (join.as_str(), "join.png"),
        ("/topics", "topics.png"),
    ] {
        browser.visit(path).await;
        save(name).await;
    }
    browser.prefer("dark").await;
    browser.visit("/").await;
    save("overview-dark.png").await;
    browser.prefer("light").await;
    browser.screen(390, 844, true).await;
    browser.visit("/").await;
    save("overview-phone.png").await;
    browser.visit("/dead").await;
    save("dead-phone.png").await;
    scene.browser.close().await;
}
