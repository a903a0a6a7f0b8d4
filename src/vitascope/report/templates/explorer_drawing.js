// Maps, images and light as pixels.
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
function paint(row, kh, kw) {  // into the small canvas, one pixel per key
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
  if (!query.token) box(g, canvas.width, canvas.height, query);
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
function drawLight(canvas, row, kh, kw, query) {  // the image, lit where the patch looks
  var g = drawPicture(canvas), top = 1e-12, k;
  for (k = 0; k < row.length; k++) top = Math.max(top, row[k]);
  small.width = kw; small.height = kh;
  var out = pen.createImageData(kw, kh);
  for (k = 0; k < row.length; k++) { out.data[4 * k + 2] = 12; out.data[4 * k + 3] = 236 * (1 - Math.sqrt(row[k] / top)); }
  pen.putImageData(out, 0, 0);
  g.imageSmoothingEnabled = true;
  g.drawImage(small, 0, 0, canvas.width, canvas.height);
  if (query && !query.token) box(g, canvas.width, canvas.height, query);
}
function drawMain() {
  var canvas = $("ex-picture"), g = drawPicture(canvas), query = pointed(), n;
  if (!query) return;
  g.strokeStyle = "rgba(255,255,255,.2)"; g.lineWidth = 1;
  g.beginPath();
  for (n = 1; n < query.w; n++) { g.moveTo(n / query.w * canvas.width, 0); g.lineTo(n / query.w * canvas.width, canvas.height); }
  for (n = 1; n < query.h; n++) { g.moveTo(0, n / query.h * canvas.height); g.lineTo(canvas.width, n / query.h * canvas.height); }
  g.stroke();
  if (query.token) return;
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
