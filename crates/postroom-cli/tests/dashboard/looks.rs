//! On a phone, in the dark, and in the pictures of the documents.

use super::*;

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
