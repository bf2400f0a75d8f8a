"use strict";
(() => {
  const root = document.documentElement;
  const keep = "mild-report-theme";
  const stored = (value) => {
    try {
      if (value === undefined) return localStorage.getItem(keep);
      localStorage.setItem(keep, value);
    } catch {
      // A page opened from a file may have no storage.
    }
    return null;
  };
  const chosen = stored();
  if (chosen === "light" || chosen === "dark") root.dataset.theme = chosen;

  const dark = () =>
    root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;

  addEventListener("DOMContentLoaded", () => {
    const button = document.getElementById("theme");
    const tip = document.getElementById("tip");
    const name = () => { button.textContent = dark() ? "Light" : "Dark"; };
    name();
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", name);
    button.addEventListener("click", () => {
      root.dataset.theme = dark() ? "light" : "dark";
      stored(root.dataset.theme);
      name();
    });

    for (const mark of document.querySelectorAll("[data-tip]")) {
      mark.tabIndex = 0;
      mark.setAttribute("role", "img");
      mark.setAttribute("aria-label", mark.dataset.tip);
    }
    const hide = () => { tip.hidden = true; };
    const show = (mark, x, y) => {
      tip.textContent = mark.dataset.tip;
      tip.hidden = false;
      const box = tip.getBoundingClientRect();
      const left = Math.max(8, Math.min(x + 14, innerWidth - box.width - 8));
      const above = y - box.height - 12;
      tip.style.left = `${left}px`;
      tip.style.top = `${above > 8 ? above : y + 18}px`;
    };
    const over = (event) => {
      const mark = event.target.closest("[data-tip]");
      if (mark) show(mark, event.clientX, event.clientY); else hide();
    };
    document.addEventListener("pointermove", over);
    document.addEventListener("pointerdown", over);
    const followFocus = () => {
      const mark = document.activeElement.closest("[data-tip]");
      if (!mark || !mark.matches(":focus-visible")) return hide();
      const box = mark.getBoundingClientRect();
      show(mark, box.left + box.width / 2, box.top);
    };
    document.addEventListener("focusin", followFocus);
    document.addEventListener("focusout", hide);
    document.addEventListener("keydown", (event) => { if (event.key === "Escape") hide(); });
    // Reaching a mark by the keyboard may scroll it into view.
    addEventListener("scroll", followFocus, { passive: true });
  });
})();
