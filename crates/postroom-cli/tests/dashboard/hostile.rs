//! What messages carry is never run, and what other sites send changes nothing.

use super::*;

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
