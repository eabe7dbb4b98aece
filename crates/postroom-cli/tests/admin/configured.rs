//! Stores that a configuration names.

use super::*;

/// A store is named by the configuration that the daemon reads.
async fn a_store_is_named_by_a_configuration(fixture: Fixture) {
    send(&fixture.room, &Message::new("order.lost", "x")).await;
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("postroom.toml");
    let schema = fixture.schema.as_ref();
    let schema = schema.map_or(String::new(), |schema| format!("schema = \"{schema}\"\n"));
    let store = |name: &str| {
        format!(
            "[[store]]\nname = \"{name}\"\nurl = \"{}\"\n{schema}",
            fixture.url
        )
    };
    std::fs::write(&file, store("shop")).expect("write");
    let config = file.display().to_string();
    let stats = postroom(&["stats", "--json", "--config", &config]).json();
    assert_eq!(stats["outbox"]["ready"], 1);
    let found = binary::finish(
        binary::command(&["stats", "--json"])
            .current_dir(folder.path())
            .env("POSTROOM_URL", "sqlite:elsewhere.db"),
    );
    assert_eq!(
        found.json()["outbox"]["ready"],
        1,
        "as `postroom serve` would"
    );
    let both = ["stats", "--config", &config, "--url", "sqlite:x.db"];
    postroom(&both).misused("cannot be used with");
    postroom(&["stats", "--config", &config, "--store", "bank"]).refused("names shop");
    let module = "[[module]]\nname = \"billing\"\nschema = \"billing\"\n";
    let elsewhere = format!(
        "[[store]]\nname = \"shop\"\nurl = \"{}\"\nschema = \"elsewhere\"\n",
        fixture.url
    );
    std::fs::write(&file, elsewhere + &store("bank") + module).expect("write");
    postroom(&["stats", "--config", &config]).refused("shop, bank, billing");
    postroom(&["stats", "--config", &config, "--store", "bank"]).ok();
    postroom(&["stats", "--config", &config, "--store", "billing"])
        .refused("postroom schema deploy");
    postroom(&["stats", "--config", "no-such.toml"]).refused("no-such.toml");
}

testkit::mount!(a_store_is_named_by_a_configuration);
