// @ts-check
// Applies the theme that was chosen before, ahead of the first paint: so it is no module. The theme is the system's
// until a person chooses.
(() => {
  "use strict";
  const key = "csi-reclaimer-theme";
  const order = ["system", "light", "dark"];

  /** @returns {string} the theme that is kept; storage may be forbidden */
  function kept() {
    try {
      const name = localStorage.getItem(key) ?? "";
      return order.includes(name) ? name : "system";
    } catch {
      return "system";
    }
  }

  /** @param {string} name */
  function keep(name) {
    try {
      localStorage.setItem(key, name);
    } catch {
      // It lasts as long as the page.
    }
  }

  let theme = kept();

  function apply() {
    document.documentElement.dataset.theme = theme;
    const button = document.getElementById("theme");
    if (button) button.textContent = "Theme: " + theme;
  }

  apply();
  document.addEventListener("DOMContentLoaded", () => {
    apply();
    document.getElementById("theme")?.addEventListener("click", () => {
      theme = order[(order.indexOf(theme) + 1) % order.length];
      keep(theme);
      apply();
    });
  });
})();
