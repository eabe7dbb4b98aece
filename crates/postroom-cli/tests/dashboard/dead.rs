//! Dead letters are replayed, purged and revived by clicking.

use super::*;

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
