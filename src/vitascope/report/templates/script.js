(function () {
  var root = document.documentElement, button = document.getElementById("theme");
  var dark = window.matchMedia("(prefers-color-scheme: dark)");
  function stored(value) {
    try { return value ? localStorage.setItem("vitascope-theme", value) : localStorage.getItem("vitascope-theme"); }
    catch (error) { return null; }
  }
  function isDark() { return root.dataset.theme ? root.dataset.theme === "dark" : dark.matches; }
  function name() { button.textContent = isDark() ? "Light" : "Dark"; button.setAttribute("aria-label", "Switch to " + (isDark() ? "light" : "dark") + " colours"); }
  var kept = stored();
  if (kept === "dark" || kept === "light") root.dataset.theme = kept;
  button.hidden = false;
  name();
  if (dark.addEventListener) dark.addEventListener("change", name);
  button.addEventListener("click", function () {
    root.dataset.theme = isDark() ? "light" : "dark";
    stored(root.dataset.theme);
    name();
  });
})();
