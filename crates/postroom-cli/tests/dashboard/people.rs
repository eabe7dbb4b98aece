//! Who signs in, and what they may see and do.

use super::*;

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
