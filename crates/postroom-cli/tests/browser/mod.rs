//! A browser at a daemon's dashboard: what a visitor can do, in the words of a test.

pub(crate) mod corpus;

use std::time::Duration;

use fantoccini::elements::Element;
use fantoccini::error::CmdError;
use fantoccini::{Client, ClientBuilder, Locator};
use hyper_util::client::legacy::connect::HttpConnector;
use serde_json::{Value, json};
use testkit::browser::Driver;

/// How long a page may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// One window at one site.
pub(crate) struct Browser {
    tab: Client,
    session: String,
    site: String,
    plain: reqwest::Client,
    driver: Driver,
}

impl Browser {
    /// A window with a fresh profile; `None` when there is no browser.
    pub(crate) async fn open(site: String) -> Option<Self> {
        let driver = tokio::task::spawn_blocking(Driver::start)
            .await
            .expect("a driver")?;
        let capabilities = json!({
            "goog:chromeOptions": { "binary": driver.chromium(), "args": driver.arguments() },
            "goog:loggingPrefs": { "browser": "ALL" },
            "pageLoadStrategy": "normal",
        });
        let Value::Object(capabilities) = capabilities else {
            unreachable!("an object was written")
        };
        let tab = ClientBuilder::new(HttpConnector::new())
            .capabilities(capabilities)
            .connect(&driver.url())
            .await
            .expect("a browser");
        let session = tab.session_id().await.expect("a session");
        let plain = reqwest::Client::builder().no_proxy().build();
        Some(Self {
            tab,
            session: session.expect("its id"),
            site,
            plain: plain.expect("a client"),
            driver,
        })
    }

    /// Ends the browser. A test that fails before this ends it through its driver.
    pub(crate) async fn close(self) {
        self.tab.clone().close().await.expect("the end");
    }

    pub(crate) async fn visit(&self, path: &str) {
        let address = if path.starts_with('/') {
            format!("{}{path}", self.site)
        } else {
            path.to_owned()
        };
        self.tab.goto(&address).await.expect("a page");
    }

    /// The path and the query of the page that is shown.
    pub(crate) async fn place(&self) -> String {
        let address = self.tab.current_url().await.expect("an address");
        match address.query() {
            Some(query) => format!("{}?{query}", address.path()),
            None => address.path().to_owned(),
        }
    }

    pub(crate) async fn find(&self, selector: &str) -> Element {
        self.tab
            .wait()
            .at_most(PATIENCE)
            .for_element(Locator::Css(selector))
            .await
            .unwrap_or_else(|error| panic!("nothing is like {selector}: {error}"))
    }

    pub(crate) async fn has(&self, selector: &str) -> bool {
        let found = self.tab.find_all(Locator::Css(selector)).await;
        !found.expect("a search").is_empty()
    }

    pub(crate) async fn count(&self, selector: &str) -> usize {
        let found = self.tab.find_all(Locator::Css(selector)).await;
        found.expect("a search").len()
    }

    pub(crate) async fn text(&self, selector: &str) -> String {
        self.find(selector).await.text().await.expect("text")
    }

    /// The text of everything that is like this.
    pub(crate) async fn texts(&self, selector: &str) -> Vec<String> {
        let script = "return [...document.querySelectorAll(arguments[0])].map(e => e.textContent)";
        let texts = self.script(script, vec![json!(selector)]).await;
        serde_json::from_value(texts).expect("texts")
    }

    /// Clicks something that stays on the page.
    pub(crate) async fn click(&self, selector: &str) {
        let element = self.find(selector).await;
        element.click().await.expect("a click");
    }

    /// Clicks something that leads to another page, and waits for it.
    pub(crate) async fn follow(&self, selector: &str) {
        let element = self.find(selector).await;
        self.script("window.left = false", vec![]).await;
        element.click().await.expect("a click");
        // What is shown next has never heard of this variable.
        self.eventually("the next page", || async {
            let script = "return document.readyState === 'complete' && window.left === undefined";
            self.tab
                .execute(script, vec![])
                .await
                .map(|left| left == json!(true))
        })
        .await;
    }

    pub(crate) async fn fill(&self, selector: &str, text: &str) {
        let field = self.find(selector).await;
        field.clear().await.expect("an empty field");
        field.send_keys(text).await.expect("keys");
    }

    pub(crate) async fn choose(&self, selector: &str, value: &str) {
        let list = self.find(selector).await;
        list.select_by_value(value).await.expect("a choice");
    }

    pub(crate) async fn press(&self, key: &str) {
        let body = self.tab.active_element().await.expect("something active");
        body.send_keys(key).await.expect("a key");
    }

    pub(crate) async fn script(&self, script: &str, arguments: Vec<Value>) -> Value {
        self.tab
            .execute(script, arguments)
            .await
            .unwrap_or_else(|error| panic!("{script}: {error}"))
    }

    /// Waits until something is so.
    pub(crate) async fn eventually<F, R>(&self, what: &str, mut is_so: F)
    where
        F: FnMut() -> R,
        R: Future<Output = Result<bool, CmdError>>,
    {
        let started = std::time::Instant::now();
        // A page may go away while it is asked: that is no answer.
        while !matches!(is_so().await, Ok(true)) {
            assert!(started.elapsed() < PATIENCE, "{what}: not so");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// What the console has said since it was last asked: warnings and errors, refused scripts too.
    pub(crate) async fn console(&self) -> Vec<String> {
        let answer = self.command("se/log", json!({ "type": "browser" })).await;
        let entries = answer["value"].as_array().cloned().unwrap_or_default();
        entries
            .iter()
            .map(|entry| format!("{} {}", entry["level"], entry["message"]))
            .collect()
    }

    /// Something that only Chromium knows.
    pub(crate) async fn chromium(&self, command: &str, parameters: Value) -> Value {
        let body = json!({ "cmd": command, "params": parameters });
        self.command("goog/cdp/execute", body).await["value"].clone()
    }

    async fn command(&self, path: &str, body: Value) -> Value {
        let address = format!("{}/session/{}/{path}", self.driver.url(), self.session);
        let request = self.plain.post(address).body(body.to_string());
        let answer = request.send().await.expect("an answer");
        let text = answer.text().await.expect("text");
        serde_json::from_str(&text).expect("JSON")
    }

    /// A screen of this size; a phone has two pixels for each.
    pub(crate) async fn screen(&self, width: u32, height: u32, is_phone: bool) {
        let scale = if is_phone { 2 } else { 1 };
        let metrics = json!({ "width": width, "height": height, "deviceScaleFactor": scale, "mobile": is_phone });
        self.chromium("Emulation.setDeviceMetricsOverride", metrics)
            .await;
    }

    /// What the visitor's system prefers: `dark` or `light`.
    pub(crate) async fn prefer(&self, scheme: &str) {
        let features = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.chromium("Emulation.setEmulatedMedia", features).await;
    }

    /// Forbids scripts of pages; the test's own still run.
    pub(crate) async fn without_scripts(&self) {
        let parameters = json!({ "value": true });
        self.chromium("Emulation.setScriptExecutionDisabled", parameters)
            .await;
    }

    /// Nothing of the page is out of sight to the side.
    pub(crate) async fn fits(&self) -> bool {
        let script = "return document.documentElement.scrollWidth <= window.innerWidth";
        self.script(script, vec![]).await == json!(true)
    }

    /// A picture of the page as PNG.
    pub(crate) async fn picture(&self) -> Vec<u8> {
        self.tab.screenshot().await.expect("a picture")
    }
}
