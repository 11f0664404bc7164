// Sets the theme before the first draw, so that the page does not flash. Not a module: modules load too late.
(function () {
  try {
    const theme = localStorage.getItem("cleveragents.theme");
    if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  } catch {
    // No storage: keep the system's theme.
  }
})();
