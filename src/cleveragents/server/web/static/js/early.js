// Sets the chosen theme before anything is drawn, so that no page flashes. A classic script on purpose: modules wait.
(function () {
  try {
    const theme = localStorage.getItem("cleveragents.theme");
    if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  } catch {
    // No storage, no choice: the system's theme it is.
  }
})();
