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
  Array.prototype.forEach.call(document.querySelectorAll("pre"), function (box) {
    var copy = document.createElement("button"), text = box.textContent;
    copy.type = "button"; copy.className = "copy"; copy.textContent = "Copy";
    copy.setAttribute("aria-label", "Copy the command");
    copy.addEventListener("click", function () {
      function done() { copy.textContent = "Copied"; setTimeout(function () { copy.textContent = "Copy"; }, 1500); }
      if (navigator.clipboard) { navigator.clipboard.writeText(text).then(done, function () {}); return; }
      getSelection().selectAllChildren(box.firstChild);
      if (document.execCommand("copy")) done();
    });
    box.className = "copied";
    box.appendChild(copy);
  });
  Array.prototype.forEach.call(document.querySelectorAll("details.fold"), function (fold) {  // drawings in it may be linked to
    if (location.hash && fold.querySelector(location.hash.replace(/[^#\w-]/g, ""))) fold.open = true;
  });
})();
