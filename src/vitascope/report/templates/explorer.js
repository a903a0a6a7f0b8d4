// The page: cards, controls, pointer and keys, words, uploads.
var images = {}, cards = [], waiting = 0, saying = 0;

function loadPicture(key) {
  var image = new Image();
  image.onload = refresh;
  image.src = pictures[key].src;
  image.alt = "";
  images[key] = image;
}

function choices(id, name, words, chosen, pick, describe) {  // a group of radio buttons
  var group = $(id), had = group.contains(document.activeElement);
  group.textContent = "";
  words.forEach(function (word, n) {
    var label = make("label"), input = make("input");
    input.type = "radio"; input.name = name; input.value = String(n); input.checked = n === chosen;
    input.setAttribute("aria-label", describe ? describe(n) : word);
    input.addEventListener("change", function () { pick(n); });
    label.title = describe ? describe(n) : "";
    label.appendChild(input);
    label.appendChild(make("span", "", word));
    group.appendChild(label);
    if (had && input.checked) input.focus();
  });
}

function firstPart(model) {
  return model.parts.filter(function (part) { return part.images.indexOf(state.picture) >= 0; })[0] || model.parts[0];
}

function controls() {
  var parts = shown().map(firstPart), layers = 0, heads = 0, longest = parts[0];
  parts.forEach(function (part) { if (part.layers.length > layers) { layers = part.layers.length; longest = part; } });
  state.layer = Math.max(0, Math.min(state.layer, layers - 1));
  parts.forEach(function (part) { var l = part.layers[state.layer]; if (l) heads = Math.max(heads, l.heads); });
  state.head = Math.max(0, Math.min(state.head, heads - 1));
  var tokens = tokensShown();
  if (tokens.indexOf(state.token) < 0) state.token = "";
  choices("ex-tokens", "ex-token", ["patch"].concat(tokens), tokens.indexOf(state.token) + 1, function (n) { state.token = n ? tokens[n - 1] : ""; refresh(); },
    function (n) { return n ? "The " + tokens[n - 1] + " looks" : "The patch under the pointer looks"; });
  $("ex-asks").hidden = !tokens.length;
  ["ex-l", "ex-h"].forEach(function (id) { $(id).parentNode.hidden = !layers; });
  $("ex-legend").hidden = $("ex-gates").hidden = $("ex-said").hidden = !layers;
  $("ex-pin").parentNode.hidden = !pointed();
  function counted(n) { return Array.apply(null, Array(n)).map(function (_, k) { return String(k + 1); }); }
  choices("ex-layers", "ex-layer", counted(layers), state.layer, function (n) { state.layer = n; controls(); },
    function (n) { return "Layer " + (n + 1) + ": " + longest.layers[n].name; });
  choices("ex-heads", "ex-head", counted(heads), state.head, function (n) { state.head = n; refresh(); },
    function (n) { return "Head " + (n + 1); });
  var seen = {};
  parts.forEach(function (part) { part.epochs.forEach(function (e) { if (e !== null) seen[e] = true; }); });
  var before = epochs[state.step], last = epochs.length ? state.step === epochs.length - 1 : true;
  epochs = Object.keys(seen).map(Number).sort(function (a, b) { return a - b; });
  state.step = last || epochs.indexOf(before) < 0 ? Math.max(0, epochs.length - 1) : epochs.indexOf(before);
  var slider = $("ex-epoch");
  slider.max = String(Math.max(0, epochs.length - 1));
  slider.value = String(state.step);
  $("ex-epochs").hidden = epochs.length < 2;
  var gated = parts.some(function (part) { return part.layers.some(function (l) { return l.gated; }); });
  $("ex-gates").disabled = !gated;
  $("ex-why").hidden = gated;
  pickers();
  refresh();
}

function pickers() {
  $("ex-models").hidden = models.length < 3;
  if (models.length < 3) return;
  ["ex-first", "ex-second"].forEach(function (id, n) {
    var select = $(id);
    if (select.options.length) { select.value = String(state.shown[n]); return; }
    models.forEach(function (model, m) {
      var option = make("option", "", model.label);
      option.value = String(m);
      select.appendChild(option);
    });
    select.value = String(state.shown[n]);
    select.addEventListener("change", function () { state.shown[n] = Number(select.value); build(); });
  });
}

function tile(card, name, title) {
  var figure = make("figure", "ex-tile"), canvas = make("canvas");
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", title);
  figure.appendChild(canvas);
  var caption = make("figcaption", "", title);
  figure.appendChild(caption);
  card.tiles.appendChild(figure);
  pointing(canvas);
  return { figure: figure, canvas: canvas, caption: caption };
}

function build() {  // one card per model
  var box = $("ex-cards");
  box.textContent = "";
  cards = shown().map(function (model) {
    var card = { model: model, node: make("article", "ex-card " + model.css) };
    var head = make("header");
    head.appendChild(make("h3", "", model.label));
    card.about = head.appendChild(make("p", "ex-about"));
    card.node.appendChild(head);
    card.why = card.node.appendChild(make("p", "ex-none"));
    card.body = card.node.appendChild(make("div", "ex-body"));
    card.tiles = card.body.appendChild(make("div", "ex-tiles"));
    card.light = tile(card, "light", "On the image");
    card.mixed = tile(card, "mixed", "Attention");
    card.content = tile(card, "content", "Content");
    card.position = tile(card, "position", "Position");
    card.shares = card.body.appendChild(make("p", "ex-shares"));
    card.plain = card.tiles.appendChild(make("p", "ex-plain"));
    card.gate = card.body.appendChild(make("div", "ex-gate"));
    card.gate.appendChild(make("span", "", "content"));
    card.bar = card.gate.appendChild(make("span", "ex-bar"));
    card.knob = card.bar.appendChild(make("i"));
    card.gate.appendChild(make("span", "", "position"));
    card.number = card.gate.appendChild(make("b"));
    var table = make("table", "ex-numbers"), row = table.createTHead().insertRow();
    ["", "this patch", "the head", "uniform"].forEach(function (word) {
      var cell = make(word ? "th" : "td", "", word);
      if (word) cell.scope = "col";
      row.appendChild(cell);
    });
    var body = table.createTBody();
    card.cells = ["Nonlocality, patches", "Entropy, nats"].map(function (word) {
      var line = body.insertRow(), name = make("th", "", word);
      name.scope = "row";
      line.appendChild(name);
      return [0, 1, 2].map(function () { return line.insertCell(); });
    });
    card.body.appendChild(table);
    var whole = make("figure", "ex-all");
    card.all = make("canvas");
    card.all.setAttribute("role", "img");
    card.all.setAttribute("aria-label", "Attention of this patch in every layer (down) and head (across); choose one with the buttons for layer and head");
    card.all.addEventListener("click", function (event) {
      var at = card.all.getBoundingClientRect();
      state.layer = Math.max(0, Math.floor((event.clientY - at.top) / card.cell[1]));
      state.head = Math.max(0, Math.floor((event.clientX - at.left) / card.cell[0]));
      controls();
    });
    whole.appendChild(card.all);
    whole.appendChild(make("figcaption", "", "Every head at this patch, one row per layer. Click one."));
    card.body.appendChild(whole);
    card.rests = card.node.appendChild(make("div", "ex-rests"));
    card.rests.appendChild(make("h4", "", "What the prediction depends on"));
    card.resting = card.rests.appendChild(make("div", "ex-tiles"));
    box.appendChild(card.node);
    return card;
  });
  box.classList.toggle("ex-two", cards.length > 1);
  controls();
}

function number(value) { return isNaN(value) ? "\u2013" : value.toFixed(2); }
function sentence(words) { return words.charAt(0).toUpperCase() + words.slice(1); }
function percent(share) { return (100 * share).toFixed(1) + "\u00a0%"; }

function sharesOf(layer, rows, whole) {  // what goes to class tokens and registers, in words
  if (!layer.keyTokens.length) return "";
  var said = layer.keyTokens.map(function (name, n) { return name + " " + percent(rows.shares[n]) + (layer.Q ? " (the head's patches " + percent(whole.shares[n]) + ")" : ""); });
  return "Share of its attention that goes to: " + said.join(", ") + "; with uniform attention " + percent(1 / (layer.K + layer.keyTokens.length)) + " each. The maps show the rest.";
}

function restsOn(card, view) {  // maps of relevance of the image that is shown, at the last weights
  var part = view.part, found = part && part.relevance || [];
  card.node.classList.toggle("ex-alone", !!part && !part.layers.length);
  card.rests.hidden = !found.length;
  found.forEach(function (one, n) {
    if (!card.resting.children[n]) {
      var figure = make("figure", "ex-rest"), canvas = make("canvas");
      canvas.setAttribute("role", "img");
      figure.appendChild(canvas);
      figure.appendChild(make("figcaption", "", one.name));
      card.resting.appendChild(figure);
      if (one.pairs) pointing(canvas);
    }
    if (!one.open) one.open = bytes(one.packed);
    var h = one.grid[0], w = one.grid[1], at = one.pairs ? placeOf(part) : null, best = 0;
    var from = (at ? view.image * h * w + at.y * w + at.x : view.image) * h * w, row = one.open.subarray(from, from + h * w);
    for (var k = 1; k < row.length; k++) if (row[k] > row[best]) best = k;
    var shown = card.resting.children[n].firstChild;
    drawLight(shown, row, h, w, at);
    shown.setAttribute("aria-label", at ? one.name + ", row " + (at.y + 1) + " of " + h + ", column " + (at.x + 1) + " of " + w : one.name + ": the prediction depends most on row " + (Math.floor(best / w) + 1) + " of " + h + ", column " + (best % w + 1) + " of " + w);
  });
  while (card.resting.children.length > found.length) card.resting.removeChild(card.resting.lastChild);
}

function aboutOf(model, view) {
  var words = [], part = view.part;
  if (model.about) words.push(model.about);
  if (!part) return words.join(" · ");
  var at = view.layer ? view.epoch : part.epochs.length - 1, epoch = part.epochs[at];
  if (epoch !== null) words.push("epoch " + epoch);
  if (view.layer) words.push(view.layer.name);
  var said = part.answers && part.answers[at][view.image];
  if (said) words.push("predicts " + said[0] + ", " + Math.round(100 * said[1]) + "\u00a0%" + (said[2] === false ? " (wrong)" : ""));
  return words.join(" · ");
}

function draw() {
  waiting = 0;
  var image = images[state.picture];
  state.ratio = image && image.naturalWidth ? image.naturalHeight / image.naturalWidth : 1;
  drawMain();
  cards.forEach(function (card) {
    var view = viewOf(card.model);
    card.why.hidden = !view.why; card.body.hidden = !!view.why;
    card.why.textContent = view.why || "";
    card.said = "";
    restsOn(card, view);
    if (view.why) { card.about.textContent = aboutOf(card.model, view); return; }
    var layer = view.layer, query = queryOf(layer), rows = rowsOf(view, state.head, query.q);
    card.about.textContent = aboutOf(card.model, view);
    drawLight(card.light.canvas, rows.mixed, layer.keys[0], layer.keys[1], query);
    drawMap(card.mixed.canvas, rows.mixed, layer, query);
    card.mixed.caption.textContent = layer.gated ? "Mixed" : "Attention";
    ["content", "position"].forEach(function (part) {
      card[part].figure.hidden = !layer.gated;
      if (layer.gated) drawMap(card[part].canvas, rows[part], layer, query);
    });
    card.gate.hidden = !layer.gated; card.plain.hidden = layer.gated;
    card.plain.textContent = layer.Q ? "Plain attention: by content, without a gate." : "Class attention: only the " + layer.queryTokens.join(" and the ") + " looks, whichever patch is chosen.";
    if (layer.gated) {
      card.knob.style.left = 100 * rows.gate + "%";
      card.number.textContent = "gate " + number(rows.gate) + (state.gate === "learned" ? "" : ", forced");
    }
    var whole = headOf(view, state.head), far = query.token ? NaN : distance(layer, query.q, rows.mixed), dense = entropy(rows.mixed);
    [[far, whole.distance, whole.uniform], [dense, whole.entropy, Math.log(layer.K)]].forEach(function (line, n) {
      line.forEach(function (value, m) { card.cells[n][m].textContent = number(value); });
    });
    card.shares.hidden = !layer.keyTokens.length;
    card.shares.textContent = sharesOf(layer, rows, whole);
    overview(card, view);
    var best = 0;
    for (var k = 1; k < layer.K; k++) if (rows.mixed[k] > rows.mixed[best]) best = k;
    var there = "row " + (Math.floor(best / layer.keys[1]) + 1) + ", column " + (best % layer.keys[1] + 1);
    card.said = card.model.label + (query.token ? " looks most at " : " looks " + number(far) + " patches away on average, most at ") + there + " (" +
      Math.round(100 * rows.mixed[best]) + " %)" + (layer.gated ? ", gate " + number(rows.gate) : "") + ", entropy " + number(dense) + "." + (layer.keyTokens.length ? " " + card.shares.textContent : "");
    card.alt = (query.token ? "of the " + query.token : "of the patch in row " + (query.y + 1) + ", column " + (query.x + 1)) + ", highest at " + there;
    card.place = query.token ? sentence(query.token) + "; layer " + (state.layer + 1) + ", head " + (state.head + 1) + ". " : "Patch in row " + (query.y + 1) + " of " + query.h + ", column " + (query.x + 1) + " of " + query.w + "; layer " + (state.layer + 1) + ", head " + (state.head + 1) + ". ";
  });
  $("ex-when").textContent = epochs.length ? "epoch " + epochs[state.step] : "";
  $("ex-epoch").setAttribute("aria-valuetext", $("ex-when").textContent);
  legend();
  clearTimeout(saying);
  saying = setTimeout(say, 150);
}

function say() {  // the same in words, for screen readers
  var heard = cards.filter(function (card) { return card.said; });
  $("ex-said").textContent = heard.length ? heard[0].place + heard.map(function (card) { return card.said; }).join(" ") : "";
  heard.forEach(function (card) {
    ["light", "mixed", "content", "position"].forEach(function (part) {
      card[part].canvas.setAttribute("aria-label", card[part].caption.textContent + ": attention " + card.alt);
    });
  });
}

function legend() {
  var view = shown().map(viewOf).filter(function (v) { return v.layer; })[0];
  if (!view) return;
  var bottom = 0.05 / view.layer.K, ticks = $("ex-ticks");
  var wanted = state.stretch ? "stretched" : String(bottom);
  if (ticks.dataset.of === wanted) return;
  ticks.dataset.of = wanted;
  ticks.textContent = "";
  function tick(value, word, css) {
    var node = ticks.appendChild(make("span", css, word));
    node.style.left = 100 * Math.log(value / bottom) / Math.log(1 / bottom) + "%";
  }
  if (state.stretch) {
    tick(bottom, "least of the map", "ex-left");
    tick(1, "most of the map", "ex-right");
    return;
  }
  [0.001, 0.01, 0.1, 1].forEach(function (value) { if (value > bottom * 1.2) tick(value, String(value), value === 1 ? "ex-right" : ""); });
  tick(1 / view.layer.K, "uniform", "ex-mark");
}

function refresh() { if (!waiting) waiting = requestAnimationFrame(draw); }

function pointing(canvas) {
  function move(event) {
    if (state.token) { state.token = ""; controls(); }
    var at = canvas.getBoundingClientRect();
    state.fy = Math.max(0, Math.min(0.9999, (event.clientY - at.top) / at.height));
    state.fx = Math.max(0, Math.min(0.9999, (event.clientX - at.left) / at.width));
    refresh();
  }
  canvas.addEventListener("pointermove", function (event) { if (!state.pinned || event.buttons) move(event); });
  canvas.addEventListener("pointerdown", function (event) {
    if (event.pointerType === "mouse") state.pinned = !state.pinned;
    pinning();
    move(event);
  });
}
function pinning() {
  $("ex-pin").textContent = state.pinned ? "Held: click again to let go." : "Click to hold a patch.";
}

function thumbs() {
  var group = $("ex-thumbs");
  group.textContent = "";
  Object.keys(pictures).forEach(function (key) {
    if (!images[key]) loadPicture(key);
    var label = make("label"), input = make("input"), image = make("img");
    input.type = "radio"; input.name = "ex-image"; input.checked = key === state.picture;
    input.setAttribute("aria-label", "Image: " + pictures[key].label);
    input.addEventListener("change", function () { state.picture = key; controls(); });
    image.onload = function () { if (image.naturalWidth < 24) image.className = "ex-coarse"; };
    image.src = pictures[key].src; image.alt = "";
    label.appendChild(input); label.appendChild(image);
    label.appendChild(make("span", "", pictures[key].label));
    group.appendChild(label);
  });
}

$("ex-picture").addEventListener("keydown", function (event) {
  var step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
  if (!step) return;
  event.preventDefault();
  if (state.token) { state.token = ""; controls(); }
  var at = pointed();
  if (!at) return;
  state.fy = (Math.max(0, Math.min(at.h - 1, at.y + step[0])) + 0.5) / at.h;
  state.fx = (Math.max(0, Math.min(at.w - 1, at.x + step[1])) + 0.5) / at.w;
  refresh();
});
$("ex-epoch").addEventListener("input", function () { state.step = Number(this.value); refresh(); });
$("ex-stretch").addEventListener("change", function () { state.stretch = this.checked; refresh(); });
Array.prototype.forEach.call(document.querySelectorAll("input[name=ex-gate]"), function (input) {
  input.addEventListener("change", function () { state.gate = input.value; refresh(); });
});
var playing = 0, still = window.matchMedia("(prefers-reduced-motion: reduce)");
$("ex-play").hidden = still.matches;
$("ex-play").addEventListener("click", function () {
  clearInterval(playing);
  state.step = 0;
  playing = setInterval(function () {
    $("ex-epoch").value = String(state.step);
    refresh();
    if (++state.step >= epochs.length) { state.step = epochs.length - 1; clearInterval(playing); }
  }, 650);
});

if (data.live) {
  $("ex-upload").hidden = false;
  $("ex-file").addEventListener("change", function () {
    var file = this.files[0], told = $("ex-told");
    if (!file) return;
    if (file.size > data.live.most) { told.textContent = "That file is larger than " + Math.round(data.live.most / 1048576) + " MB."; return; }
    told.textContent = "Computing the maps…";
    fetch(data.live.path, { method: "POST", body: file, headers: { "Content-Type": file.type || "application/octet-stream", "X-Vitascope-Token": data.live.token } })
      .then(function (answer) { return answer.json().then(function (body) { return [answer.ok, body]; }); })
      .then(function (both) {
        if (!both[0]) { told.textContent = both[1].error; return; }
        both[1].models.forEach(function (part, n) { models[n].parts.push(part); });
        Object.keys(both[1].images).forEach(function (key) {
          pictures[key] = both[1].images[key];
          pictures[key].label = file.name;
          state.picture = key;
        });
        told.textContent = "";
        thumbs();
        controls();
      })
      .catch(function () { told.textContent = "The server does not answer; is it still running?"; });
  });
}

live.hidden = false;
if ($("ex-static")) $("ex-static").hidden = true;
$("ex-ramp").style.background = "linear-gradient(to right," + STOPS.map(function (s) { return "#" + s; }).join(",") + ")";
thumbs();
pointing($("ex-picture"));
build();
if (window.ResizeObserver) new ResizeObserver(refresh).observe(live);
else window.addEventListener("resize", refresh);
