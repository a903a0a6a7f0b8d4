// Maps read from their bytes, mixed, and measured: as vitascope/report/explorer/attention_maps.py does.
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
  if (packed.shares) layer.shares = new Uint16Array(bytes(packed.shares).buffer);
  layer.Q = layer.grid[0] * layer.grid[1];
  layer.K = layer.keys[0] * layer.keys[1];
  layer.allQ = layer.Q + layer.queryTokens.length;  // tokens without coordinates come after patches
  layer.open = true;
  return layer;
}

function normalised(row) {
  var total = 0, k;
  for (k = 0; k < row.length; k++) total += row[k];
  if (total > 0) for (k = 0; k < row.length; k++) row[k] /= total;
  return row;
}

function contentRow(layer, number, head, q) {  // among patches; number: epoch and image
  var K = layer.K, row = new Float64Array(K), map = number * layer.heads + head, k, c;
  if (layer.levels) {
    var from = (map * layer.allQ + q) * K;
    for (k = 0; k < K; k++) row[k] = TABLE[layer.levels[from + k]];
    return normalised(row);
  }
  var R = layer.rank, queries = (map * layer.allQ + q) * R, keys = map * K * R, top = -Infinity;
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

function sharesRow(layer, number, head, q) {  // what goes to class tokens and registers
  var S = layer.keyTokens.length, from = ((number * layer.heads + head) * layer.allQ + q) * S, out = new Float64Array(S);
  for (var s = 0; s < S; s++) out[s] = layer.shares[from + s] / 65535;
  return out;
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
  var content = contentRow(layer, number, head, q), shares = sharesRow(layer, number, head, q);
  if (!layer.gated) return { mixed: content, shares: shares };
  var position = positionRow(layer, view.epoch, head, q), g = gateOf(layer, view.epoch, head);
  var mixed = new Float64Array(layer.K);
  for (var k = 0; k < layer.K; k++) mixed[k] = (1 - g) * content[k] + g * position[k];
  return { mixed: mixed, content: content, position: position, gate: g, shares: shares };
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
function headOf(view, head) {  // means over all rows of a head: the patches', or the tokens' where no patch asks
  var name = [view.id, view.epoch, view.image, view.index, head, state.gate].join("|");
  if (!known[name]) {
    var far = 0, dense = 0, even = 0, layer = view.layer, shares = new Float64Array(layer.keyTokens.length);
    var alike = new Float64Array(layer.K).fill(1 / layer.K);
    var asking = layer.Q || layer.allQ;
    for (var q = 0; q < asking; q++) {
      var rows = rowsOf(view, head, q), row = rows.mixed;
      for (var s = 0; s < shares.length; s++) shares[s] += rows.shares[s] / asking;
      far += layer.Q ? distance(layer, q, row) / asking : NaN;
      even += layer.Q ? distance(layer, q, alike) / asking : NaN;
      dense += entropy(row) / asking;
    }
    known[name] = { distance: far, entropy: dense, uniform: even, shares: shares };
  }
  return known[name];
}
