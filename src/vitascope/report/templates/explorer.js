(function () {
  "use strict";
  var holder = document.getElementById("ex-data"), live = document.getElementById("ex-live");
  if (!holder || !live) return;
  var data = JSON.parse(holder.textContent), models = data.models;
  function $(id) { return document.getElementById(id); }
  function make(tag, css, text) {
    var node = document.createElement(tag);
    if (css) node.className = css;
    if (text !== undefined) node.textContent = text;
    return node;
  }

  // Maps ------------------------------------------------------------------------------------
  var TABLE = new Float64Array(256);  // weight of a level
  for (var t = 1; t < 256; t++) TABLE[t] = Math.pow(data.floor, (255 - t) / 254);

  function bytes(text) {
    var raw = atob(text), out = new Uint8Array(raw.length);
    for (var i = 0; i < raw.length; i++) out[i] = raw.charCodeAt(i);
    return out;
  }
  function floats(text) { return new Float32Array(bytes(text).buffer); }

  function opened(layer) {  // decoded once
    if (layer.open) return layer;
    var packed = layer.packed;
    if (packed.levels) layer.levels = bytes(packed.levels);
    else {
      layer.query = new Int8Array(bytes(packed.query).buffer);
      layer.key = new Int8Array(bytes(packed.key).buffer);
      layer.scale = floats(packed.scale);
    }
    if (layer.gated) {
      layer.gate = floats(packed.gate);
      layer.down = floats(packed.down);
      layer.across = floats(packed.across);
    }
    layer.Q = layer.grid[0] * layer.grid[1];
    layer.K = layer.keys[0] * layer.keys[1];
    layer.open = true;
    return layer;
  }

  function normalised(row) {
    var total = 0, k;
    for (k = 0; k < row.length; k++) total += row[k];
    if (total > 0) for (k = 0; k < row.length; k++) row[k] /= total;
    return row;
  }

  function contentRow(layer, number, head, q) {  // number: epoch and image
    var K = layer.K, row = new Float64Array(K), map = number * layer.heads + head, k, c;
    if (layer.levels) {
      var from = (map * layer.Q + q) * K;
      for (k = 0; k < K; k++) row[k] = TABLE[layer.levels[from + k]];
      return normalised(row);
    }
    var R = layer.rank, queries = (map * layer.Q + q) * R, keys = map * K * R, top = -Infinity;
    var weights = new Float64Array(R);
    for (c = 0; c < R; c++) weights[c] = layer.scale[map * R + c] * layer.query[queries + c];
    for (k = 0; k < K; k++) {
      var score = 0, at = keys + k * R;
      for (c = 0; c < R; c++) score += weights[c] * layer.key[at + c];
      row[k] = score;
      if (score > top) top = score;
    }
    for (k = 0; k < K; k++) row[k] = Math.exp(row[k] - top);
    return normalised(row);
  }

  function positionRow(layer, epoch, head, q) {
    var w = layer.grid[1], kh = layer.keys[0], kw = layer.keys[1];
    var y = Math.floor(q / w), x = q % w, row = new Float64Array(layer.K);
    var down = ((epoch * layer.heads + head) * layer.grid[0] + y) * kh;
    var across = ((epoch * layer.heads + head) * w + x) * kw;
    for (var a = 0; a < kh; a++)
      for (var b = 0; b < kw; b++) row[a * kw + b] = layer.down[down + a] * layer.across[across + b];
    return row;
  }

  function gateOf(layer, epoch, head) {
    return state.gate === "learned" ? layer.gate[epoch * layer.heads + head] : Number(state.gate);
  }

  function rowsOf(view, head, q) {
    var layer = view.layer, number = view.epoch * view.part.images.length + view.image;
    var content = contentRow(layer, number, head, q);
    if (!layer.gated) return { mixed: content };
    var position = positionRow(layer, view.epoch, head, q), g = gateOf(layer, view.epoch, head);
    var mixed = new Float64Array(layer.K);
    for (var k = 0; k < layer.K; k++) mixed[k] = (1 - g) * content[k] + g * position[k];
    return { mixed: mixed, content: content, position: position, gate: g };
  }

  function distance(layer, q, row) {
    var w = layer.grid[1], y = layer.query_axes[0][Math.floor(q / w)], x = layer.query_axes[1][q % w];
    var kw = layer.keys[1], sum = 0;
    for (var k = 0; k < layer.K; k++) {
      var dy = layer.key_axes[0][Math.floor(k / kw)] - y, dx = layer.key_axes[1][k % kw] - x;
      sum += row[k] * Math.sqrt(dy * dy + dx * dx);
    }
    return sum;
  }
  function entropy(row) {
    var sum = 0;
    for (var k = 0; k < row.length; k++) if (row[k] > 0) sum -= row[k] * Math.log(row[k]);
    return sum;
  }

  var known = {};
  function headOf(view, head) {  // means over all rows of a head
    var name = [view.id, view.epoch, view.image, view.index, head, state.gate].join("|");
    if (!known[name]) {
      var far = 0, dense = 0, even = 0, layer = view.layer;
      var alike = new Float64Array(layer.K).fill(1 / layer.K);
      for (var q = 0; q < layer.Q; q++) {
        var row = rowsOf(view, head, q).mixed;
        far += distance(layer, q, row) / layer.Q;
        even += distance(layer, q, alike) / layer.Q;
        dense += entropy(row) / layer.Q;
      }
      known[name] = { distance: far, entropy: dense, uniform: even };
    }
    return known[name];
  }

  // What is chosen --------------------------------------------------------------------------
  var pictures = data.images, keys = Object.keys(pictures);  // key -> {src, label}
  models.forEach(function (model) { model.parts = [model]; });
  var state = {
    picture: keys[0], layer: 0, head: 0, gate: "learned", fy: 0.5, fx: 0.5, pinned: false, stretch: false,
    shown: models.length > 1 ? data.shown : [0], step: 0
  };
  state.head = Math.min.apply(null, state.shown.map(function (i) { return models[i].layers[0].heads; })) >> 1;
  var epochs = [];

  function viewOf(model) {  // what there is to see of a model at the choice made, or why nothing
    for (var p = 0; p < model.parts.length; p++) {
      var part = model.parts[p], image = part.images.indexOf(state.picture);
      if (image < 0) continue;
      if (state.layer >= part.layers.length) return { why: "It has " + part.layers.length + " attention layers here." };
      var layer = opened(part.layers[state.layer]);
      if (state.head >= layer.heads) return { why: "This layer has " + layer.heads + " heads." };
      var epoch = 0;
      for (var e = 0; e < part.epochs.length; e++) if (part.epochs[e] === null || part.epochs[e] <= epochs[state.step]) epoch = e;
      return { id: model.label + p, part: part, layer: layer, index: state.layer, epoch: epoch, image: image };
    }
    return { why: "It was not shown this image." };
  }
  function queryOf(layer) {
    var h = layer.grid[0], w = layer.grid[1];
    var y = Math.min(h - 1, Math.floor(state.fy * h)), x = Math.min(w - 1, Math.floor(state.fx * w));
    return { y: y, x: x, q: y * w + x, h: h, w: w };
  }
  function shown() { return state.shown.map(function (i) { return models[i]; }); }

  // Drawing ---------------------------------------------------------------------------------
  var STOPS = "000004,0b0724,210c4a,3d0965,57106e,71196e,8a226a,a32c61,bc3754,d24644,e45a31,f1731d,f98e09,fcac11,f9cb35,f2ea69,fcffa4".split(",");
  var COLOURS = new Uint8ClampedArray(256 * 3);  // inferno
  for (var i = 0; i < 256; i++) {
    var place = i / 255 * 16, low = Math.min(15, Math.floor(place)), part = place - low;
    for (var c = 0; c < 3; c++) {
      var one = parseInt(STOPS[low].substr(2 * c, 2), 16), two = parseInt(STOPS[low + 1].substr(2 * c, 2), 16);
      COLOURS[3 * i + c] = one + (two - one) * part;
    }
  }
  var small = document.createElement("canvas"), pen = small.getContext("2d", { willReadFrequently: true });

  function sized(canvas, ratio) {  // backing store in device pixels
    var width = Math.max(1, Math.round(canvas.clientWidth * (window.devicePixelRatio || 1)));
    var height = Math.max(1, Math.round(width * ratio));
    if (canvas.width !== width || canvas.height !== height) { canvas.width = width; canvas.height = height; }
    return canvas.getContext("2d");
  }
  function scaleOf(row) {
    var top = 1, bottom = 0.05 / row.length, k;
    if (state.stretch) {
      top = 0; bottom = 1;
      for (k = 0; k < row.length; k++) { top = Math.max(top, row[k]); if (row[k] > 0) bottom = Math.min(bottom, row[k]); }
      bottom = Math.max(bottom, top * 1e-3);
      if (bottom >= top) bottom = top / 2;
    }
    return { top: Math.log(top), bottom: Math.log(bottom) };
  }
  function colourAt(value, scale) {
    var share = value > 0 ? (Math.log(value) - scale.bottom) / (scale.top - scale.bottom) : 0;
    return 3 * Math.round(255 * Math.max(0, Math.min(1, share)));
  }
  function paint(row, kh, kw) {  // into the small canvas, a pixel a key
    small.width = kw; small.height = kh;
    var out = pen.createImageData(kw, kh), scale = scaleOf(row);
    for (var k = 0; k < row.length; k++) {
      var at = colourAt(row[k], scale);
      out.data[4 * k] = COLOURS[at]; out.data[4 * k + 1] = COLOURS[at + 1]; out.data[4 * k + 2] = COLOURS[at + 2];
      out.data[4 * k + 3] = 255;
    }
    pen.putImageData(out, 0, 0);
  }
  function box(g, width, height, query, colour) {
    var x = query.x / query.w * width, y = query.y / query.h * height, line = Math.max(2, width / 90);
    var w = width / query.w - line, h = height / query.h - line;
    x += line / 2; y += line / 2;  // all of it inside the patch
    g.lineJoin = "round";
    g.strokeStyle = "rgba(0,0,0,.75)"; g.lineWidth = line + 2; g.strokeRect(x, y, w, h);
    g.strokeStyle = colour || "#fff"; g.lineWidth = line; g.strokeRect(x, y, w, h);
  }
  function drawMap(canvas, row, layer, query) {
    var g = sized(canvas, state.ratio);
    paint(row, layer.keys[0], layer.keys[1]);
    g.imageSmoothingEnabled = false;
    g.drawImage(small, 0, 0, canvas.width, canvas.height);
    box(g, canvas.width, canvas.height, query);
  }
  function drawPicture(canvas) {
    var g = sized(canvas, state.ratio), image = images[state.picture];
    g.fillStyle = "#000"; g.fillRect(0, 0, canvas.width, canvas.height);
    if (image && image.complete && image.naturalWidth) {
      g.imageSmoothingEnabled = image.naturalWidth >= 24;
      g.imageSmoothingQuality = "high";
      g.drawImage(image, 0, 0, canvas.width, canvas.height);
    }
    return g;
  }
  function drawLight(canvas, row, layer, query) {  // the image, lit where the patch looks
    var g = drawPicture(canvas), kh = layer.keys[0], kw = layer.keys[1], top = 0, k;
    for (k = 0; k < row.length; k++) top = Math.max(top, row[k]);
    small.width = kw; small.height = kh;
    var out = pen.createImageData(kw, kh);
    for (k = 0; k < row.length; k++) { out.data[4 * k + 2] = 12; out.data[4 * k + 3] = 236 * (1 - Math.sqrt(row[k] / top)); }
    pen.putImageData(out, 0, 0);
    g.imageSmoothingEnabled = true;
    g.drawImage(small, 0, 0, canvas.width, canvas.height);
    box(g, canvas.width, canvas.height, query);
  }
  function drawMain() {
    var canvas = $("ex-picture"), g = drawPicture(canvas), first = null;
    shown().some(function (model) { var view = viewOf(model); if (view.layer) first = view; return first; });
    if (!first) return;
    var query = queryOf(first.layer), n;
    g.strokeStyle = "rgba(255,255,255,.2)"; g.lineWidth = 1;
    g.beginPath();
    for (n = 1; n < query.w; n++) { g.moveTo(n / query.w * canvas.width, 0); g.lineTo(n / query.w * canvas.width, canvas.height); }
    for (n = 1; n < query.h; n++) { g.moveTo(0, n / query.h * canvas.height); g.lineTo(canvas.width, n / query.h * canvas.height); }
    g.stroke();
    box(g, canvas.width, canvas.height, query, state.pinned ? "#fcac11" : "#fff");
  }
  function drawAll(card, view) {  // every layer and head at this patch
    var canvas = card.all, part = view.part, rows = part.layers.length, columns = 0;
    part.layers.forEach(function (layer) { columns = Math.max(columns, opened(layer).heads); });
    var cell = canvas.clientWidth / columns, high = cell * state.ratio;
    var g = sized(canvas, rows * high / canvas.clientWidth), dot = canvas.width / canvas.clientWidth, gap = Math.max(1, dot * 1.5);
    g.clearRect(0, 0, canvas.width, canvas.height);
    g.imageSmoothingEnabled = false;
    for (var l = 0; l < rows; l++) {
      var layer = part.layers[l], query = queryOf(layer);
      for (var h = 0; h < layer.heads; h++) {
        paint(rowsOf({ part: part, layer: layer, epoch: view.epoch, image: view.image }, h, query.q).mixed, layer.keys[0], layer.keys[1]);
        var x = h * cell * dot, y = l * high * dot, w = cell * dot, t = high * dot;
        g.drawImage(small, x + gap, y + gap, w - 2 * gap, t - 2 * gap);
        if (l === state.layer && h === state.head) {
          g.strokeStyle = getComputedStyle(canvas).color; g.lineWidth = gap * 1.6;
          g.strokeRect(x + gap / 2, y + gap / 2, w - gap, t - gap);
        }
      }
    }
    card.cell = [cell, high];
  }

  function overview(card, view) {  // at once where that is quick, else when the pointer rests
    clearTimeout(card.later);
    if (card.slow) { card.later = setTimeout(function () { drawAll(card, view); }, 60); return; }
    var begun = performance.now();
    drawAll(card, view);
    card.slow = performance.now() - begun > 5;
  }

  // The page --------------------------------------------------------------------------------
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
    state.layer = Math.min(state.layer, layers - 1);
    parts.forEach(function (part) { var l = part.layers[state.layer]; if (l) heads = Math.max(heads, l.heads); });
    state.head = Math.min(state.head, heads - 1);
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
    figure.appendChild(canvas);
    var caption = make("figcaption", "", title);
    figure.appendChild(caption);
    card.tiles.appendChild(figure);
    pointing(canvas);
    return { figure: figure, canvas: canvas, caption: caption };
  }

  function build() {  // a card a model
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
      card.plain = card.tiles.appendChild(make("p", "ex-plain", "Plain attention: it looks by content, and has no gate."));
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
      whole.appendChild(make("figcaption", "", "Every head at this patch: a row a layer. Click one."));
      card.body.appendChild(whole);
      box.appendChild(card.node);
      return card;
    });
    box.classList.toggle("ex-two", cards.length > 1);
    controls();
  }

  function number(value) { return value.toFixed(2); }

  function aboutOf(model, view) {
    var words = [], part = view.part, epoch = part.epochs[view.epoch];
    if (model.about) words.push(model.about);
    if (epoch !== null) words.push("epoch " + epoch);
    words.push(view.layer.name);
    var said = part.answers && part.answers[view.epoch][view.image];
    if (said) words.push("says " + said[0] + ", " + Math.round(100 * said[1]) + "\u00a0%" + (said[2] === false ? " (wrong)" : ""));
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
      if (view.why) { card.about.textContent = card.model.about || ""; return; }
      var layer = view.layer, query = queryOf(layer), rows = rowsOf(view, state.head, query.q);
      card.about.textContent = aboutOf(card.model, view);
      drawLight(card.light.canvas, rows.mixed, layer, query);
      drawMap(card.mixed.canvas, rows.mixed, layer, query);
      card.mixed.caption.textContent = layer.gated ? "Mixed" : "Attention";
      ["content", "position"].forEach(function (part) {
        card[part].figure.hidden = !layer.gated;
        if (layer.gated) drawMap(card[part].canvas, rows[part], layer, query);
      });
      card.gate.hidden = !layer.gated; card.plain.hidden = layer.gated;
      if (layer.gated) {
        card.knob.style.left = 100 * rows.gate + "%";
        card.number.textContent = "gate " + number(rows.gate) + (state.gate === "learned" ? "" : ", forced");
      }
      var whole = headOf(view, state.head), far = distance(layer, query.q, rows.mixed), dense = entropy(rows.mixed);
      [[far, whole.distance, whole.uniform], [dense, whole.entropy, Math.log(layer.K)]].forEach(function (line, n) {
        line.forEach(function (value, m) { card.cells[n][m].textContent = number(value); });
      });
      overview(card, view);
      var best = 0;
      for (var k = 1; k < layer.K; k++) if (rows.mixed[k] > rows.mixed[best]) best = k;
      var there = "row " + (Math.floor(best / layer.keys[1]) + 1) + ", column " + (best % layer.keys[1] + 1);
      card.said = card.model.label + " looks " + number(far) + " patches away on average, most at " + there + " (" +
        Math.round(100 * rows.mixed[best]) + " %)" + (layer.gated ? ", gate " + number(rows.gate) : "") + ", entropy " + number(dense) + ".";
      card.alt = "of the patch in row " + (query.y + 1) + ", column " + (query.x + 1) + ", highest at " + there;
      card.place = "Patch in row " + (query.y + 1) + " of " + query.h + ", column " + (query.x + 1) + " of " + query.w + "; layer " + (state.layer + 1) + ", head " + (state.head + 1) + ". ";
    });
    $("ex-when").textContent = epochs.length ? "epoch " + epochs[state.step] : "";
    $("ex-epoch").setAttribute("aria-valuetext", $("ex-when").textContent);
    legend();
    clearTimeout(saying);
    saying = setTimeout(say, 150);
  }

  function say() {  // in words, for those who listen and for those who want the numbers
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
    var view = shown().map(viewOf).filter(function (v) { return v.layer; })[0];
    if (!view) return;
    var at = queryOf(view.layer);
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

  // Pictures of one's own, where a server answers ---------------------------------------------
  if (data.live) {
    $("ex-upload").hidden = false;
    $("ex-file").addEventListener("change", function () {
      var file = this.files[0], told = $("ex-told");
      if (!file) return;
      if (file.size > data.live.most) { told.textContent = "That file is larger than " + Math.round(data.live.most / 1048576) + " MB."; return; }
      told.textContent = "Looking…";
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
})();
