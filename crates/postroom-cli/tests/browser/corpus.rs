//! Texts that would run if anything took them for more than text. Each sets `window.ran`.

/// All of them: every way to run something, behind every way out of where a text may stand.
pub(crate) fn texts() -> Vec<String> {
    let combined = ESCAPES.iter().flat_map(|escape| {
        RUNNERS
            .iter()
            .map(move |runner| format!("{escape}{runner}"))
    });
    combined
        .chain(OTHERS.iter().map(ToString::to_string))
        .collect()
}

/// Ways out of an element's text, an attribute, a comment, a script, a style.
const ESCAPES: [&str; 8] = [
    "",
    "\">",
    "'>",
    "</title>",
    "</textarea></script>",
    "--></style>",
    "</pre></svg>",
    "]]>`}",
];

/// Ways to run something.
const RUNNERS: [&str; 16] = [
    "<script>window.ran=1</script>",
    "<img src=x onerror=window.ran=1>",
    "<svg onload=window.ran=1>",
    "<svg><script>window.ran=1</script></svg>",
    "<iframe srcdoc='<script>parent.ran=1</script>'></iframe>",
    "<iframe src=javascript:parent.ran=1></iframe>",
    "<video><source onerror=window.ran=1></video>",
    "<details open ontoggle=window.ran=1>x</details>",
    "<input autofocus onfocus=window.ran=1>",
    "<a href=javascript:window.ran=1 autofocus onfocus=window.ran=1>x</a>",
    "<object data=javascript:window.ran=1></object>",
    "<embed src=javascript:window.ran=1>",
    "<math><mtext><style><img src=x onerror=window.ran=1></style></mtext></math>",
    "<template><script>window.ran=1</script></template><body onload=window.ran=1>",
    "<div hx-get=/logout hx-trigger=load hx-on::load=window.ran=1 hx-vals=js:{a:window.ran=1}>x</div>",
    "<base href=//evil.invalid/><link rel=stylesheet href=//evil.invalid/x.css><meta http-equiv=refresh content=0;url=//evil.invalid/>",
];

/// What needs no way out.
const OTHERS: [&str; 20] = [
    "javascript:window.ran=1",
    "JaVaScRiPt:window.ran=1//",
    "java\nscript:window.ran=1",
    "data:text/html,<script>window.ran=1</script>",
    "\" onmouseover=window.ran=1 autofocus onfocus=window.ran=1 x=\"",
    "' onmouseover=window.ran=1 autofocus onfocus=window.ran=1 x='",
    "\" hx-get=/logout hx-trigger=load x=\"",
    "{{ 7 * 7 }}{% raw %}<script>window.ran=1</script>{% endraw %}",
    "${window.ran=1}",
    "&lt;script&gt;window.ran=1&lt;/script&gt;",
    "&#60;script&#62;window.ran=1&#60;/script&#62;",
    "%3Cscript%3Ewindow.ran=1%3C/script%3E",
    "\\u003cscript\\u003ewindow.ran=1\\u003c/script\\u003e",
    "\u{feff}<script>window.ran=1</script>",
    "\u{202e}<script>window.ran=1</script>",
    "<scr<script>ipt>window.ran=1</scr</script>ipt>",
    "<ScRiPt\t>window.ran=1</sCrIpT\t>",
    "<script>alert(1);window.ran=1</script>",
    "<noscript><p title=\"</noscript><img src=x onerror=window.ran=1>\">",
    "../../logout?x=\"><script>window.ran=1</script>#<",
];
