// Airflow shows these pages in a frame of its own origin. A script is needed for its theme and for links out of the frame.
"use strict";
(() => {
  const root = document.documentElement;
  const dark = matchMedia("(prefers-color-scheme: dark)");

  // The UI keeps its colour mode under "theme": light, dark or system.
  const frame = () => {
    for (const report of document.querySelectorAll("iframe[data-src]")) {
      const wanted = `${report.dataset.src}?theme=${root.dataset.theme}`;
      if (report.getAttribute("src") !== wanted) report.src = wanted;
    }
  };
  const follow = () => {
    let wanted = null;
    try { wanted = localStorage.getItem("theme"); } catch { /* a browser may forbid storage */ }
    root.dataset.theme = wanted === "dark" || wanted === "light" ? wanted : dark.matches ? "dark" : "light";
    frame();
  };
  follow();
  addEventListener("DOMContentLoaded", frame);
  addEventListener("storage", follow);
  dark.addEventListener("change", follow);

  document.addEventListener("click", (event) => {
    const link = event.target.closest?.("a[data-ui]");
    if (!link || window.parent === window || event.button || event.ctrlKey || event.metaKey || event.shiftKey) return;
    // The frame may not navigate the window around it, so a link of that window's own does.
    event.preventDefault();
    const outside = window.parent.document.createElement("a");
    outside.href = link.href;
    window.parent.document.body.append(outside);
    outside.click();
    outside.remove();
  });
  document.addEventListener("change", (event) => {
    if (event.target.matches("select[data-submit]")) event.target.form.submit();
  });
})();
