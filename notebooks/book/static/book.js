// Formulas that are too wide become smaller, down to 3/4; what is still too wide scrolls.
function fit() {
  for (const formula of document.querySelectorAll(".formula")) {
    formula.style.fontSize = "";
    const ratio = formula.clientWidth / formula.scrollWidth;
    if (ratio < 1) formula.style.fontSize = `${Math.max(0.75, ratio - 0.01)}em`;
    if (formula.scrollWidth > formula.clientWidth) formula.tabIndex = 0;  // arrow keys scroll it
  }
}
document.fonts.ready.then(fit);
addEventListener("load", fit);
addEventListener("resize", fit);

// From a file, a browser can't read the pages that a search finds; it shows their titles alone.
if (location.protocol === "file:") DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;
