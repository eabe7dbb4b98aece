//! Pages show what is there, and follow it.

use super::*;

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
