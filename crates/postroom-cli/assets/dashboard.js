// What the pages cannot do without a script, and work without: the theme, the keyboard, selecting a page.
"use strict";

(() => {
  const root = document.documentElement;
  const wanted = matchMedia("(prefers-color-scheme: dark)");
  let paused = false;

  // Storage may be forbidden; then the choice lasts as long as the page.
  const stored = () => {
    try { return localStorage.getItem("postroom.theme"); } catch { return null; }
  };
  const store = (theme) => {
    try { localStorage.setItem("postroom.theme", theme); } catch { /* as long as the page, then */ }
  };
  const isDark = () => root.classList.contains("dark") || (!root.classList.contains("light") && wanted.matches);
  const wear = (theme) => {
    root.classList.remove("dark", "light");
    if (theme === "dark" || theme === "light") root.classList.add(theme);
  };

  // Before anything is painted.
  wear(stored());

  document.addEventListener("DOMContentLoaded", () => {
    for (const button of document.querySelectorAll("[data-theme-toggle]")) {
      const label = () => { button.textContent = isDark() ? "Light" : "Dark"; };
      button.hidden = false;
      label();
      wanted.addEventListener("change", label);
      button.addEventListener("click", () => {
        const theme = isDark() ? "light" : "dark";
        wear(theme);
        store(theme);
        label();
      });
    }

    // On a phone the menu is wider than the screen.
    const here = document.querySelector(".menu [aria-current]");
    if (here) here.closest("ul").scrollLeft = here.offsetLeft - 40;

    for (const button of document.querySelectorAll("[data-pause]")) {
      button.hidden = false;
      button.addEventListener("click", () => {
        paused = !paused;
        button.setAttribute("aria-pressed", String(paused));
        button.textContent = paused ? "Go on" : "Pause";
      });
    }

    for (const form of document.querySelectorAll("[data-submit-on-change]")) {
      form.addEventListener("change", () => form.submit());
    }

    for (const box of document.querySelectorAll("[data-select-page]")) {
      box.addEventListener("change", () => {
        for (const row of box.form.querySelectorAll("input[name=key]")) row.checked = box.checked;
      });
    }
  });

  document.addEventListener("htmx:beforeRequest", (event) => {
    if (paused || document.hidden) event.preventDefault();
  });

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    if (event.target.closest("input, select, textarea")) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    if (event.key === "/") {
      const search = document.getElementById("search");
      if (search) { event.preventDefault(); search.focus(); }
    } else if (event.key === "j" || event.key === "k") {
      const rows = [...document.querySelectorAll("[data-row]")];
      if (rows.length === 0) return;
      const here = rows.indexOf(document.activeElement);
      const step = event.key === "j" ? 1 : -1;
      const next = here < 0 ? 0 : Math.min(Math.max(here + step, 0), rows.length - 1);
      rows[next].focus();
    }
  });
})();
